# SPDX-License-Identifier: Apache-2.0
#
# Completion for fish.

function __cartonfs_options
    set -l before (string replace -rf '^(.*,).*' '$1' -- (commandline -ct))
    test -n "$before"; or set before ''
    for name in verify=auto verify=open verify=mount verify=background verify=off manifest_sha256= cache_dir= cache_size= memory= offline \
            connections= timeout= max_size= private_links cacert= header_file= noviews views= views=hidden uid= gid= \
            umask= seals=off mirror= allow_other auto_unmount fsname= max_read= error_file= mkdir passthrough nosandbox noexec noatime
        echo $before$name
    end
end

complete -c cartonfs -s o -x -a '(__cartonfs_options)' -d 'mount options'
complete -c cartonfs -s f -d 'run in the foreground'
complete -c cartonfs -s d -d 'log each request'
complete -c cartonfs -s h -l help -d 'show help'
complete -c cartonfs -s V -l version -d 'show versions'
