/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of session files, with the CRC made right: any bytes give a head within them and an end of its records. */
#include "scheduler/session_file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const KvClassInfo classes[KV_MAX_CLASSES] = {
    {.window = PLAN_ALL, .is_quantised = true}, {.window = 192, .sink = 64}, {.window = 100, .is_quantised = true}};

static void walk(const SessionHead *head, size_t n)
{
    uint64_t bytes, n_records = 0;
    for (uint32_t i = 0; i < head->n_tokens; i++) (void)session_head_token(head, i);
    for (SessionRecord record = {0}; session_next_record(head, classes, &record); n_records++)
        if (record.class_index >= head->n_classes || record.page * KV_PAGE_TOKENS >= head->n_tokens) abort();
    if (n_records == 0 || n_records > head->n_classes * ((uint64_t)head->n_tokens / KV_PAGE_TOKENS + 1)) abort();
    if (session_file_bytes(head, classes, n, &bytes) && bytes < n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Error error;
    size_t head_bytes;
    SessionHead head;
    uint32_t crc;
    if (n < SESSION_FIXED_BYTES || !session_head_bytes(data, MAX_TOKENS, &head_bytes, &error)) return 0;
    if (head_bytes > n) return 0;
    uint8_t *bytes = malloc(head_bytes);
    if (!bytes) return 0;
    memcpy(bytes, data, head_bytes);
    session_put_u32(bytes + head_bytes - SESSION_CRC_BYTES, session_crc(0, bytes, head_bytes - SESSION_CRC_BYTES));
    if (!session_head_read(bytes, head_bytes, &head, &crc, &error)) abort();
    walk(&head, head_bytes);
    free(bytes);
    return 0;
}
