/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/paper.h"

#include "engine/select/paper_scan.h"
#include "kernels/select/top_k.h"

#include <math.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 1 << 20, LSERVE_MIN_PAGES = 3 };

#define HIP_PAPER(last)                                                                                                \
    .stages = {{SCAN_DESCENT_FIRST, 256, .keep_tokens = 32768},                                                        \
               {SCAN_DESCENT_FIRST, 32, .keep_tokens = 8192},                                                          \
               {SCAN_DESCENT_FIRST, 8, .keep_tokens = (last)}},                                                        \
    .n_stages = 3, .sink = 256, .recent = 1024
#define HIP_CODE(first, second, third, last)                                                                           \
    .stages = {{SCAN_DESCENT, (first), .keep_tokens = 32768, .row_stride = 4},                                         \
               {SCAN_DESCENT, (second), .keep_tokens = 8192, .row_stride = 4},                                         \
               {SCAN_DESCENT, (third), .keep_tokens = (last)}},                                                        \
    .n_stages = 3, .sink = 256, .recent = 1024, .is_released = true

static const PaperMethod methods[] = {
    {.name = "hip-paper-3k", HIP_PAPER(2048), .positions = SCAN_RELATIVE},
    {.name = "hip-paper-3k-early", HIP_PAPER(4096), .positions = SCAN_CHUNK_INDEXED},
    {.name = "hip-paper-5k", HIP_PAPER(4096), .positions = SCAN_RELATIVE},
    {.name = "hip-paper-5k-early", HIP_PAPER(4096), .positions = SCAN_CHUNK_INDEXED},
    {.name = "hip-code-3k", HIP_CODE(256, 32, 8, 2048), .positions = SCAN_RELATIVE},
    {.name = "hip-code-3k-early", HIP_CODE(256, 32, 8, 4096), .positions = SCAN_CHUNK_INDEXED},
    {.name = "hip-code-5k", HIP_CODE(256, 32, 8, 4096), .positions = SCAN_RELATIVE},
    {.name = "hip-later-3k", HIP_CODE(64, 16, 4, 2048), .positions = SCAN_RELATIVE},
    {.name = "lserve-4k",
     .stages = {{SCAN_BOX, 64, 16, 4096}},
     .n_stages = 1,
     .scope = PAPER_HEAD,
     .positions = SCAN_TRUE,
     .keeps_newest = true},
    {.name = "quest-4k",
     .stages = {{SCAN_BOX, 16, 16, 4096}},
     .n_stages = 1,
     .scope = PAPER_HEAD,
     .positions = SCAN_TRUE,
     .keeps_newest = true},
};
enum { N_METHODS = sizeof methods / sizeof *methods };

const PaperMethod *paper_method(const char *name)
{
    for (size_t i = 0; i < N_METHODS; i++)
        if (!strcmp(methods[i].name, name)) return &methods[i];
    return NULL;
}

const char *paper_method_name(uint32_t i)
{
    return i < N_METHODS ? methods[i].name : NULL;
}

uint32_t paper_list_of_head(const PaperMethod *method, const PaperInput *input, uint32_t head)
{
    if (method->scope == PAPER_LAYER) return 0;
    return method->scope == PAPER_HEAD ? head : head / (input->n_heads / input->n_kv_heads);
}

uint32_t paper_n_lists(const PaperMethod *method, const PaperInput *input)
{
    return paper_list_of_head(method, input, input->n_heads - 1) + 1;
}

static bool check(const PaperMethod *method, const PaperInput *input, Error *error)
{
    bool fits = input->n_rows && input->n_kv_heads && input->n_heads && input->n_heads % input->n_kv_heads == 0 &&
                input->dim && input->dim <= KV_MAX_DIM && 2 * (uint64_t)input->n_pairs <= input->dim &&
                (uint64_t)input->first_pos + input->n_rows <= input->n_keys;
    if (!fits)
        return error_set(error, ERR_INVALID, "%u rows at %u, %u heads of %u, %u keys, %u channels: these do not fit",
                         input->n_rows, input->first_pos, input->n_heads, input->n_kv_heads, input->n_keys, input->dim);
    if (method->n_stages < 1 || method->n_stages > SELECT_MAX_STAGES)
        return error_set(error, ERR_INVALID, "%u stages, not 1 to %d", method->n_stages, SELECT_MAX_STAGES);
    for (uint32_t i = 0; i < method->n_stages; i++) {
        const PaperStage *stage = &method->stages[i], *next = stage + 1;
        bool is_last = i + 1 == method->n_stages;
        if (!stage->chunk_tokens || stage->scan >= SCAN_N_KINDS ||
            (!is_last && (!next->chunk_tokens || stage->chunk_tokens % next->chunk_tokens != 0)))
            return error_set(error, ERR_INVALID, "stage %u: chunks of %u tokens are no multiple of the next stage's", i,
                             stage->chunk_tokens);
    }
    return true;
}

/* How far the scan reaches into the recent range. */
static uint32_t overlap(const PaperMethod *method)
{
    uint32_t chunk = method->stages[0].chunk_tokens;
    return !method->is_released ? 0 : chunk < method->recent ? chunk : method->recent;
}

static uint32_t newest_page(const PaperMethod *method, const PaperInput *input)
{
    uint32_t size = method->stages[0].chunk_tokens;
    return (input->first_pos + input->n_rows - 1) / size * size;
}

/* Behind the last key that is scanned. */
static uint32_t scan_end(const PaperMethod *method, const PaperInput *input)
{
    uint32_t reach = input->first_pos + 1, back = method->recent - overlap(method);
    if (method->keeps_newest) return newest_page(method, input);
    return reach > back ? reach - back : 0;
}

/* What the stages of one list work in: chunks by their first tokens, one score each. */
typedef struct Work {
    const PaperMethod *method;
    const PaperInput *input;
    PaperScan scan;
    uint32_t list, end;
    uint32_t *chunks, *kept, *scratch; /* [end, rounded up to a chunk] each */
    float *scores;
    uint32_t n_chunks;
} Work;

/* Behind the last key of a chunk: in the released code, chunks are whole. */
static uint32_t chunk_end(const Work *work, uint32_t chunk, uint32_t size)
{
    uint32_t limit = work->method->is_released ? work->input->n_keys : work->end;
    return limit - chunk < size ? limit : chunk + size;
}

static void score_chunks(Work *work)
{
    const PaperInput *input = work->input;
    bool is_indexed = work->scan.positions == SCAN_CHUNK_INDEXED;
    for (uint32_t i = 0; i < work->n_chunks; i++) {
        if (i == 0 || is_indexed) paper_scan_set_queries(&work->scan, i, work->n_chunks);
        uint32_t end = chunk_end(work, work->chunks[i], work->scan.stage->chunk_tokens);
        work->scores[i] = -INFINITY;
        for (uint32_t head = 0; head < input->n_heads; head++) {
            if (paper_list_of_head(work->method, input, head) != work->list) continue;
            float score = paper_scan_chunk(&work->scan, head, work->chunks[i], end);
            work->scores[i] = score > work->scores[i] ? score : work->scores[i];
        }
    }
}

static uint32_t n_to_keep(const PaperMethod *method, const PaperStage *stage)
{
    uint32_t n = stage->keep_tokens / stage->chunk_tokens;
    if (!method->keeps_newest) return n;
    return (n > LSERVE_MIN_PAGES ? n : LSERVE_MIN_PAGES) - 1;
}

/* The best chunks, each cut into those of the next stage. */
static void run_stage(Work *work, uint32_t i)
{
    const PaperStage *stage = &work->method->stages[i];
    work->scan.stage = stage;
    score_chunks(work);
    uint32_t n = top_k(work->scores, work->n_chunks, n_to_keep(work->method, stage), work->scratch, work->kept);
    for (uint32_t j = 0; j < n; j++) work->kept[j] = work->chunks[work->kept[j]];
    uint32_t size = i + 1 < work->method->n_stages ? stage[1].chunk_tokens : stage->chunk_tokens;
    work->n_chunks = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t end = chunk_end(work, work->kept[j], stage->chunk_tokens);
        for (uint32_t at = work->kept[j]; at < end; at += size) work->chunks[work->n_chunks++] = at;
    }
}

/* Tokens of the chunks that are left; a token that the shift to multiples would repeat is taken once. */
static uint32_t list_tokens(const Work *work, uint32_t *ret_tokens)
{
    uint32_t size = work->method->stages[work->method->n_stages - 1].chunk_tokens, n = 0, next = 0;
    for (uint32_t i = 0; i < work->n_chunks; i++) {
        uint32_t from = work->method->is_released ? work->chunks[i] / size * size : work->chunks[i];
        uint32_t end = chunk_end(work, from, size);
        for (uint32_t t = from > next ? from : next; t < end; t++) ret_tokens[n++] = t;
        next = end;
    }
    if (!work->method->keeps_newest) return n;
    for (uint32_t t = work->end; t < work->input->first_pos + work->input->n_rows; t++) ret_tokens[n++] = t;
    return n;
}

static bool select_list(Work *work, Arena *arena, PaperList *ret_list, Error *error)
{
    uint32_t size = work->method->stages[0].chunk_tokens;
    work->n_chunks = 0;
    for (uint32_t at = work->method->sink; at < work->end; at += size) work->chunks[work->n_chunks++] = at;
    for (uint32_t i = 0; i < work->method->n_stages; i++) run_stage(work, i);
    uint32_t *tokens = arena_array(arena, work->input->n_keys, sizeof *tokens);
    if (!tokens) return error_set(error, ERR_NO_MEMORY, "no memory for a list of tokens");
    *ret_list = (PaperList){tokens, list_tokens(work, tokens)};
    return true;
}

static bool make_work(const PaperMethod *method, const PaperInput *input, Arena *scratch, Work *ret_work, Error *error)
{
    uint32_t end = scan_end(method, input);
    size_t n = input->n_keys, n_floats = 2 * (size_t)input->n_rows * input->n_heads * input->dim;
    Work work = {.method = method, .input = input, .end = end};
    work.chunks = arena_array(scratch, n, sizeof *work.chunks);
    work.kept = arena_array(scratch, n, sizeof *work.kept);
    work.scratch = arena_array(scratch, n, sizeof *work.scratch);
    work.scores = arena_array(scratch, n, sizeof *work.scores);
    work.scan = (PaperScan){.input = input,
                            .positions = method->positions,
                            .query_distance = method->recent - overlap(method),
                            .keys = paper_scan_keys(input, method->positions, scratch),
                            .queries = arena_array(scratch, n_floats, sizeof(float))};
    if (!work.chunks || !work.kept || !work.scratch || !work.scores || !work.scan.keys || !work.scan.queries)
        return error_set(error, ERR_NO_MEMORY, "no memory to select among %u keys", input->n_keys);
    *ret_work = work;
    return true;
}

bool paper_select(const PaperMethod *method, const PaperInput *input, Arena *arena, PaperList *ret_lists, Error *error)
{
    if (!check(method, input, error)) return false;
    Arena scratch;
    Work work;
    arena_init(&scratch, ARENA_BLOCK_BYTES, SIZE_MAX);
    uint32_t n_lists = paper_n_lists(method, input);
    PaperList *lists = arena_array(&scratch, n_lists, sizeof *lists);
    bool ok = lists ? make_work(method, input, &scratch, &work, error)
                    : error_set(error, ERR_NO_MEMORY, "no memory for %u lists", n_lists);
    for (uint32_t i = 0; ok && i < n_lists; i++) {
        work.list = i;
        ok = select_list(&work, arena, &lists[i], error);
    }
    if (ok) memcpy(ret_lists, lists, n_lists * sizeof *lists);
    arena_done(&scratch);
    return ok;
}
