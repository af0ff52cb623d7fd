# SPDX-License-Identifier: Apache-2.0
#
# Completion for bash 4.4 and later: cartonfs, mount.cartonfs, cartonctl. The programs list their own commands and
# options: see --x-words in cartonfs(1) and cartonctl(1).

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

# _cartonfs_list PATTERN BEFORE PROGRAM [COMMAND]: what PROGRAM lists and matches, with BEFORE before it. A value that
# the user chooses is left out.
_cartonfs_list()
{
	local pattern=$1 before=$2 list=() name
	shift 2
	while IFS= read -r name; do
		# shellcheck disable=SC2053 # it is a pattern
		[[ $name = $pattern ]] && list+=("$before$name")
	done < <("$1" --x-words "${@:2}" 2>/dev/null | sed -e 's/\t.*//' -e 's/\[.*//' -e 's/=[A-Z].*/=/')
	_cartonfs_reply "${list[@]}"
}

# Files called *.carton or *.safetensors, and directories; all files if there are none of these.
_cartonfs_sources()
{
	local name
	compopt -o filenames 2>/dev/null
	while IFS= read -r name; do
		[[ -d $name || $name = *.carton || $name = *.safetensors ]] && COMPREPLY+=("$name")
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

_cartonfs()
{
	local cur=${COMP_WORDS[COMP_CWORD]} i n=0 word before=""
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
		word=${COMP_LINE:0:COMP_POINT}
		word=${word##*[[:space:]]}
		[[ $word = *,* ]] && before=${word%,*},
		_cartonfs_list '[^-]*' "$before" cartonfs
	elif [[ $cur = -* ]]; then
		_cartonfs_reply -o
		_cartonfs_list '-*' '' cartonfs
	elif ((n == 0)); then
		_cartonfs_sources
	elif ((n == 1)); then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
	fi
}

_cartonctl()
{
	local cur=${COMP_WORDS[COMP_CWORD]} i words=()
	COMPREPLY=()
	[[ $cur = '=' ]] && cur=
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-* | =) ;;
		*) [[ ${COMP_WORDS[i - 1]} = '=' ]] || words+=("${COMP_WORDS[i]}") ;;
		esac
	done
	if [[ ${COMP_LINE:0:COMP_POINT} =~ [[:space:]]-[^[:space:]]*$ ]]; then
		_cartonfs_list '-*' '' cartonctl "${words[@]:0:1}"
		if [[ ${#COMPREPLY[@]} -eq 0 && ${BASH_REMATCH[0]} = *=* ]]; then
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		fi
		return
	fi
	case "${#words[@]} ${words[0]}" in
	'0 ') _cartonfs_list '[^-]*' '' cartonctl ;;
	'1 help') _cartonfs_list '[^-]*' '' cartonctl ;;
	'1 cache') _cartonfs_list '[^-]*' '' cartonctl cache ;;
	*' cache' | *' help' | *' version') ;;
	'1 status' | '1 stop' | '1 refresh') _cartonfs_mountpoints ;;
	'1 '* | '2 diff' | *' verify') _cartonfs_sources ;;
	'2 extract')
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	*' ls' | *' tree' | *' cat' | *' fetch' | *' extract') _cartonfs_paths "${words[1]/#\~\//$HOME/}" ;;
	esac
}

complete -F _cartonfs cartonfs mount.cartonfs
complete -F _cartonctl cartonctl
