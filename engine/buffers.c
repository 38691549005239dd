/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"
#include "engine/select/planner.h"

#include <sys/mman.h>

enum { BUFFER_ALIGNMENT = 64 };

/* Hands out pieces of a mapping; with base NULL it only adds up their sizes. */
typedef struct Carver {
    char *base;
    size_t used_bytes;
    bool overflow;
} Carver;

static void *carve(Carver *carver, size_t count, size_t size)
{
    size_t bytes, end;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, BUFFER_ALIGNMENT - 1, &bytes) ||
        __builtin_add_overflow(carver->used_bytes, bytes / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT, &end)) {
        carver->overflow = true;
        return NULL;
    }
    void *piece = carver->base ? carver->base + carver->used_bytes : NULL;
    carver->used_bytes = end;
    return piece;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t matmul_scratch_max(const Engine *engine)
{
    const ModelShape *s = &engine->shape;
    uint32_t rows = engine->params.max_batch_rows;
    size_t bytes = max_size(matmul_scratch_bytes(rows, s->n_embd), matmul_scratch_bytes(rows, s->n_ff));
    return max_size(bytes, matmul_scratch_bytes(rows, s->n_heads * s->v_dim));
}

/* The tables for angles of sliding-window layers are there when these turn by a base of their own. */
static float *carve_window_table(const Engine *engine, Carver *carver)
{
    size_t n = (size_t)engine->params.max_batch_rows * engine->shape.rope_dim;
    return engine->shape.window_rope_base ? carve(carver, n, sizeof(float)) : NULL;
}

static Pass lay_out_pass(const Engine *engine, Carver *carver)
{
    size_t rows = engine->params.max_batch_rows;
    return (Pass){.spans = carve(carver, engine->params.max_sequences, sizeof(BatchSpan)),
                  .rows_done = carve(carver, engine->shape.n_layers, sizeof(uint32_t)),
                  .positions = carve(carver, rows, sizeof(uint32_t)),
                  .x = carve(carver, rows * engine->shape.n_embd, sizeof(float)),
                  .cos_sin = carve(carver, rows * engine->shape.rope_dim, sizeof(float)),
                  .window_cos_sin = carve_window_table(engine, carver)};
}

static void lay_out_step(Engine *engine, Carver *carver)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    size_t rows = p->max_batch_rows, max_dim = max_size(s->head_dim, s->v_dim);
    engine->buf = (StepBuffers){
        .normed = carve(carver, rows * s->n_embd, sizeof(float)),
        .q = carve(carver, rows * s->n_heads * s->head_dim, sizeof(float)),
        .k = carve(carver, rows * s->n_kv_heads * s->head_dim, sizeof(float)),
        .v = carve(carver, rows * s->n_kv_heads * s->v_dim, sizeof(float)),
        .attn = carve(carver, rows * s->n_heads * s->v_dim, sizeof(float)),
        .gate = carve(carver, rows * s->n_ff, sizeof(float)),
        .up = carve(carver, rows * s->n_ff, sizeof(float)),
        .matmul_scratch = carve(carver, matmul_scratch_max(engine), 1),
        .attention_scratch =
            carve(carver, attend_scratch_bytes(p->n_threads, s->n_heads, (uint32_t)max_dim, p->context), 1),
    };
}

static void lay_out(Engine *engine, Carver *carver)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    size_t n_heads = (size_t)s->n_layers * s->n_kv_heads;
    engine->plans = carve(carver, engine->n_policies * N_ROW_KINDS * n_heads, sizeof *engine->plans);
    engine->passes = carve(carver, p->max_passes, sizeof *engine->passes);
    for (uint32_t i = 0; i < p->max_passes; i++) {
        Pass pass = lay_out_pass(engine, carver);
        if (carver->base) engine->passes[i] = pass;
    }
    engine->seq_pass = carve(carver, p->max_sequences, sizeof *engine->seq_pass);
    lay_out_step(engine, carver);
    engine->spans = carve(carver, p->max_sequences, sizeof *engine->spans);
    engine->span_heads = carve(carver, p->max_sequences, sizeof *engine->span_heads);
    engine->span_seqs = carve(carver, p->max_sequences, sizeof *engine->span_seqs);
    engine->hidden = carve(carver, (size_t)p->max_logit_rows * s->n_embd, sizeof(float));
    engine->logits = carve(carver, (size_t)p->max_logit_rows * s->n_vocab, sizeof(float));
}

static void fill_tables(Engine *engine)
{
    size_t n_heads = (size_t)engine->shape.n_layers * engine->shape.n_kv_heads;
    for (uint32_t i = 0; i < engine->n_policies; i++)
        for (RowKind kind = 0; kind < N_ROW_KINDS; kind++)
            planner_fill(&engine->shape, &engine->policies[i], kind,
                         engine->plans + (i * N_ROW_KINDS + kind) * n_heads);
    for (SeqId seq = 0; seq < engine->params.max_sequences; seq++) engine->seq_pass[seq] = PASS_NONE;
}

bool buffers_new(Engine *engine, Error *error)
{
    Carver measure = {0};
    lay_out(engine, &measure);
    size_t bytes = measure.used_bytes;
    void *slab = measure.overflow
                     ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED)
        return error_set(error, ERR_NO_MEMORY, "no memory for the buffers of a step of %u rows",
                         engine->params.max_batch_rows);
    engine->slab = slab;
    engine->slab_bytes = bytes;
    Carver real = {.base = slab};
    lay_out(engine, &real);
    fill_tables(engine);
    return true;
}

void buffers_free(Engine *engine)
{
    if (engine->slab) munmap(engine->slab, engine->slab_bytes);
    engine->slab = NULL;
}
