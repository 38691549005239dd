/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/session_file.h"

#include <string.h>
#include <zlib.h>

static const char magic[8] = "LWKVSES";
enum { VERSION = 1, PIECE_BYTES = 1 << 30 };

/* ---- numbers ---- */

void session_put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

uint32_t session_get_u32(const uint8_t *from)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)from[i] << 8 * i;
    return value;
}

static uint64_t get_u64(const uint8_t *from)
{
    return session_get_u32(from) | (uint64_t)session_get_u32(from + 4) << 32;
}

static uint8_t *put_u64(uint8_t *to, uint64_t value)
{
    session_put_u32(to, (uint32_t)value);
    session_put_u32(to + 4, (uint32_t)(value >> 32));
    return to + 8;
}

uint32_t session_crc(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (; n > PIECE_BYTES; n -= PIECE_BYTES, at += PIECE_BYTES) crc = (uint32_t)crc32(crc, at, PIECE_BYTES);
    return n ? (uint32_t)crc32(crc, at, (uInt)n) : crc;
}

uint32_t session_crc_of_crc(uint32_t crc, uint32_t other)
{
    uint8_t bytes[SESSION_CRC_BYTES];
    session_put_u32(bytes, other);
    return session_crc(crc, bytes, sizeof bytes);
}

/* ---- the head ---- */

static void write_fixed(const SessionHead *head, uint8_t *to)
{
    const uint32_t words[] = {VERSION, head->n_tokens, head->n_prefilled, head->n_classes, head->n_name, head->n_salt};
    memcpy(to, magic, sizeof magic);
    to += sizeof magic;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++, to += 4) session_put_u32(to, words[i]);
    to = put_u64(put_u64(to, head->model), head->policy);
    for (int c = 0; c < KV_MAX_CLASSES; c++) to = put_u64(put_u64(to, head->page_bytes[c]), head->open_bytes[c]);
    memset(to, 0, 16);
}
_Static_assert(8 + 6 * 4 + 2 * 8 + KV_MAX_CLASSES * 16 + 16 == SESSION_FIXED_BYTES, "the fixed fields");

bool session_head_write(const SessionHead *head, const uint32_t *tokens, Buffer *out, uint32_t *ret_crc, Error *error)
{
    uint8_t bytes[SESSION_FIXED_BYTES];
    size_t first = out->n;
    write_fixed(head, bytes);
    if (!buffer_append(out, bytes, sizeof bytes, error) || !buffer_append(out, head->salt, head->n_salt, error) ||
        !buffer_append(out, head->name, head->n_name, error) ||
        !buffer_reserve(out, (size_t)head->n_tokens * 4 + SESSION_CRC_BYTES, error))
        return false;
    for (uint32_t i = 0; i < head->n_tokens; i++, out->n += 4)
        session_put_u32((uint8_t *)out->data + out->n, tokens[i]);
    *ret_crc = session_crc(0, out->data + first, out->n - first);
    session_put_u32((uint8_t *)out->data + out->n, *ret_crc);
    out->n += SESSION_CRC_BYTES;
    out->data[out->n] = '\0';
    return true;
}

static SessionHead read_fixed(const uint8_t *from)
{
    SessionHead head = {.n_tokens = session_get_u32(from + 12),
                        .n_prefilled = session_get_u32(from + 16),
                        .n_classes = session_get_u32(from + 20),
                        .n_name = session_get_u32(from + 24),
                        .n_salt = session_get_u32(from + 28),
                        .model = get_u64(from + 32),
                        .policy = get_u64(from + 40)};
    for (int c = 0; c < KV_MAX_CLASSES; c++) {
        head.page_bytes[c] = get_u64(from + 48 + 16 * c);
        head.open_bytes[c] = get_u64(from + 56 + 16 * c);
    }
    return head;
}

bool session_head_bytes(const uint8_t *fixed, uint32_t max_tokens, size_t *ret_bytes, Error *error)
{
    SessionHead head = read_fixed(fixed);
    if (memcmp(fixed, magic, sizeof magic) != 0) return error_set(error, ERR_INVALID, "this is no session file");
    if (session_get_u32(fixed + 8) != VERSION)
        return error_set(error, ERR_UNSUPPORTED, "the file is of version %u, not %d", session_get_u32(fixed + 8),
                         VERSION);
    if (head.n_tokens == 0 || head.n_tokens > max_tokens)
        return error_set(error, ERR_INVALID, "the file is of %u tokens: not from 1 to %u", head.n_tokens, max_tokens);
    if (head.n_prefilled > head.n_tokens || head.n_classes == 0 || head.n_classes > KV_MAX_CLASSES ||
        head.n_name > SESSION_MAX_NAME_BYTES || head.n_salt > SESSION_MAX_SALT_BYTES)
        return error_set(error, ERR_INVALID, "the file's head is damaged");
    *ret_bytes = SESSION_FIXED_BYTES + head.n_salt + head.n_name + (size_t)head.n_tokens * 4 + SESSION_CRC_BYTES;
    return true;
}

bool session_head_read(const uint8_t *bytes, size_t n_bytes, SessionHead *ret_head, uint32_t *ret_crc, Error *error)
{
    size_t n = n_bytes - SESSION_CRC_BYTES;
    uint32_t crc = session_crc(0, bytes, n);
    if (crc != session_get_u32(bytes + n)) return error_set(error, ERR_INVALID, "the file's head is damaged");
    SessionHead head = read_fixed(bytes);
    head.salt = (const char *)bytes + SESSION_FIXED_BYTES;
    head.name = head.salt + head.n_salt;
    head.tokens = (const uint8_t *)head.name + head.n_name;
    *ret_head = head;
    *ret_crc = crc;
    return true;
}

uint32_t session_head_token(const SessionHead *head, uint32_t i)
{
    return session_get_u32(head->tokens + (size_t)4 * i);
}

/* ---- records ---- */

bool session_next_record(const SessionHead *head, const KvClassInfo *classes, SessionRecord *record)
{
    for (;; record->next++) {
        uint32_t page = record->next / head->n_classes, c = record->next % head->n_classes;
        uint64_t first = (uint64_t)page * KV_PAGE_TOKENS;
        if (first >= head->n_tokens) return false;
        if (!kv_class_needs(&classes[c], head->n_tokens, first)) continue;
        record->page = page;
        record->class_index = c;
        record->is_open = classes[c].is_quantised && first + KV_PAGE_TOKENS > head->n_tokens;
        record->bytes = record->is_open ? head->open_bytes[c] : head->page_bytes[c];
        record->next++;
        return true;
    }
}

bool session_file_bytes(const SessionHead *head, const KvClassInfo *classes, size_t head_bytes, uint64_t *ret_bytes)
{
    uint64_t sum = head_bytes + SESSION_CRC_BYTES;
    SessionRecord record = {0};
    while (session_next_record(head, classes, &record))
        if (__builtin_add_overflow(sum, record.bytes, &sum) || __builtin_add_overflow(sum, SESSION_CRC_BYTES, &sum))
            return false;
    *ret_bytes = sum;
    return true;
}
