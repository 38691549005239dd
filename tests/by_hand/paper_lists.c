/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: paper_lists MODEL TEXT [TOKENS [BUDGET]]
 * What the selections of the papers, and ours that depart from them, find of the keys of a real model: the model reads
 * the text densely, its last rows are looked at layer by layer, and every method chooses BUDGET tokens between sink and
 * recent range for each. Means over layers, rows and lists: share of the tokens with the highest scores that a list
 * holds; share of the softmax between the ranges, and of all of it together with the ranges.
 */
#include "base/buffer.h"
#include "engine/engine.h"
#include "engine/select/paper.h"
#include "kernels/attention/kv_bounds.h"
#include "kernels/attention/kv_store.h"
#include "kernels/select/top_k.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, N_ROWS = 4, SINK = 64, RECENT = 512, DEFAULT_TOKENS = 7680, DEFAULT_BUDGET = 1024, MAX_HEADS = 64 };

/* One layer's keys as an array, and in pages with bounds as the engine has them. */
typedef struct Layer {
    const ModelShape *shape;
    PaperInput input;
    float *k, *q;
    KvPool pool;
    uint32_t *numbers;
    KvPages pages;
    RopeTurns turns;
    float *fine, *coarse;
} Layer;

/* n_ours 0: the papers' code; keep_tokens in budgets. */
typedef struct Method {
    const char *name;
    PaperMethod paper;
    SelectStage ours[3];
    uint32_t n_ours;
    ScanPositions positions; /* of ours */
} Method;

typedef struct Sums {
    double top, middle, all;
    uint32_t n;
} Sums;

static uint32_t budget = DEFAULT_BUDGET;

static void die(const char *text)
{
    fprintf(stderr, "paper_lists: %s\n", text);
    exit(1);
}

static void *must(void *p)
{
    if (!p) die("no memory");
    return p;
}

/* ---- methods ---- */

#define RANGES .sink = SINK, .recent = RECENT
#define ORACLE(whose)                                                                                                  \
    {                                                                                                                  \
        .stages = {{SCAN_EXACT, 1, .keep_tokens = 1}}, .n_stages = 1, .scope = whose, RANGES                           \
    }
#define HIP(kind, last_kind, last, whose, where, released)                                                             \
    {                                                                                                                  \
        .stages = {{kind, 256, .keep_tokens = 4}, {kind, 32, .keep_tokens = 2}, {last_kind, last, .keep_tokens = 1}},  \
        .n_stages = 3, .scope = whose, .positions = where, .is_released = released, RANGES                             \
    }
#define PAGES(page, part, whose)                                                                                       \
    {                                                                                                                  \
        .stages = {{SCAN_BOX, page, part, 1}}, .n_stages = 1, .scope = whose, RANGES                                   \
    }

static const Method methods[] = {
    {"oracle, a list for each query head", ORACLE(PAPER_HEAD)},
    {"oracle, for each KV head", ORACLE(PAPER_KV_HEAD)},
    {"oracle, for the layer", ORACLE(PAPER_LAYER)},
    {"oracle in sectors of 16, KV head",
     {.stages = {{SCAN_EXACT, 16, .keep_tokens = 1}}, .n_stages = 1, .scope = PAPER_KV_HEAD, RANGES}},
    {"HiP as printed: 256/32/8, layer, RT",
     HIP(SCAN_DESCENT_FIRST, SCAN_DESCENT_FIRST, 8, PAPER_LAYER, SCAN_RELATIVE, false)},
    {"HiP as released: 256/32/8, layer, RT", HIP(SCAN_DESCENT, SCAN_DESCENT, 8, PAPER_LAYER, SCAN_RELATIVE, true)},
    {"HiP as released, layer, CI", HIP(SCAN_DESCENT, SCAN_DESCENT, 8, PAPER_LAYER, SCAN_CHUNK_INDEXED, true)},
    {"the same, KV head, RT", HIP(SCAN_DESCENT, SCAN_DESCENT, 8, PAPER_KV_HEAD, SCAN_RELATIVE, true)},
    {"the same, KV head, true positions", HIP(SCAN_DESCENT, SCAN_DESCENT, 8, PAPER_KV_HEAD, SCAN_TRUE, true)},
    {"the same, true, last stage exact", HIP(SCAN_DESCENT, SCAN_EXACT, 8, PAPER_KV_HEAD, SCAN_TRUE, true)},
    {"256/32/16, true, exact (ours)", HIP(SCAN_DESCENT, SCAN_EXACT, 16, PAPER_KV_HEAD, SCAN_TRUE, true)},
    {"LServe: pages 64/16, query head", PAGES(64, 16, PAPER_HEAD)},
    {"LServe: pages 64/16, KV head", PAGES(64, 16, PAPER_KV_HEAD)},
    {"our bounds, pages 64/16", .ours = {{SCAN_BOX, 64, 1, 1}}, .n_ours = 1},
    {"Quest: pages 16, query head", PAGES(16, 16, PAPER_HEAD)},
    {"the same, KV head", PAGES(16, 16, PAPER_KV_HEAD)},
    {"our bounds, sectors", .ours = {{SCAN_BOX, 16, 1, 1}}, .n_ours = 1},
    {"centres, sectors", .ours = {{SCAN_CENTER, 16, 1, 1}}, .n_ours = 1},
    {"means, sectors", .ours = {{SCAN_MEAN, 16, 1, 1}}, .n_ours = 1},
    {"our bounds, 2 budgets of sectors, then exact", .ours = {{SCAN_BOX, 16, 2, 1}, {SCAN_EXACT, 16, 1, 1}},
     .n_ours = 2},
    {"our bounds, 4 budgets of sectors, then exact", .ours = {{SCAN_BOX, 16, 4, 1}, {SCAN_EXACT, 16, 1, 1}},
     .n_ours = 2},
    {"the same, all scans relative", .ours = {{SCAN_BOX, 16, 4, 1}, {SCAN_EXACT, 16, 1, 1}}, .n_ours = 2,
     .positions = SCAN_RELATIVE},
    {"the same, true, with a descent to 2 budgets between",
     .ours = {{SCAN_BOX, 16, 4, 1}, {SCAN_DESCENT, 16, 2, 1}, {SCAN_EXACT, 16, 1, 1}}, .n_ours = 3},
    {"descent of sectors, 2 budgets, then exact", .ours = {{SCAN_DESCENT, 16, 2, 1}, {SCAN_EXACT, 16, 1, 1}},
     .n_ours = 2},
    {"means of sectors, 2 budgets, then exact", .ours = {{SCAN_MEAN, 16, 2, 1}, {SCAN_EXACT, 16, 1, 1}}, .n_ours = 2},
};
enum { N_METHODS = sizeof methods / sizeof *methods };

static Sums sums[N_METHODS];

/* ---- our scans ---- */

static uint32_t scan_stage(const Layer *layer, const Method *method, uint32_t number, uint32_t kv_head, uint32_t *units,
                           uint32_t n)
{
    const SelectStage *stage = &method->ours[number];
    const PaperInput *input = &layer->input;
    uint32_t group = input->n_heads / input->n_kv_heads, keep = stage->keep_tokens * budget / stage->unit_tokens;
    float *scores = must(malloc((n + 1) * sizeof *scores));
    uint32_t *scratch = must(malloc((n + 1) * sizeof *scratch)), *best = must(malloc((n + 1) * sizeof *best));
    ScanParams scan = {.q = input->q + (size_t)kv_head * group * input->dim,
                       .n_rows = 1,
                       .row_heads = input->n_heads,
                       .group = group,
                       .k_dim = input->dim,
                       .first_pos = input->first_pos,
                       .pages = &layer->pages,
                       .slot = kv_head,
                       .kind = stage->scan,
                       .positions = method->positions,
                       .query_position = RECENT + 1 - KV_SECTOR_TOKENS,
                       .row_stride = 1,
                       .units = units,
                       .n_units = n,
                       .unit_sectors = stage->unit_tokens / KV_SECTOR_TOKENS,
                       .turns = &layer->turns,
                       .scores = scores,
                       .scratch = must(malloc(scan_scratch_bytes(1, 1, group, input->dim)))};
    if (!scan_ref(&scan)) die("a scan was refused");
    n = top_k(scores, n, keep, scratch, best);
    for (uint32_t i = 0; i < n; i++) units[i] = units[best[i]];
    free(scan.scratch);
    free(scores);
    free(scratch);
    free(best);
    return n;
}

static PaperList our_list(const Layer *layer, const Method *method, uint32_t kv_head, Arena *arena)
{
    uint32_t end = (layer->input.first_pos + 1 - RECENT) / KV_PAGE_TOKENS * KV_PAGE_TOKENS, n = 0;
    uint32_t *units = must(arena_array(arena, layer->input.n_keys, sizeof *units));
    uint32_t *tokens = must(arena_array(arena, layer->input.n_keys, sizeof *tokens));
    uint32_t size = method->ours[0].unit_tokens;
    for (uint32_t at = SINK; at < end; at += size) units[n++] = at / KV_SECTOR_TOKENS;
    for (uint32_t i = 0; i < method->n_ours; i++) n = scan_stage(layer, method, i, kv_head, units, n);
    for (uint32_t i = 0; i < n * size; i++) tokens[i] = units[i / size] * KV_SECTOR_TOKENS + i % size;
    return (PaperList){tokens, n * size};
}

/* ---- figures ---- */

static PaperList with_ranges(const PaperList *list, uint32_t end, uint32_t n_keys, Arena *arena)
{
    uint32_t *tokens = must(arena_array(arena, n_keys, sizeof *tokens)), n = 0, at = 0;
    for (uint32_t t = 0; t < n_keys; t++) {
        while (at < list->n && list->tokens[at] < t) at++;
        if (t < SINK || t >= end || (at < list->n && list->tokens[at] == t)) tokens[n++] = t;
    }
    return (PaperList){tokens, n};
}

static void measure(const Layer *layer, const PaperMethod *scope, const PaperList *list, uint32_t number, Arena *arena,
                    Sums *add)
{
    const PaperInput *input = &layer->input;
    uint32_t end = input->first_pos + 1 - RECENT;
    PaperList all = with_ranges(list, end, input->n_keys, arena);
    PaperRecall middle, whole;
    Error error;
    const float scale = layer->shape->attention_scale;
    PaperQuestion question = {list, number, scale, SINK, end, budget};
    if (!paper_measure(scope, input, &question, &middle, &error)) die(error.text);
    question = (PaperQuestion){&all, number, scale, 0, input->n_keys, 1};
    if (!paper_measure(scope, input, &question, &whole, &error)) die(error.text);
    add->top += middle.top;
    add->middle += middle.mass;
    add->all += whole.mass;
    add->n++;
}

static void run_method(const Layer *layer, const Method *method, Sums *add)
{
    Arena arena;
    Error error;
    arena_init(&arena, 1 << 20, SIZE_MAX);
    PaperMethod paper = method->paper;
    PaperList lists[MAX_HEADS];
    for (uint32_t i = 0; i < paper.n_stages; i++) paper.stages[i].keep_tokens *= budget;
    if (method->n_ours) paper.scope = PAPER_KV_HEAD;
    uint32_t n_lists = paper_n_lists(&paper, &layer->input);
    if (!method->n_ours && !paper_select(&paper, &layer->input, &arena, lists, &error)) die(error.text);
    for (uint32_t i = 0; i < n_lists; i++) {
        if (method->n_ours) lists[i] = our_list(layer, method, i, &arena);
        measure(layer, &paper, &lists[i], i, &arena, add);
    }
    arena_done(&arena);
}

/* ---- a layer's keys ---- */

static void store_pages(Layer *layer)
{
    const PaperInput *input = &layer->input;
    uint32_t n_pages = (input->n_keys + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, n_kv_heads = input->n_kv_heads;
    KvHead heads[MAX_HEADS] = {0};
    float *rows = must(malloc((size_t)input->n_keys * n_kv_heads * input->dim * sizeof *rows));
    for (uint32_t h = 0; h < n_kv_heads; h++) heads[h].slot = h;
    for (size_t t = 0; t < input->n_keys; t++)
        for (size_t h = 0; h < n_kv_heads; h++)
            memcpy(rows + (t * n_kv_heads + h) * input->dim, layer->k + (h * input->n_keys + t) * input->dim,
                   input->dim * sizeof *rows);
    layer->pool = (KvPool){.layout = kv_layout(KV_F32, input->dim, input->dim)};
    layer->pool.bounds_offset = n_kv_heads * layer->pool.layout.slot_bytes;
    layer->pool.page_bytes = layer->pool.bounds_offset + n_kv_heads * ((kv_bounds_bytes(input->dim) + 63) / 64 * 64);
    layer->pool.base = must(aligned_alloc(64, layer->pool.page_bytes * n_pages));
    layer->numbers = must(malloc(n_pages * sizeof *layer->numbers));
    for (uint32_t i = 0; i < n_pages; i++) layer->numbers[i] = i;
    layer->pages = (KvPages){.pool = &layer->pool, .pages = layer->numbers};
    const KvSpan span = {.classes = &layer->pages, .heads = heads, .n_rows = input->n_keys};
    const KvStoreParams store = {rows, rows, &span, 1, n_kv_heads, input->dim, input->dim};
    const KvBoundsParams bounds = {&span, 1, n_kv_heads, input->dim, &layer->turns};
    if (!kv_store_ref(&store) || !kv_bounds_ref(&bounds)) die("keys cannot be stored");
    free(rows);
}

static void make_turns(Layer *layer)
{
    uint32_t n_pairs = layer->input.n_pairs, n_coarse = 2 + layer->input.n_keys / ROPE_TURNS_FINE;
    layer->fine = must(malloc((size_t)ROPE_TURNS_FINE * n_pairs * 2 * sizeof(float)));
    layer->coarse = must(malloc((size_t)n_coarse * n_pairs * 2 * sizeof(float)));
    layer->turns = (RopeTurns){layer->input.theta, n_pairs, n_coarse, layer->fine, layer->coarse};
    rope_turns_fill(&layer->turns, layer->fine, layer->coarse);
}

static void copy_keys(Layer *layer, const KvSpan *span)
{
    const PaperInput *input = &layer->input;
    for (size_t h = 0; h < input->n_kv_heads; h++)
        for (uint32_t t = 0; t < input->n_keys; t++) {
            const KvHead *head = &span->heads[h];
            const KvLayout *layout;
            uint32_t page = t / KV_PAGE_TOKENS, own_page = input->first_pos / KV_PAGE_TOKENS;
            const char *slot = kv_pages_slot(&span->classes[head->class_index], page, own_page, head->slot, &layout);
            kv_slot_get_key(layout, slot, t % KV_PAGE_TOKENS, layer->k + (h * input->n_keys + t) * input->dim);
        }
}

typedef struct Look {
    const ModelShape *shape;
    double theta[KV_MAX_DIM / 2];
} Look;

static void look(void *arg, const LayerTrace *trace)
{
    const Look *from = arg;
    const ModelShape *shape = from->shape;
    const KvSpan *span = &trace->spans[0];
    Layer layer = {.shape = shape};
    if (trace->n_rows != 1 || shape_layer_window(shape, trace->layer)) return;
    uint32_t n_keys = span->first_pos + 1;
    layer.k = must(malloc((size_t)shape->n_kv_heads * n_keys * shape->head_dim * sizeof(float)));
    layer.input =
        (PaperInput){trace->q,        layer.k,         1,           shape->n_heads,     shape->n_kv_heads, n_keys,
                     shape->head_dim, span->first_pos, from->theta, shape->rope_dim / 2};
    copy_keys(&layer, span);
    make_turns(&layer);
    store_pages(&layer);
    for (uint32_t i = 0; i < N_METHODS; i++) run_method(&layer, &methods[i], &sums[i]);
    fprintf(stderr, "\rrow %u, layer %u ", span->first_pos, trace->layer);
    free(layer.pool.base);
    free(layer.numbers);
    free(layer.fine);
    free(layer.coarse);
    free(layer.k);
}

/* ---- the model ---- */

static TokenList read_tokens(const Engine *engine, const char *path)
{
    Error error;
    Buffer text;
    TokenList list = {0};
    char piece[4096];
    size_t n;
    buffer_init(&text, 1 << 24);
    FILE *file = fopen(path, "rb");
    if (!file) die("cannot read the text");
    while ((n = fread(piece, 1, sizeof piece, file)) > 0)
        if (!buffer_append(&text, piece, n, &error)) die(error.text);
    fclose(file);
    const TokEncode in = {.text = text.data, .n = text.n, .add_special = true};
    if (!tok_encode(engine_tokenizer(engine), &in, &list, &error)) die(error.text);
    buffer_done(&text);
    return list;
}

static void run_rows(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n)
{
    Error error;
    float *logits;
    BatchSpan span = {seq, 0, n, engine_seq_tokens(engine, seq), LOGITS_NONE, ROWS_PREFILL};
    if (!engine_forward(engine, &(Batch){tokens, n, &span, 1}, &logits, &error)) die(error.text);
}

int main(int argc, char **argv)
{
    Error error;
    Engine *engine;
    SeqId seq;
    static Look from;
    if (argc < 3 || argc > 5) die("usage: paper_lists MODEL TEXT [TOKENS [BUDGET]]");
    uint32_t n = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : DEFAULT_TOKENS;
    if (argc > 4) budget = (uint32_t)strtoul(argv[4], NULL, 10);
    const EngineParams params = {.model_path = argv[1],
                                 .context = n,
                                 .max_sequences = 1,
                                 .max_batch_rows = CHUNK,
                                 .max_logit_rows = 1,
                                 .kv_types = kv_types_all(KV_F16),
                                 .world = 1};
    if (!engine_open(&params, &engine, &error) || !engine_seq_new(engine, 0, &seq, &error)) die(error.text);
    from.shape = engine_shape(engine);
    if (from.shape->n_heads > MAX_HEADS || !family_rope_theta(from.shape, engine_gguf(engine), from.theta, &error))
        die("a model of too many heads");
    TokenList list = read_tokens(engine, argv[2]);
    if (n > list.n || n < SINK + RECENT + 2 * N_ROWS) die("the text has too few tokens, or TOKENS is small");
    for (uint32_t at = 0, rows; at < n - N_ROWS; at += rows) {
        rows = n - N_ROWS - at < CHUNK ? n - N_ROWS - at : CHUNK;
        run_rows(engine, seq, list.ids + at, rows);
    }
    engine_set_trace(engine, look, &from);
    for (uint32_t i = n - N_ROWS; i < n; i++) run_rows(engine, seq, list.ids + i, 1);
    printf("\n%u tokens, sink %d, recent %d, lists of %u\n%-48s %8s %8s %8s\n", n, SINK, RECENT, budget, "", "top",
           "middle", "all");
    for (uint32_t i = 0; i < N_METHODS; i++)
        printf("%-48s %8.3f %8.3f %8.3f\n", methods[i].name, sums[i].top / sums[i].n, sums[i].middle / sums[i].n,
               sums[i].all / sums[i].n);
    free(list.ids);
    engine_close(engine);
    return 0;
}
