/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/internal.h"

#include <stdlib.h>

#include "archive/decode.h"

#define DESCRIPTOR_SIG 0x08074b50

/* 4.3.9: the descriptor fills the `n` bytes after the data, in one of its four forms. */
static bool descriptor_agrees(const struct entry *e, const uint8_t *d, size_t n)
{
	bool wide = n == 20 || n == 24;

	if (n != 12 && n != 16 && n != 20 && n != 24)
		return false;
	if (n == 16 || n == 24) {
		if (get_le32(d) != DESCRIPTOR_SIG)
			return false;
		d += 4;
	}
	if (get_le32(d) != e->crc)
		return false;
	if (wide)
		return get_le64(d + 4) == e->stored && get_le64(d + 12) == e->size;
	return get_le32(d + 4) == e->stored && get_le32(d + 8) == e->size;
}

/* The flag bits that change nothing: the level of Deflate, and the UTF-8 flag of an ASCII name. */
static unsigned ignored_flags(const struct entry *e)
{
	return (e->method == METHOD_DEFLATE ? FLAGS_LEVEL : 0) |
	       (e->raw != RAW_UNICODE && is_ascii(e->name) ? FLAG_UTF8 : 0);
}

static bool is_name_of(const struct entry *e, const struct zip_name *name)
{
	return name->len == e->name_len && memcmp(name->text, e->name, name->len) == 0 &&
	       name->slash == (e->kind == ENTRY_DIR) && name->raw == e->raw;
}

/* Compares a local header with the central one. NULL, or what is wrong. */
static const char *check_local(const struct entry *e, const uint8_t *h, const uint8_t *rest)
{
	size_t len = get_le16(h + 26);
	unsigned flags = get_le16(h + 6);
	uint64_t stored = get_le32(h + 18), size = get_le32(h + 22);
	uint64_t *const fields[] = { &size, &stored };
	bool described = e->flags & ENTRY_DESCRIPTOR;
	struct zip_name name;
	const char *fault;
	struct zip_extra x;

	fault = zip_split_extra(rest + len, get_le16(h + 28), &x);
	if (!fault)
		fault = zip_find_name(&x, (const char *)rest, len, flags, &name);
	if (fault)
		return fault;
	if (!is_name_of(e, &name))
		return "has another name in its local header";
	if ((flags ^ e->flags) & ~ignored_flags(e))
		return "has other flags in its local header";
	if (get_le16(h + 8) != e->method)
		return "has another compression method in its local header";
	if (described && !x.zip64 && stored == UINT32_MAX && size == UINT32_MAX)
		stored = size = 0; /* another way to write "see the descriptor" */
	fault = zip_apply_zip64(&x, fields, ARRAY_SIZE(fields));
	if (fault)
		return fault;
	/* with a descriptor, local values may be 0 */
	if (get_le32(h + 14) != e->crc && !(described && get_le32(h + 14) == 0))
		return "has another crc in its local header";
	if ((size != e->size && !(described && size == 0)) ||
	    (stored != e->stored && !(described && stored == 0)))
		return "has other sizes in its local header";
	return NULL;
}

static int at_fault(const char **ret_fault, const char *fault)
{
	*ret_fault = fault;
	return -EBADMSG;
}

/*
 * Checks the bytes after the data: a descriptor that agrees, or none. `from` begins at `base` of
 * the archive.
 */
static int check_trailer(struct source *from, uint64_t base, const struct entry *e,
			 uint64_t data_at, const char **ret_fault)
{
	uint64_t data_end, room;
	uint8_t descriptor[ZIP_DESCRIPTOR_MAX];
	int r;

	if (__builtin_add_overflow(data_at, e->stored, &data_end) || data_end > entry_end(e))
		return at_fault(ret_fault, "overlaps what follows it");
	room = entry_end(e) - data_end;
	if (!(e->flags & ENTRY_DESCRIPTOR))
		return room ? at_fault(ret_fault, "is followed by bytes that belong to no entry") :
			      0;
	if (room <= sizeof(descriptor)) {
		r = source_pread(from, descriptor, (size_t)room, data_end - base);
		if (r < 0)
			return r;
		if (descriptor_agrees(e, descriptor, (size_t)room))
			return 0;
	}
	return at_fault(ret_fault,
			"has a data descriptor that disagrees with the central directory");
}

int zip_check_local(struct source *from, uint64_t base, const struct entry *e, uint64_t *ret_off,
		    const char **ret_fault)
{
	uint64_t at = e->header - base;
	uint8_t head[512], *rest = NULL;
	size_t have = (size_t)MIN(entry_end(e) - e->header, sizeof(head)), more;
	const char *fault;
	int r;

	have = (size_t)MIN(have, from->size - MIN(at, from->size));
	if (have < LOCAL_SIZE)
		return -ENODATA;
	r = source_pread(from, head, have, at);
	if (r < 0)
		return r;
	if (get_le32(head) != LOCAL_SIG)
		return at_fault(ret_fault, "has no local header where the central directory says");
	more = (size_t)get_le16(head + 26) + get_le16(head + 28);
	if (more > entry_end(e) - e->header - LOCAL_SIZE)
		return at_fault(ret_fault, "overlaps what follows it");
	if (LOCAL_SIZE + more <= have) {
		fault = check_local(e, head, head + LOCAL_SIZE);
	} else {
		/* a part that was cut for the local header has no room for a longer one */
		if (LOCAL_SIZE + more > from->size - at)
			return at_fault(ret_fault, "overlaps what follows it");
		rest = malloc(more);
		if (!rest)
			return -ENOMEM;
		r = source_pread(from, rest, more, at + LOCAL_SIZE);
		fault = r < 0 ? NULL : check_local(e, head, rest);
		free(rest);
		if (r < 0)
			return r;
	}
	if (fault)
		return at_fault(ret_fault, fault);
	r = check_trailer(from, base, e, e->header + LOCAL_SIZE + more, ret_fault);
	if (r == 0)
		*ret_off = at + LOCAL_SIZE + more;
	return r;
}
