/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive, which is loaded when it is first needed: a second reader of zip files (compare.c),
 * and the reader of tar files (tar.c).
 */
#ifndef CARTON_ARCHIVE_LIBARCHIVE_H
#define CARTON_ARCHIVE_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

#define LIBARCHIVE_FUNCTIONS(X)                     \
	X(archive_entry_filetype)                   \
	X(archive_entry_hardlink)                   \
	X(archive_entry_pathname)                   \
	X(archive_entry_pathname_utf8)              \
	X(archive_entry_perm)                       \
	X(archive_entry_size)                       \
	X(archive_entry_size_is_set)                \
	X(archive_entry_sparse_count)               \
	X(archive_entry_symlink)                    \
	X(archive_errno)                            \
	X(archive_error_string)                     \
	X(archive_filter_bytes)                     \
	X(archive_read_data_block)                  \
	X(archive_read_free)                        \
	X(archive_read_new)                         \
	X(archive_read_next_header)                 \
	X(archive_read_open1)                       \
	X(archive_read_set_callback_data)           \
	X(archive_read_set_read_callback)           \
	X(archive_read_set_seek_callback)           \
	X(archive_read_set_skip_callback)           \
	X(archive_read_support_format_tar)          \
	X(archive_read_support_format_zip_seekable) \
	X(archive_set_error)

#define LIBARCHIVE_FIELD(name) typeof(name) *name;
struct libarchive {
	LIBARCHIVE_FUNCTIONS(LIBARCHIVE_FIELD)
};

/* All NULL before libarchive_load(). */
extern struct libarchive la;

/*
 * Before any function of it is called, and before the process is confined. 0, or -ELIBACC, logged.
 * Any thread.
 */
int libarchive_load(void);

#endif
