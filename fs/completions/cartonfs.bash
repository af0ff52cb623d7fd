# SPDX-License-Identifier: Apache-2.0
#
# Completion for bash 4.4 and later: cartonfs, mount.cartonfs, cartonctl. Commands and options of cartonctl
# are those of its --help.

# _cartonfs_reply CANDIDATE...: those that the word begins with. bash splits words at = and :, but replaces
# only the last part.
_cartonfs_reply()
{
	local word=${COMP_LINE:0:COMP_POINT} part=$cur candidate
	word=${word##*[[:space:]]}
	for candidate; do
		[[ $candidate = "$word"* ]] && COMPREPLY+=("${candidate:$((${#word} - ${#part}))}")
	done
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} = *[=/] ]] && compopt -o nospace 2>/dev/null
}

# Files called *.carton and directories; all files if there are none of these.
_cartonfs_sources()
{
	local name
	compopt -o filenames 2>/dev/null
	while IFS= read -r name; do
		[[ -d $name || $name = *.carton ]] && COMPREPLY+=("$name")
	done < <(compgen -f -- "$cur")
	[[ ${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

# _cartonfs_paths SOURCE: paths in a local carton, up to the next slash
_cartonfs_paths()
{
	local path rest
	local -A seen=()
	[[ $1 != *://* ]] || return 0
	compopt -o filenames 2>/dev/null
	while IFS= read -r -d '' path; do
		[[ $path = "$cur"* ]] || continue
		rest=${path:${#cur}}
		[[ $rest = */* ]] && path=$cur${rest%%/*}/
		seen[$path]=1
	done < <(timeout --foreground 5 cartonctl ls -0 --offline "$1" 2>/dev/null)
	COMPREPLY=("${!seen[@]}")
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} = */ ]] && compopt -o nospace 2>/dev/null
}

_cartonfs_mountpoints()
{
	local where kind
	compopt -o filenames 2>/dev/null
	while read -r _ where kind _; do
		where=$(printf %b "${where//\\/\\0}")
		[[ $kind = fuse.cartonfs && $where = "$cur"* ]] && COMPREPLY+=("$where")
	done </proc/self/mounts
}

_cartonfs_mount_options()
{
	local word=${COMP_LINE:0:COMP_POINT} before="" list=() name
	word=${word##*[[:space:]]}
	[[ $word = *,* ]] && before=${word%,*},
	for name in verify=auto verify=open verify=mount verify=background verify=off manifest_sha256= cache_dir= cache_size= memory= offline \
		connections= timeout= max_size= private_links cacert= header_file= noviews views= views=hidden uid= gid= \
		umask= seals=off mirror= allow_other auto_unmount fsname= max_read= error_file= mkdir passthrough nosandbox noexec noatime; do
		list+=("$before$name")
	done
	_cartonfs_reply "${list[@]}"
}

_cartonfs()
{
	local cur=${COMP_WORDS[COMP_CWORD]} i n=0
	COMPREPLY=()
	[[ $cur = '=' ]] && cur=
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-o) ((i += 1)); while [[ ${COMP_WORDS[i + 1]} = '=' ]]; do ((i += 2)); done ;;
		-*) ;;
		*) ((n += 1)) ;;
		esac
	done
	if ((i > COMP_CWORD)); then
		_cartonfs_mount_options
	elif [[ $cur = -* ]]; then
		_cartonfs_reply -f -d -o -h --help -V --version
	elif ((n == 0)); then
		_cartonfs_sources
	elif ((n == 1)); then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
	fi
}

_cartonctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} help i words=()
	COMPREPLY=()
	[[ $cur = '=' ]] && cur=
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-* | =) ;;
		*) [[ ${COMP_WORDS[i - 1]} = '=' ]] || words+=("${COMP_WORDS[i]}") ;;
		esac
	done
	help=$(cartonctl --help 2>/dev/null)
	[[ ${words[0]} = @(pack|repack|link|embed) ]] && help+=$(cartonctl pack --help 2>/dev/null)
	if [[ ${COMP_LINE:0:COMP_POINT} =~ [[:space:]]-[^[:space:]]*$ ]]; then
		if [[ ${BASH_REMATCH[0]} = *=* ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
		fi
		mapfile -t words < <(grep -o -E -e '--[a-z0-9-]+=?' <<<"$help" | sort -u)
		_cartonfs_reply "${words[@]}"
		return
	fi
	case "${#words[@]} ${words[0]}" in
	'0 ')
		mapfile -t words < <(sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' <<<"$help" | sort -u)
		_cartonfs_reply "${words[@]}" ;;
	'1 cache')
		mapfile -t words < <(sed -n 's/^  cache \(.*[^ ]\)   .*/\1/p' <<<"$help" | tr '|' '\n' | awk '{ print $1 }')
		_cartonfs_reply "${words[@]}" ;;
	*' cache') ;;
	'1 status' | '1 stop' | '1 refresh') _cartonfs_mountpoints ;;
	'1 '* | '2 diff') _cartonfs_sources ;;
	'2 extract')
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	*' ls' | *' tree' | *' cat' | *' fetch' | *' extract') _cartonfs_paths "${words[1]/#\~\//$HOME/}" ;;
	esac
}

complete -F _cartonfs cartonfs mount.cartonfs
complete -F _cartonctl cartonctl
