# SPDX-License-Identifier: Apache-2.0
#
# cartonfs: `make help` lists the targets.

# Turns off the built-in rules, as make tries each of them for each header.
MAKEFLAGS += -r

# VARIABLE = $(call once,VARIABLE,COMMAND): the output of COMMAND. The command runs once, when VARIABLE is first used:
# when `make deps` runs, there may be neither a compiler nor pkg-config yet.
once = $(eval $(1) := $$(shell $$(2)))$($(1))

VERSION := 0.2.0
# A clock that is before this, in seconds since 1970, is wrong: the date of the release, or of the package.
BUILT := $(or $(SOURCE_DATE_EPOCH),1795564800)
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/cartonfs
UNITDIR ?= $(PREFIX)/lib/systemd/system
USERUNITDIR ?= $(PREFIX)/lib/systemd/user
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
# mount(8) looks for mount.cartonfs in /sbin only, where an ordinary user can put nothing
MOUNTDIR ?= $(if $(DESTDIR)$(filter 0,$(shell id -u)),,$(PREFIX))/sbin
# where the Python module goes: that of the system's Python below PREFIX; nowhere if there is no Python
PYTHON ?= /usr/bin/python3
PYTHONDIR ?= $(call once,PYTHONDIR,$(PYTHON) .packaging/python/where.py $(PREFIX) 2>/dev/null)
BUILD ?= build

CC ?= cc
CFLAGS ?= -O2 -g
# Flags of the sanitizer builds (see asan, tsan).
VARIANT ?=
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
# known FLAGS: those that the compiler has.
known = $(foreach flag,$(1),$(shell $(CC) -Werror $(flag) -E -x c /dev/null >/dev/null 2>&1 && echo $(flag)))
HARDENING := -fstack-protector-strong $(call known,-fstack-clash-protection -fcf-protection) \
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
ifneq ($(VARIANT),)
HARDENING :=
endif
BASE := -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DCARTON_VERSION='"$(VERSION)"' -DCARTON_BUILT=$(BUILT) -pthread -fPIE \
	$(WARNINGS) $(HARDENING) $(VARIANT)

# Internal symbols of core/ are protected: tests can link them, the library does not export them.
CORE_BASE := -fPIC -fvisibility=protected -Icore

# The libraries of each layer: core/ is compiled without FUSE.
CORE_PKGS := libzstd libcrypto zlib
# Loaded when they are needed (base/library.h), so they are not linked.
LAZY_PKGS := libcurl libarchive
# ISA-L decodes Deflate and computes crc32 if it is there, else zlib does. `make ISAL=no` builds without it.
# on a fresh system, `make deps` installs pkg-config
ISAL ?= $(shell pkg-config --exists libisal 2>/dev/null && echo yes)
CORE_PKGS += $(if $(filter yes,$(ISAL)),libisal)
FS_PKGS := fuse3 libseccomp
soname = $(shell LC_ALL=C readelf -d "$$($(CC) -print-file-name=$(1).so)" 2>/dev/null | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
CORE_CFLAGS = $(eval CORE_CFLAGS := $(shell pkg-config --cflags $(CORE_PKGS) $(LAZY_PKGS)) \
	-DLIBCURL_FILE='"$(call soname,libcurl)"' -DLIBARCHIVE_FILE='"$(call soname,libarchive)"')$(CORE_CFLAGS)
CORE_LIBS = $(call once,CORE_LIBS,pkg-config --libs $(CORE_PKGS))
FS_CFLAGS = $(call once,FS_CFLAGS,pkg-config --cflags $(FS_PKGS))
FS_LIBS = $(call once,FS_LIBS,pkg-config --libs $(FS_PKGS))
CTL_LIBS = $(call once,CTL_LIBS,pkg-config --libs libseccomp)

CORE_SRC := $(filter-out $(if $(filter yes,$(ISAL)),core/archive/inflate_zlib.c core/base/crc32_zlib.c, \
	core/archive/inflate_isal.c core/base/crc32_isal.c), \
	$(wildcard core/*.c core/*/*.c))
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o)
LIB := $(BUILD)/libcarton.a
TESTED := $(BUILD)/tests/cartonfs $(BUILD)/tests/cartonctl
# The number counts incompatible changes of carton.h.
SONAME := libcarton.so.0
SO_FILE := $(SONAME).$(VERSION)
SO := $(BUILD)/$(SONAME)
# A program is a room of its own, and those objects of the rooms beneath (FS_LIB) that it calls.
CARTONFS_SRC := $(wildcard fs/mount/*.c)
CARTONFS_OBJ := $(CARTONFS_SRC:%.c=$(BUILD)/%.o)
CARTONCTL_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard fs/ctl/*.c))
FS_LIB_SRC := $(wildcard fs/process/*.c fs/common/*.c)
FS_LIB_OBJ := $(FS_LIB_SRC:%.c=$(BUILD)/%.o) $(BUILD)/fs/syscall_names.o
FS_LIB := $(BUILD)/fs.a
# `make check` and the like build with all cores, unless make was started with -j.
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT := $(UNIT_SRC:%.c=$(BUILD)/%)
TOOLS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/tools/*.c))

ifeq ($(V),1)
Q :=
say := @:
else
Q := @
say = @printf '  %-5s %s\n'
endif

.PHONY: all tested tests have-cmocka fuzzers demo demo-remote check check-long test-times asan tsan valgrind check-runners check-hub check-sign check-sha256 check-arm64-sha256 slow mutants soak fleet image fuzz differential lint format man bench bench-readme bench-deps install uninstall dist deb rpm deps test-deps demo-remote-deps deb-deps rpm-deps chroot chroot-deb vm clean help FORCE
.DELETE_ON_ERROR:

all: $(BUILD)/cartonfs $(BUILD)/cartonctl $(SO)

# ---- build ----

# Records the compiler flags: when they change, everything is rebuilt.
FLAGS_NOW := $(CC) ISAL=$(ISAL) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(BASE) $(CORE_BASE)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(FLAGS_NOW))' > $@
FORCE:

$(BUILD)/core/%.o: core/%.c $(BUILD)/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(CORE_BASE) $(CORE_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# fs/ is compiled with these two headers of core/ and no others.
PUBLIC := $(BUILD)/include/carton.h $(BUILD)/include/log.h
$(PUBLIC): $(BUILD)/include/%.h: core/%.h
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(BUILD)/fs/%.o: fs/%.c $(BUILD)/flags $(PUBLIC)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) -Ifs -I$(BUILD)/include $(FS_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The names of this system's calls by number, for the log.
$(BUILD)/fs/syscall_names.c: $(BUILD)/flags
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q)(echo '#include <stddef.h>'; echo '#include <sys/syscall.h>'; \
		echo 'extern const char *const syscall_names[];'; echo 'extern const size_t n_syscall_names;'; \
		echo 'const char *const syscall_names[] = {'; echo '#include <sys/syscall.h>' | $(CC) -E -dM -x c - | \
		sed -n 's/^\#define SYS_\([a-z0-9_]*\) .*/[SYS_\1] = "\1",/p'; echo '};'; \
		echo 'const size_t n_syscall_names = sizeof(syscall_names) / sizeof(syscall_names[0]);') > $@

$(BUILD)/fs/syscall_names.o: $(BUILD)/fs/syscall_names.c
	$(say) CC $<
	$(Q)$(CC) $(BASE) -I$(BUILD)/include $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# carton.h and log.h declare default visibility; all other symbols are protected and made local here.
$(LIB): $(CORE_OBJ)
$(BUILD)/libcarton.a $(BUILD)/tests/libcarton.a: %.a:
	$(say) AR $@
	@mkdir -p $(@D)
	$(Q)$(LD) -r -o $*.o $^
	$(Q)readelf -sW $*.o | awk '$$6 == "PROTECTED" { print $$8 }' > $*.internal
	$(Q)objcopy --localize-symbols=$*.internal $*.o
	$(Q)rm -f $@ && $(AR) rcs $@ $*.o

$(SO): $(LIB) core/libcarton.map
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=core/libcarton.map \
		-Wl,-z,relro,-z,now -o $@ $(BUILD)/libcarton.o $(CORE_LIBS)
	$(Q)ln -sf $(SONAME) $(BUILD)/libcarton.so

$(FS_LIB): $(FS_LIB_OBJ)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/cartonfs: $(CARTONFS_OBJ) $(FS_LIB) $(LIB)
$(BUILD)/cartonctl: $(CARTONCTL_OBJ) $(FS_LIB) $(LIB)
%/cartonfs: PROGRAM_LIBS = $(FS_LIBS)
%/cartonctl: PROGRAM_LIBS = $(CTL_LIBS)
$(BUILD)/cartonfs $(BUILD)/cartonctl $(TESTED):
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -pie -Wl,-z,relro,-z,now -o $@ $^ $(PROGRAM_LIBS) $(CORE_LIBS)

# ---- tests ----

# What tests run has other pauses and deadlines, and is the same otherwise: see core/base/pace.h.
TEST_OBJ := $(CORE_OBJ:$(BUILD)/core/base/pace.o=$(BUILD)/tests/lib/pace.o)
$(BUILD)/tests/libcarton.a: $(TEST_OBJ)
$(BUILD)/tests/cartonfs: $(CARTONFS_OBJ) $(FS_LIB) $(BUILD)/tests/libcarton.a
$(BUILD)/tests/cartonctl: $(CARTONCTL_OBJ) $(FS_LIB) $(BUILD)/tests/libcarton.a

# Unit tests call internal functions, which libcarton.a hides. They link a shared library of the same
# objects instead: after an edit of core/ it alone is linked again.
CORE_SO := $(BUILD)/tests/libcore.so
TEST_CFLAGS = $(call once,TEST_CFLAGS,pkg-config --cflags cmocka)
TEST_LIBS = -L$(BUILD)/tests -lcore $(CORE_LIBS)
CMOCKA = $(call once,CMOCKA,pkg-config --libs cmocka)

$(CORE_SO): $(TEST_OBJ)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^ $(CORE_LIBS)

# The unit tests compile in a fifth of the time without optimization; the code under test keeps it.
$(BUILD)/tests/unit/%.o: UNIT_FLAGS := -O0 -U_FORTIFY_SOURCE
$(BUILD)/tests/%.o: tests/%.c $(BUILD)/flags
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(CORE_BASE) -Ifs $(CORE_CFLAGS) $(TEST_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(UNIT_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/unit/test_%: $(BUILD)/tests/unit/test_%.o | $(CORE_SO)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN/..' $(TEST_LIBS) $(CMOCKA)

$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o | $(CORE_SO)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -o $@ $< -Wl,-rpath,'$$ORIGIN/..' $(TEST_LIBS)

.SECONDARY: $(UNIT:%=%.o) $(TOOLS:%=%.o)

# tools that use nothing of core/: a file system with libfuse, a model of a link
$(BUILD)/tests/tools/faulty-disk.o: TEST_CFLAGS = $(FS_CFLAGS)
$(BUILD)/tests/tools/relay: TEST_LIBS =
$(BUILD)/tests/unit/test_decode_zlib: TEST_LIBS += $(shell pkg-config --libs zlib)
$(BUILD)/tests/tools/faulty-disk: TEST_LIBS = $(FS_LIBS)

# The program with faults that the sanitizers of its build have to find.
FAULTY := $(if $(findstring -fsanitize,$(VARIANT)),$(BUILD)/tests/faulty-cartonfs)
$(BUILD)/tests/tools/linked/faults.o: TEST_CFLAGS = $(FS_CFLAGS)
$(BUILD)/tests/faulty-cartonfs: $(BUILD)/tests/tools/linked/faults.o $(CARTONFS_OBJ) $(FS_LIB) $(LIB)
	$(say) LINK $@
	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -pie -Wl,--wrap=fuse_reply_statfs -o $@ $^ $(FS_LIBS) $(CORE_LIBS)

# Says it before anything is compiled: else each unit test would complain.
have-cmocka:
	@:$(if $(shell pkg-config --exists cmocka 2>/dev/null && echo yes),,$(error cmocka is not installed: run make test-deps))
$(UNIT:%=%.o): | have-cmocka

tested: $(TESTED)

tests: have-cmocka all tested $(UNIT) $(TOOLS) $(FAULTY)
	$(Q)rm -f $(filter-out $(UNIT) %.d %.o,$(wildcard $(BUILD)/tests/unit/test_*)) # whose source is gone

check: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) SMOKE=1 tests fuzzers
	@tests/run $(BUILD) lint fuzz differential unit mount

# What is long by its nature, under an hour in all. ONLY='soak fuzz': these parts.
check-long: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) tests fuzzers
	@tests/long $(BUILD) $(ONLY)

# Where the time of make check goes, as in the table of tests/README.md, which TEST_TIMES has for each test.
test-times: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) SMOKE=1 tests fuzzers
	@rm -f $(BUILD)/test-times
	@TEST_TIMES=$(abspath $(BUILD))/test-times tests/run $(BUILD) lint fuzz differential unit mount; status=$$?; \
		tests/times $(BUILD)/test-times; exit $$status

# Unit and mount tests under the address and undefined behaviour sanitizers, and under the thread
# sanitizer, each in its own build directory.
SANITIZE := CFLAGS='-O1 -g -fno-omit-frame-pointer'
# As shared libraries, both runtimes export the function that sets the file of reports, and that of ASan, which comes
# first, is called twice: UBSan's stays at stderr, and a daemon has none. So UBSan's is linked in, with its names hidden.
SANITIZE_ADDRESS := VARIANT='-fsanitize=address,undefined -fno-sanitize-recover=all' \
	LDFLAGS='-static-libubsan -Wl,--exclude-libs,libubsan.a'
# What was freed is kept for a while, to find uses of it: less than the memory that tests let a process gain.
asan:
	@$(MAKE) --no-print-directory $(ALL_CORES) BUILD=build-asan $(SANITIZE) $(SANITIZE_ADDRESS) tests
	@TEST_SLOWDOWN=4 ASAN_OPTIONS=detect_leaks=1:quarantine_size_mb=8:print_suppressions=0 tests/run build-asan

tsan:
	@$(MAKE) --no-print-directory $(ALL_CORES) BUILD=build-tsan $(SANITIZE) VARIANT=-fsanitize=thread tests
	@TEST_SLOWDOWN=8 TSAN_OPTIONS='halt_on_error=1 suppressions=$(CURDIR)/tests/tsan.supp' tests/run build-tsan

# The unit tests; errors and definite leaks fail. Not those that need openat2 or start themselves again:
# valgrind 3.19 has no such system call, and is not itself what is started.
VALGRIND := valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
	--errors-for-leak-kinds=definite
valgrind: test-deps
	@tests/deps valgrind
	@$(MAKE) --no-print-directory $(ALL_CORES) tests
	@TEST_UNDER='$(VALGRIND)' TEST_WITHOUT='test_dir|test_carton|test_http_access|test_http_wait|test_object_disk' TEST_SLOWDOWN=4 \
		tests/run $(BUILD) unit

# Programs that run models, on a mount. What is not packaged here is named and left out.
check-runners: test-deps
	@tests/deps runners
	@$(MAKE) --no-print-directory $(ALL_CORES) tested
	@BUILD_DIR=$(BUILD) PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider \
		tests/fs/check_runners.py

# Programs that others have written, from npm's registry; they need node. The hub's own client on the hub of the
# tests, and Sigstore's own library on signatures that cartonctl writes.
check-hub: PACKAGE := @huggingface/hub@2.17
check-hub: CHECK := tests/net/check_hub_client.py
check-sign: PACKAGE := @sigstore/bundle@4.0
check-sign: CHECK := tests/ctl/check_sign_bundle.py
check-hub check-sign: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) tested
	@mkdir -p $(BUILD)/$@
	@npm install --silent --no-save --ignore-scripts --prefix $(BUILD)/$@ $(PACKAGE)
	@NPM_CLIENT=$(abspath $(BUILD))/$@ BUILD_DIR=$(BUILD) PYTHONDONTWRITEBYTECODE=1 \
		/usr/bin/python3 -m pytest -q -p no:cacheprovider $(CHECK)

# A million random comparisons of sha256 with OpenSSL's, as it is built and under the sanitizers.
check-sha256: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) $(BUILD)/tests/unit/test_sha256
	@$(MAKE) --no-print-directory $(ALL_CORES) BUILD=build-asan $(SANITIZE) $(SANITIZE_ADDRESS) build-asan/tests/unit/test_sha256
	@SHA256_COMPARISONS=1000000 $(BUILD)/tests/unit/test_sha256
	@SHA256_COMPARISONS=1000000 build-asan/tests/unit/test_sha256
	@echo '2 passed, 0 failed'

# The lanes of aarch64, by a cross compiler and qemu: there is no OpenSSL to compare with, but a plain function.
ARM64_CC ?= aarch64-linux-gnu-gcc
ARM64_RUN ?= qemu-aarch64
check-arm64-sha256:
	@tests/deps arm64
	@mkdir -p $(BUILD)/arm64
	$(Q)$(ARM64_CC) -std=gnu17 -D_GNU_SOURCE $(WARNINGS) -Icore -O2 -static -o $(BUILD)/arm64/sha256-lanes tests/tools/sha256-lanes.c core/base/sha256_arm.c
	@$(ARM64_RUN) $(BUILD)/arm64/sha256-lanes | grep -x 'SHA2 of ARMv8'

# Takes out each check that guards a byte or a secret: a test must fail. ONLY='zip-* whole-hash' tries these.
# SOAK=1: the soak must see it instead, where the tables name a kind of that.
mutants: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) tests
	@tests/mutants/run $(if $(SOAK),--soak) $(BUILD) $(foreach name,$(ONLY),'$(name)')

# Readers, and whoever writes to files, serves, forges or kills, for a while, in all kinds of tests/soak or ONLY
# some; with BUILD=build-tsan under the thread sanitizer.
SOAK_SECONDS ?= 600
SOAK_TSAN := $(filter build-tsan,$(BUILD))
# 16 mounts, caches between them, an object store; as root, on this machine. FLEET: what to measure.
fleet: all
	@tests/deps fleet
	tests/fleet/run $(BUILD) $(FLEET)

# The image of .container/, built without a registry, and run as the manifests say.
image: all test-deps
	@tests/deps image
	@BUILD_DIR=$(BUILD) tests/image

soak: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) $(if $(SOAK_TSAN),$(SANITIZE) VARIANT=-fsanitize=thread) tested
	@$(if $(SOAK_TSAN),TEST_SLOWDOWN=8 TSAN_OPTIONS='halt_on_error=1 suppressions=$(CURDIR)/tests/tsan.supp') \
		tests/soak/run $(BUILD) $(SOAK_SECONDS) $(addprefix --only ,$(ONLY))

# Tests of files over 2 GiB.
slow: test-deps
	@$(MAKE) --no-print-directory $(ALL_CORES) tests
	@TEST_SLOW=1 tests/run $(BUILD) mount -m slow

# Each target runs for FUZZ_SECONDS or FUZZ_RUNS inputs, starting from its seeds and from what earlier runs have
# left in FUZZ_FOUND. Needs clang.
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?= -1
# SMOKE=1: the fuzzers of make check, which run a thousand inputs. They compile in a third of the time, and run slower.
FUZZERS := $(if $(SMOKE),$(BUILD)/fuzz,build-fuzz)
FUZZ_FOUND ?= $(FUZZERS)/found
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(FUZZERS)/fuzz_%)
FUZZ_FLAGS := $(if $(SMOKE),-O0,-O1) -gline-tables-only -U_FORTIFY_SOURCE -Wno-missing-field-initializers -fsanitize=address,undefined -fno-sanitize-recover=all

FUZZ_CORE := $(CORE_SRC:%.c=$(FUZZERS)/%.o)
FUZZ_FS := $(patsubst %.c,$(FUZZERS)/%.o,$(filter-out %/main.c,$(CARTONFS_SRC)) $(FS_LIB_SRC))
FUZZ_PUBLIC := $(PUBLIC:$(BUILD)/%=$(FUZZERS)/%)
# Functions that a target replaces: what they would do to the system, it checks.
$(FUZZERS)/fuzz_mounter: WRAP := poll open64 ioctl syslog setsid place_mount unmount_device fuse_session_fd

$(FUZZERS)/core/%.o: core/%.c
	$(say) FUZZ $<
	@mkdir -p $(@D)
	$(Q)clang $(BASE) $(CORE_CFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -Icore -MMD -MP -c -o $@ $<

$(FUZZ_PUBLIC): $(FUZZERS)/include/%.h: core/%.h
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(FUZZERS)/fs/%.o: fs/%.c $(FUZZ_PUBLIC)
	$(say) FUZZ $<
	@mkdir -p $(@D)
	$(Q)clang $(BASE) $(FS_CFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -Ifs -I$(FUZZERS)/include -MMD -MP -c -o $@ $<

# Of an archive, a target links only what it calls.
$(FUZZERS)/core.a: $(FUZZ_CORE)
$(FUZZERS)/fs.a: $(FUZZ_FS)
$(FUZZERS)/%.a:
	$(Q)rm -f $@ && $(AR) rcsT $@ $^

$(FUZZERS)/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZERS)/fs.a $(FUZZERS)/core.a
	$(say) FUZZ $@
	$(Q)clang $(BASE) -Icore -Ifs $(CORE_CFLAGS) $(FS_CFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer -fuse-ld=lld -MMD -MP -MF $@.d \
		$(WRAP:%=-Wl,--wrap=%) -o $@ $(filter %.c %.a,$^) $(FS_LIBS) $(CORE_LIBS)

.SECONDARY: $(FUZZ_CORE) $(FUZZ_FS)

fuzzers: $(FUZZ)

# What a run finds stays in $(FUZZERS); the corpus in tests/fuzz has only the seeds.
fuzz-%: $(FUZZERS)/fuzz_%
	$(Q)mkdir -p $(FUZZERS)/found $(FUZZ_FOUND)/$*
	$(Q)$< -max_total_time=$(FUZZ_SECONDS) -runs=$(FUZZ_RUNS) -timeout=10 -rss_limit_mb=4096 -max_len=65536 \
		-verbosity=0 -print_final_stats=1 -artifact_prefix=$(FUZZERS)/found/ $(FUZZ_FOUND)/$* \
		tests/fuzz/corpus/$* > $(FUZZERS)/log.$* 2>&1 || \
		{ tail -n 60 $(FUZZERS)/log.$*; echo "fuzz $*: FAILED"; exit 1; }
	$(Q)echo "fuzz $*: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(FUZZERS)/log.$*) runs, nothing found"

fuzz: $(FUZZ_SRC:tests/fuzz/fuzz_%.c=fuzz-%)

# Random archives for our reader of zips and for others: none may see other content (see --help).
DIFFERENTIAL_RUNS ?= 30000
differential: $(BUILD)/tests/tools/zip-read
	/usr/bin/python3 tests/fuzz/differential.py $(BUILD) --runs $(DIFFERENTIAL_RUNS)

STYLED := $(wildcard core/*.[ch] core/*/*.[ch] fs/*/*.[ch] tests/*.[ch] tests/*/*.[ch] tests/tools/*/*.[ch])
lint:
	@tests/lint $(STYLED)

format:
	clang-format-14 -i $(STYLED)

# ONLY='stored zstd' measures these; what README.md says of the speed is from bench-readme.
bench: all $(BUILD)/tests/tools/relay $(BUILD)/tests/tools/sha256-rate
	tests/bench/run $(addprefix --only ,$(ONLY)) --json $(BUILD)/bench.json $(BUILD)
	tests/bench/table.py $(BUILD)/bench.json
	tests/bench/chart $(BUILD)/bench.json $(BUILD)/bench.svg

bench-readme: all
	tests/bench/run --readme --json .github/bench.json $(BUILD)
	tests/bench/table.py .github/bench.json README.md
	tests/bench/chart .github/bench.json .github/bench.svg sizes

bench-deps: deps
	@tests/deps bench

# ---- users ----

MAN := $(wildcard fs/*/*.[1-8] core/*.[1-8])

# Builds with one line that counts in place of one for each file; all else that is said is shown.
COUNTED = @{ $(MAKE) --no-print-directory $(ALL_CORES) all 2>&1; echo "status $$?"; } | \
	awk -v show="$$(test -t 2 && echo yes)" \
	'/^  (CC|AR|LINK|GEN) / { n++; if (show) printf "\rbuilding: %d files", n; fflush(); next } \
	/^status [0-9]+$$/ { status = $$2; next } { print n ? "\n" $$0 : $$0; n = 0 } END { if (n) print show ? "" : "building: " n " files"; exit status }'

demo: deps
	$(COUNTED)
	@tests/demo $(BUILD)

demo-remote: demo-remote-deps
	$(COUNTED)
	@tests/demo-remote $(BUILD)

man: $(MAN)
	mandoc -T lint -W warning $^

# What is installed, each as MODE:FILE:DESTINATION. @PREFIX@ and the like are replaced in units and carton.pc.
# installed = $(call installed,MODE,FILES,DIRECTORY)
installed = $(foreach file,$(2),$(1):$(file):$(3)/$(notdir $(file)))
INSTALLED = $(call installed,755,$(BUILD)/cartonfs $(BUILD)/cartonctl,$(BINDIR)) \
	$(foreach page,$(MAN),644:$(page):$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page))) \
	$(call installed,644,core/carton.h core/log.h,$(INCLUDEDIR)/carton) \
	644:core/carton.pc.in:$(LIBDIR)/pkgconfig/carton.pc \
	$(call installed,644,$(LIB),$(LIBDIR)) 644:$(SO):$(LIBDIR)/$(SO_FILE) \
	$(call installed,644,$(wildcard systemd/*.service systemd/*.timer),$(UNITDIR)) \
	$(call installed,644,$(wildcard systemd/user/*),$(USERUNITDIR)) \
	644:fs/completions/cartonfs.bash:$(BASHDIR)/cartonfs \
	$(call installed,644,$(wildcard fs/completions/*.fish),$(FISHDIR)) \
	644:fs/completions/_cartonfs:$(ZSHDIR)/_cartonfs \
	644:systemd/tmpfiles.conf:$(TMPFILESDIR)/cartonfs.conf \
	644:systemd/sysusers.conf:$(SYSUSERSDIR)/cartonfs.conf \
	$(call installed,644,$(wildcard systemd/examples/*),$(DOCDIR)/examples) \
	$(if $(PYTHONDIR),$(call installed,644,core/carton.py core/carton_fsspec.py,$(PYTHONDIR)) \
	644:.packaging/python/METADATA.in:$(PYTHONDIST)/METADATA \
	644:.packaging/python/entry_points.txt:$(PYTHONDIST)/entry_points.txt)
LINKED = $(BINDIR)/cartonfs:$(MOUNTDIR)/mount.cartonfs ../man1/cartonfs.1:$(MANDIR)/man8/mount.cartonfs.8 \
	cartonfs:$(BASHDIR)/cartonctl \
	$(SO_FILE):$(LIBDIR)/$(SONAME) $(SONAME):$(LIBDIR)/libcarton.so
PYTHONDIST = $(PYTHONDIR)/cartonfs-$(VERSION).dist-info
VALUES = PREFIX BINDIR LIBDIR INCLUDEDIR VERSION CORE_PKGS

install: all
	@set -e; set -f; for f in $(INSTALLED); do \
		IFS=:; set -- $$f; to='$(DESTDIR)'$$3; echo "install $$to"; \
		install -D -m "$$1" "$$2" "$$to"; \
		case $$2 in *.service | *.in) sed $(foreach v,$(VALUES),-e 's|@$(v)@|$($(v))|g') "$$2" > "$$to" ;; esac; \
	done; \
	for f in $(LINKED); do \
		IFS=:; set -- $$f; to='$(DESTDIR)'$$2; echo "link $$to"; \
		[ -d "$${to%/*}" ] || mkdir -p "$${to%/*}"; ln -sf "$$1" "$$to"; \
	done
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall:
	@set -e; set -f; for f in $(INSTALLED) $(LINKED); do \
		to='$(DESTDIR)'$${f##*:}; \
		case $$to in */mount.cartonfs) [ "$$(readlink "$$to")" = '$(BINDIR)/cartonfs' ] || continue ;; esac; \
		echo "remove $$to"; rm -f "$$to"; \
	done
	@[ -z '$(PYTHONDIR)' ] || rm -f '$(DESTDIR)$(PYTHONDIR)'/__pycache__/carton.*.pyc \
		'$(DESTDIR)$(PYTHONDIR)'/__pycache__/carton_fsspec.*.pyc
	@rmdir '$(DESTDIR)$(PYTHONDIST)' '$(DESTDIR)$(PYTHONDIR)/__pycache__' 2>/dev/null || :
	@rmdir '$(DESTDIR)$(INCLUDEDIR)/carton' '$(DESTDIR)$(DOCDIR)/examples' '$(DESTDIR)$(DOCDIR)' 2>/dev/null || :

# ---- packages ----

# The files of the last commit. The same commit gives the same bytes.
DIST := cartonfs-$(VERSION)
dist:
	@mkdir -p $(BUILD)
	$(Q)git -c tar.umask=0022 archive --format=tar --prefix=$(DIST)/ HEAD | gzip -9n > $(BUILD)/$(DIST).tar.gz
	@echo '$(BUILD)/$(DIST).tar.gz'

# Debian packages, in $(BUILD)/deb. Of an unpacked $(DIST): cp -r .packaging/debian .; dpkg-buildpackage -b
deb: deb-deps dist
	$(Q)rm -rf $(BUILD)/deb && mkdir -p $(BUILD)/deb && tar -xf $(BUILD)/$(DIST).tar.gz -C $(BUILD)/deb
	$(Q)cp -r .packaging/debian $(BUILD)/deb/$(DIST)
	$(Q)cd $(BUILD)/deb/$(DIST) && env -u MAKEFLAGS -u MAKELEVEL -u MAKEOVERRIDES dpkg-buildpackage -us -uc -b
	$(Q)cd $(BUILD)/deb && lintian --profile debian --fail-on error --allow-root *.changes
	@ls $(BUILD)/deb/*.deb

rpm: rpm-deps dist
	$(Q)rm -rf $(BUILD)/rpm
	$(Q)env -u MAKEFLAGS -u MAKELEVEL -u MAKEOVERRIDES \
		rpmbuild -tb $(if $(shell command -v dnf),,--nodeps) --define '_topdir $(abspath $(BUILD))/rpm' $(BUILD)/$(DIST).tar.gz
	@ls $(BUILD)/rpm/RPMS/*/*.rpm

# In a new RELEASE: make deb, install, mount, unmount, purge.
chroot-deb:
	tests/chroot $(RELEASE) tests/packages

deps:
	@tests/deps build

test-deps:
	@tests/deps build test

demo-remote-deps:
	@tests/deps build remote

deb-deps rpm-deps: %-deps:
	@tests/deps build $*

# Both commands of README.md on a fresh system: bookworm, trixie or noble.
RELEASE ?= bookworm
chroot:
	tests/chroot $(RELEASE)

# The units, in a system with systemd as its first process: trixie, or RELEASE. VM_TESTS: words of their names.
VM_RELEASE := $(if $(filter command line environment,$(origin RELEASE)),$(RELEASE),trixie)
vm:
	tests/vm/run $(VM_RELEASE) $(VM_TESTS)

clean:
	rm -rf build build-asan build-tsan build-fuzz

help:
	@echo 'make                build the programs, in build/ (V=1 shows commands)'
	@echo 'make demo           install what is missing, build, show a mount'
	@echo 'make demo-remote    the same over http, from a local nginx'
	@echo 'make check          install what is missing, build, run all tests'
	@echo 'make check-long     what is long: soak, tamperings, 4 GiB, fuzzing; an hour'
	@echo 'make test-times     run all tests, and say where their time goes'
	@echo 'make asan tsan      the tests under sanitizers'
	@echo 'make valgrind       the unit tests in valgrind'
	@echo 'make check-runners  numpy, torch, nginx, podman and others read a mount'
	@echo "make check-hub      the hub's own client, from npm, on the hub of the tests"
	@echo 'make check-sha256   a million comparisons of sha256; check-arm64-sha256: in qemu'
	@echo "make check-sign     Sigstore's own library, from npm, on signatures of cartonctl"
	@echo "make mutants        take out checks: tests must fail (ONLY='zip-*', SOAK=1)"
	@echo 'make slow           tests of files over 2 GiB'
	@echo 'make soak           readers, attackers, kills (SOAK_SECONDS=600, ONLY=, BUILD=)'
	@echo 'make fleet          measure many nodes, caches and an object store (root)'
	@echo 'make image          build the container image and run it (root)'
	@echo 'make fuzz           fuzz the parsers (FUZZ_SECONDS=60 each)'
	@echo 'make differential   compare the zip reader with others (DIFFERENTIAL_RUNS=30000)'
	@echo 'make bench          measure, against other tools (ONLY=extract: one section)'
	@echo 'make bench-readme   measure what README.md says of the speed anew'
	@echo 'make lint           check the style; make format sets it'
	@echo 'make man            check the man pages'
	@echo 'make install        PREFIX=/usr/local, DESTDIR=, MOUNTDIR=, PYTHONDIR='
	@echo 'make uninstall      the reverse, with the same variables'
	@echo 'make dist           a tarball of the last commit, in build/'
	@echo 'make deb rpm        packages of the last commit, in build/deb and build/rpm'
	@echo 'make deps           install what building needs; make test-deps: what tests need'
	@echo 'make chroot         demo and check in a new system (root, RELEASE=bookworm)'
	@echo 'make chroot-deb     build, install, try and purge the packages there'
	@echo 'make vm             boot a system, test the units there (root, RELEASE=trixie)'
	@echo 'make clean          remove what was built'

-include $(CORE_OBJ:.o=.d) $(BUILD)/tests/lib/pace.d $(CARTONFS_OBJ:.o=.d) $(CARTONCTL_OBJ:.o=.d) $(FS_LIB_OBJ:.o=.d) $(UNIT:%=%.d) $(TOOLS:%=%.d)
-include $(wildcard $(FUZZERS)/*.d $(FUZZERS)/fs/*/*.d $(FUZZERS)/core/*.d $(FUZZERS)/core/*/*.d)
