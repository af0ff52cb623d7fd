# SPDX-License-Identifier: Apache-2.0
#
# Completion for fish. cartonfs lists its own options: see --x-words in cartonfs(1).

# Those of -o; a value that the user chooses is left out.
function __cartonfs_options
    set -l before (string replace -rf '^(.*,).*' '$1' -- (commandline -ct))
    test -n "$before"; or set before ''
    cartonfs --x-words 2>/dev/null | string match -v -- '-*' |
        string replace -r '=[A-Z]+\t' '=\t' | string replace -r '\[.*?\t' '\t' | string replace -r '^' -- "$before"
end

complete -c cartonfs -s o -x -a '(__cartonfs_options)' -d 'mount options'
complete -c cartonfs -n 'string match -q -- "-*" (commandline -ct)' -a '(cartonfs --x-words 2>/dev/null | string match -- "-*")'
