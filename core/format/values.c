/* SPDX-License-Identifier: Apache-2.0 */
#include "format/values.h"

#include <stdlib.h>

#include "base/util.h"

#define DIGITS "0123456789"
#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define MAX_COMPARATORS 32 /* of one version requirement */

/* ---- version requirements ---- */

static void skip_spaces(const char **p)
{
	*p += strspn(*p, " ");
}

static bool wildcard(const char **p)
{
	bool found = **p == '*' || **p == 'x' || **p == 'X';

	*p += found;
	return found;
}

/* A decimal number of at most 64 bits without leading zeros. */
static bool version_number(const char **p)
{
	size_t n = strspn(*p, DIGITS);

	errno = 0;
	if (n == 0 || (**p == '0' && n > 1) || (strtoull(*p, NULL, 10), errno))
		return false;
	*p += n;
	return true;
}

/* Identifiers with dots between, after '-' or '+'. Those of a pre-release have no leading zeros. */
static bool identifiers(const char **p, bool pre)
{
	do {
		const char *s = ++*p;
		size_t n = strspn(s, DIGITS LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ-");

		if (n == 0 || (pre && n > 1 && *s == '0' && strspn(s, DIGITS) >= n))
			return false;
		*p += n;
	} while (**p == '.');
	return true;
}

/* [OP]MAJOR[.MINOR[.PATCH[-PRE][+BUILD]]]; a wildcard may stand for minor and patch. */
static bool comparator(const char **p)
{
	bool any = false;

	if (**p == '<' || **p == '>')
		*p += (*p)[1] == '=' ? 2 : 1;
	else if (**p == '=' || **p == '~' || **p == '^')
		++*p;
	skip_spaces(p);
	if (!version_number(p))
		return false;
	for (int part = 0; part < 2; part++) {
		if (**p != '.')
			return true;
		++*p;
		if (wildcard(p))
			any = true;
		else if (any || !version_number(p))
			return false;
	}
	if (!any && **p == '-' && !identifiers(p, true))
		return false;
	return any || **p != '+' || identifiers(p, false);
}

const char *version_req_fault(const char *text)
{
	static const char bad[] = "is not a version requirement such as \"=1.2.3\"";
	const char *p = text;

	skip_spaces(&p);
	if (wildcard(&p)) {
		skip_spaces(&p);
		return *p ? bad : NULL;
	}
	for (int n = 1;; n++, p++) {
		skip_spaces(&p);
		if (!comparator(&p))
			return bad;
		skip_spaces(&p);
		if (!*p)
			return NULL;
		if (*p != ',' || n == MAX_COMPARATORS)
			return bad;
	}
}

/* ---- target triples ---- */

static const char architectures[] =
	" unknown amdgcn asmjs avr bpfeb bpfel hexagon i386 i586 i686 loongarch64 m68k mips mips64 "
	"mips64el mipsel mipsisa32r6 mipsisa32r6el mipsisa64r6 mipsisa64r6el msp430 nvptx64 "
	"powerpc powerpc64 powerpc64le s390x sparc sparc64 sparcv9 wasm32 wasm64 x86_64 x86_64h "
	"xtensa aarch64 aarch64_be arm64 arm armeb armebv7r armv4 armv4t armv5t armv5te armv5tej "
	"armv6 armv6j armv6k armv6kz armv6m armv6t2 armv6z armv7 armv7a armv7k armv7m armv7r "
	"armv7s armv7ve armv8 armv8.1a armv8.2a armv8.3a armv8.4a armv8.5a armv8a armv8m.base "
	"armv8m.main armv8r thumbeb thumbv4t thumbv5te thumbv6m thumbv7a thumbv7em thumbv7m "
	"thumbv7neon thumbv8m.base thumbv8m.main riscv32 riscv32gc riscv32i riscv32im riscv32ima "
	"riscv32imac riscv32imafc riscv32imc riscv64 riscv64gc riscv64imac ";

static const char systems[] =
	" unknown aix amdhsa bitrig cloudabi cuda dragonfly emscripten espidf freebsd fuchsia haiku"
	" hermit horizon hurd illumos l4re linux nebulet netbsd none openbsd psp redox solaris"
	" solid_asp3 uefi vxworks wasi wasip1 wasip2 windows ";

/* These may have a version appended. */
static const char *const apple_systems[] = { "darwin",	 "ios",	    "macosx", "tvos",
					     "visionos", "watchos", "xros" };

static const char environments[] =
	" unknown amdgiz android androideabi eabi eabihf gnu gnu_ilp32 gnuabi64 gnueabi gnueabihf"
	" gnullvm gnuspe gnux32 kernel macabi msvc musl musleabi musleabihf muslabi64 newlib none"
	" ohos sgx sim softfloat spe threads uclibc uclibceabi uclibceabihf ";

static const char formats[] = " unknown elf coff macho wasm xcoff ";

struct word {
	const char *s;
	size_t n;
};

static bool is_one_of(struct word w, const char *list)
{
	const char *at = list;

	/* a space would be found before the first word */
	if (w.n == 0 || memchr(w.s, ' ', w.n))
		return false;
	while ((at = memmem(at, strlen(at), w.s, w.n))) {
		if (at[-1] == ' ' && at[w.n] == ' ')
			return true;
		at++;
	}
	return false;
}

static bool is_system(struct word w)
{
	for (size_t i = 0; i < ARRAY_SIZE(apple_systems); i++) {
		size_t n = strlen(apple_systems[i]);

		if (w.n >= n && memcmp(w.s, apple_systems[i], n) == 0)
			return strspn(w.s + n, DIGITS ".") >= w.n - n;
	}
	return is_one_of(w, systems);
}

static bool is_vendor(struct word w)
{
	if (w.n == 7 && memcmp(w.s, "unknown", 7) == 0)
		return true;
	return w.n > 0 && strchr(LOWER, *w.s) && strspn(w.s, LOWER DIGITS "_.") >= w.n &&
	       !is_one_of(w, architectures) && !is_system(w) && !is_one_of(w, environments) &&
	       !is_one_of(w, formats);
}

static struct word next_word(const char **p)
{
	struct word w = { *p, strcspn(*p, "-") };

	*p += w.n;
	return w;
}

/* Moves to the next part if this one is `accepted`. */
static void accept(bool accepted, const char **p, struct word *w, bool *ret_done)
{
	if (!accepted || *ret_done)
		return;
	*ret_done = !**p;
	*p += !*ret_done;
	*w = next_word(p);
}

const char *platform_fault(const char *text)
{
	const char *p = text;
	struct word w = next_word(&p);
	bool done = false;

	if (!is_one_of(w, architectures))
		return "does not begin with a known architecture, as x86_64-unknown-linux-gnu does";
	accept(true, &p, &w, &done);
	accept(is_vendor(w), &p, &w, &done);
	accept(is_system(w), &p, &w, &done);
	accept(is_one_of(w, environments), &p, &w, &done);
	accept(is_one_of(w, formats), &p, &w, &done);
	return done ? NULL : "is not a target triple such as x86_64-unknown-linux-gnu";
}
