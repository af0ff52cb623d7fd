# SPDX-License-Identifier: Apache-2.0
#
# Completion for fish. cartonctl lists its own commands and options: see --x-words in cartonctl(1).

# The words of the line that are no options, without cartonctl itself.
function __cartonctl_words
    string match -v -- '-*' (commandline -opc)[2..-1]
end

# The commands, or the arguments of one.
function __cartonctl_commands
    cartonctl --x-words $argv 2>/dev/null | string match -v -- '-*'
end

# Those of the command, if there is one; a value that the user chooses is left out.
function __cartonctl_options
    cartonctl --x-words (__cartonctl_words)[1] 2>/dev/null | string match -- '-*' |
        string replace -r '=[A-Z]+\t' '=\t' | string replace -r '\[.*?\t' '\t'
end

# Paths in a local carton, up to the next slash.
function __cartonctl_paths
    set -l source (__cartonctl_words)[2]
    set -l current (commandline -ct)
    string match -q '*://*' -- "$source"; and return
    timeout --foreground 5 cartonctl ls -0 --offline $source 2>/dev/null | string split0 |
        string replace -rf -- '^('(string escape --style=regex -- "$current")'[^/]*/?).*' '$1' | sort -u
end

function __cartonctl_mountpoints
    string replace -rf '^\S+ (\S+) fuse\.cartonfs .*' '$1' </proc/self/mounts | string replace -a '\\040' ' '
end

# __cartonctl_at NUMBER COMMAND...: so many words are there, and the first is one of these
function __cartonctl_at
    set -l words (__cartonctl_words)
    test (count $words) -eq $argv[1]; and contains -- "$words[1]" $argv[2..-1]
end

function __cartonctl_in_paths
    set -l words (__cartonctl_words)
    test (count $words) -ge 2; and contains -- "$words[1]" ls tree cat fetch extract
end

complete -c cartonctl -f
complete -c cartonctl -n 'test (count (__cartonctl_words)) -eq 0' -a '(__cartonctl_commands)'
complete -c cartonctl -n 'string match -q -- "-*" (commandline -ct)' -a '(__cartonctl_options)'
complete -c cartonctl -n '__cartonctl_at 1 help' -a '(__cartonctl_commands)'
complete -c cartonctl -n '__cartonctl_at 1 cache' -a '(__cartonctl_commands cache)'
complete -c cartonctl -n '__cartonctl_at 1 status stop refresh' -a '(__cartonctl_mountpoints)'
complete -c cartonctl -n 'set -l w (__cartonctl_words); test (count $w) -eq 1; and not contains -- $w[1] cache help version status stop refresh' -F
complete -c cartonctl -n '__cartonctl_at 2 diff extract verify' -F
complete -c cartonctl -n __cartonctl_in_paths -a '(__cartonctl_paths)'
