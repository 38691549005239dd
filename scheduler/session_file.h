/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a saved prefix. Little-endian:
 *   head     fixed fields, salt, policy name, token ids; then the CRC-32 of all that
 *   records  the pages that a query behind the last token needs, by logical page, then class: the page's bytes, then
 *            their CRC-32
 *   end      the CRC-32 of all CRC-32s before it
 * Which pages these are and which one is open follows from the head. Any thread.
 */
#pragma once
#include "base/buffer.h"
#include "engine/kv/page.h"

enum {
    SESSION_MAX_NAME_BYTES = 128,
    SESSION_MAX_SALT_BYTES = 248,
    SESSION_FIXED_BYTES = 112,
    SESSION_CRC_BYTES = 4,
};

typedef struct SessionHead {
    uint64_t model, policy;         /* fingerprints */
    uint32_t n_tokens, n_prefilled; /* n_prefilled: of the tokens, those whose pages are as if prefilled */
    uint32_t n_classes, n_name, n_salt;
    uint64_t page_bytes[KV_MAX_CLASSES], open_bytes[KV_MAX_CLASSES]; /* of a full page, of the open one; 0: none */
    const char *name, *salt;                                         /* [n_name], [n_salt] */
    const uint8_t *tokens;                                           /* [n_tokens] ids of 4 bytes, unaligned */
} SessionHead;

/* Appends the head with its CRC; *ret_crc is that. tokens: [n_tokens] ids, in place of head->tokens. */
LW_CHECK bool session_head_write(const SessionHead *head, const uint32_t *tokens, Buffer *out, uint32_t *ret_crc,
                                 Error *error);
/* How long a head is, CRC included, from its fixed bytes [SESSION_FIXED_BYTES]; max_tokens bounds it. */
LW_CHECK bool session_head_bytes(const uint8_t *fixed, uint32_t max_tokens, size_t *ret_bytes, Error *error);
/* Checks the whole head; *ret_head points into bytes [n_bytes]. */
LW_CHECK bool session_head_read(const uint8_t *bytes, size_t n_bytes, SessionHead *ret_head, uint32_t *ret_crc,
                                Error *error);
uint32_t session_head_token(const SessionHead *head, uint32_t i);

/* Walks the records; init with {0}. class_index: of the policy's classes. */
typedef struct SessionRecord {
    uint32_t page, class_index;
    bool is_open;
    uint64_t bytes; /* without the CRC */
    uint32_t next;  /* of all (page, class) */
} SessionRecord;
bool session_next_record(const SessionHead *head, const KvClassInfo *classes, SessionRecord *record);
/* Of the whole file, its head of so many bytes; false: the sum is no number. */
bool session_file_bytes(const SessionHead *head, const KvClassInfo *classes, size_t head_bytes, uint64_t *ret_bytes);

uint32_t session_crc(uint32_t crc, const void *bytes, size_t n); /* of more bytes; 0 to begin with */
/* The same of a CRC's four bytes, as they are in the file. */
uint32_t session_crc_of_crc(uint32_t crc, uint32_t other);
void session_put_u32(uint8_t *to, uint32_t value);
uint32_t session_get_u32(const uint8_t *from);
