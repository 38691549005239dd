/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_queue.h"
#include "engine/text/tok_impl.h"

#include <stdlib.h>

bool tok_work_reserve(TokWork *work, size_t n, size_t symbol_bytes, Error *error)
{
    if (n <= work->capacity) return true;
    if (n > TOK_MAX_WORD_BYTES)
        return error_set(error, ERR_TOO_LARGE,
                         "a run of %zu bytes without a break is too long to tokenize (at most %d)", n,
                         TOK_MAX_WORD_BYTES);
    size_t capacity = n < 256 ? 256 : n;
    free(work->symbols);
    free(work->queue.entries);
    work->symbols = malloc(capacity * symbol_bytes);
    work->queue.entries = malloc(2 * capacity * sizeof *work->queue.entries);
    work->capacity = work->symbols && work->queue.entries ? capacity : 0;
    return work->capacity || error_set(error, ERR_NO_MEMORY, "no memory to tokenize a run of %zu bytes", n);
}

void tok_work_done(TokWork *work)
{
    free(work->symbols);
    free(work->queue.entries);
    *work = (TokWork){0};
}
