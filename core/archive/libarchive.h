/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libarchive, for compare.c: loaded when archive_load() is first called. The functions in use have the
 * names of the library, so calls look like any other. Private to this folder.
 */
#ifndef CARTON_ARCHIVE_LIBARCHIVE_H
#define CARTON_ARCHIVE_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

/* Before any other function of libarchive is called. 0, or -ELIBACC, logged. Any thread. */
int archive_load(void);

#define ARCHIVE_FUNCTIONS(X)                        \
	X(archive_entry_filetype)                   \
	X(archive_entry_pathname_utf8)              \
	X(archive_entry_size)                       \
	X(archive_entry_size_is_set)                \
	X(archive_errno)                            \
	X(archive_read_free)                        \
	X(archive_read_new)                         \
	X(archive_read_next_header)                 \
	X(archive_read_open1)                       \
	X(archive_read_set_callback_data)           \
	X(archive_read_set_read_callback)           \
	X(archive_read_set_seek_callback)           \
	X(archive_read_set_skip_callback)           \
	X(archive_read_support_format_zip_seekable) \
	X(archive_set_error)

#define ARCHIVE_DECLARE(name) extern typeof(name) *lazy_##name;
ARCHIVE_FUNCTIONS(ARCHIVE_DECLARE)

#define archive_entry_filetype lazy_archive_entry_filetype
#define archive_entry_pathname_utf8 lazy_archive_entry_pathname_utf8
#define archive_entry_size lazy_archive_entry_size
#define archive_entry_size_is_set lazy_archive_entry_size_is_set
#define archive_errno lazy_archive_errno
#define archive_read_free lazy_archive_read_free
#define archive_read_new lazy_archive_read_new
#define archive_read_next_header lazy_archive_read_next_header
#define archive_read_open1 lazy_archive_read_open1
#define archive_read_set_callback_data lazy_archive_read_set_callback_data
#define archive_read_set_read_callback lazy_archive_read_set_read_callback
#define archive_read_set_seek_callback lazy_archive_read_set_seek_callback
#define archive_read_set_skip_callback lazy_archive_read_set_skip_callback
#define archive_read_support_format_zip_seekable lazy_archive_read_support_format_zip_seekable
#define archive_set_error lazy_archive_set_error

#endif
