/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"

#include <string.h>
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

static void lay_out(Engine *engine, Carver *carver)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    size_t rows = p->max_batch_rows;
    engine->buf = (StepBuffers){
        .x = carve(carver, rows * s->n_embd, sizeof(float)),
        .normed = carve(carver, rows * s->n_embd, sizeof(float)),
        .q = carve(carver, rows * s->n_heads * s->head_dim, sizeof(float)),
        .k = carve(carver, rows * s->n_kv_heads * s->head_dim, sizeof(float)),
        .v = carve(carver, rows * s->n_kv_heads * s->v_dim, sizeof(float)),
        .attn = carve(carver, rows * s->n_heads * s->v_dim, sizeof(float)),
        .gate = carve(carver, rows * s->n_ff, sizeof(float)),
        .up = carve(carver, rows * s->n_ff, sizeof(float)),
        .cos_sin = carve(carver, rows * s->rope_dim, sizeof(float)),
        .window_cos_sin = s->window_rope_base ? carve(carver, rows * s->rope_dim, sizeof(float)) : NULL,
        .matmul_scratch = carve(carver, matmul_scratch_max(engine), 1),
        .attention_scratch = carve(
            carver,
            attention_scratch_bytes(p->n_threads, s->n_heads, (uint32_t)max_size(s->head_dim, s->v_dim), p->context),
            1),
    };
    engine->positions = carve(carver, rows, sizeof *engine->positions);
    engine->spans = carve(carver, p->max_sequences, sizeof *engine->spans);
    engine->seqs = carve(carver, p->max_sequences, sizeof *engine->seqs);
    engine->hidden = carve(carver, (size_t)p->max_logit_rows * s->n_embd, sizeof(float));
    engine->logits = carve(carver, (size_t)p->max_logit_rows * s->n_vocab, sizeof(float));
}

bool forward_new_buffers(Engine *engine, Error *error)
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
    return true;
}

void forward_free_buffers(Engine *engine)
{
    if (engine->slab) munmap(engine->slab, engine->slab_bytes);
    engine->slab = NULL;
}

static uint32_t span_logit_rows(const BatchSpan *span)
{
    return span->logits == LOGITS_ALL ? span->n_rows : span->logits == LOGITS_LAST ? 1 : 0;
}

static bool check_span(const Engine *engine, const Batch *batch, uint32_t i, uint32_t expected_row, Error *error)
{
    const BatchSpan *span = &batch->spans[i];
    if (!kv_seq_is_open(engine->kv, span->seq))
        return error_set(error, ERR_INTERNAL, "span %u: sequence %u is not open", i, span->seq);
    for (uint32_t j = 0; j < i; j++)
        if (batch->spans[j].seq == span->seq)
            return error_set(error, ERR_INTERNAL, "spans %u and %u: both of sequence %u", j, i, span->seq);
    if (span->n_rows == 0 || span->first_row != expected_row || span->n_rows > batch->n_rows - expected_row)
        return error_set(error, ERR_INTERNAL, "span %u: rows [%u, +%u) do not follow row %u of %u", i, span->first_row,
                         span->n_rows, expected_row, batch->n_rows);
    uint32_t held = kv_seq_tokens(engine->kv, span->seq);
    if (span->first_pos != held)
        return error_set(error, ERR_INTERNAL, "span %u: starts at position %u, the sequence holds %u tokens", i,
                         span->first_pos, held);
    if (span->n_rows > engine->params.context - held)
        return error_set(error, ERR_CONTEXT_LENGTH, "%u tokens and %u more do not fit a context of %u", held,
                         span->n_rows, engine->params.context);
    return true;
}

static bool check_batch(const Engine *engine, const Batch *batch, Error *error)
{
    const EngineParams *p = &engine->params;
    uint32_t row = 0, n_logit_rows = 0;
    if (batch->n_rows == 0 || batch->n_rows > p->max_batch_rows || batch->n_spans > p->max_sequences)
        return error_set(error, ERR_INTERNAL, "a batch of %u rows in %u spans; the limits are %u and %u", batch->n_rows,
                         batch->n_spans, p->max_batch_rows, p->max_sequences);
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        if (!check_span(engine, batch, i, row, error)) return false;
        row += batch->spans[i].n_rows;
        n_logit_rows += span_logit_rows(&batch->spans[i]);
    }
    if (row != batch->n_rows) return error_set(error, ERR_INTERNAL, "spans cover %u of %u rows", row, batch->n_rows);
    if (n_logit_rows > p->max_logit_rows)
        return error_set(error, ERR_INTERNAL, "%u rows with logits, more than %u", n_logit_rows, p->max_logit_rows);
    for (uint32_t t = 0; t < batch->n_rows; t++)
        if (batch->tokens[t] >= engine->shape.n_vocab)
            return error_set(error, ERR_INVALID, "token id %u, but the vocabulary has %u", batch->tokens[t],
                             engine->shape.n_vocab);
    return true;
}

static void set_spans(Engine *engine, const Batch *batch)
{
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        const BatchSpan *span = &batch->spans[i];
        engine->seqs[i] = span->seq;
        engine->spans[i] =
            (AttnSpan){.first_row = span->first_row, .n_rows = span->n_rows, .first_pos = span->first_pos};
        for (uint32_t t = 0; t < span->n_rows; t++) engine->positions[span->first_row + t] = span->first_pos + t;
    }
}

static bool fill_rope_table(const Engine *engine, const RopeOrder *order, float *cos_sin, uint32_t n_rows)
{
    const RopeTableParams rope = {.theta = order->theta,
                                  .positions = engine->positions,
                                  .cos_sin = cos_sin,
                                  .n_tokens = n_rows,
                                  .n_pairs = engine->shape.rope_dim / 2,
                                  .magnitude = engine->shape.rope_magnitude};
    return engine->kernels->rope_table(&rope, engine->stream);
}

static bool embed_tokens(const Engine *engine, const Batch *batch)
{
    const Matrix *table = &engine->weights.token_embd;
    const EmbedParams embed = {.table = table->data,
                               .type = table->type,
                               .ids = batch->tokens,
                               .y = engine->buf.x,
                               .n_tokens = batch->n_rows,
                               .n = table->n_cols,
                               .scale = engine->shape.embed_scale};
    return engine->kernels->embed(&embed, engine->stream) &&
           fill_rope_table(engine, &engine->weights.rope, engine->buf.cos_sin, batch->n_rows) &&
           (!engine->buf.window_cos_sin ||
            fill_rope_table(engine, &engine->weights.window_rope, engine->buf.window_cos_sin, batch->n_rows));
}

/* Collects the rows that want logits; returns how many. */
static uint32_t gather_hidden(const Engine *engine, const Batch *batch)
{
    size_t n_embd = engine->shape.n_embd;
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        uint32_t wanted = span_logit_rows(&batch->spans[i]);
        uint32_t first = batch->spans[i].first_row + batch->spans[i].n_rows - wanted;
        memcpy(engine->hidden + n * n_embd, engine->buf.x + first * n_embd, wanted * n_embd * sizeof(float));
        n += wanted;
    }
    return n;
}

static bool project_logits(const Engine *engine, uint32_t n_rows)
{
    const RmsNormParams norm = {.x = engine->hidden,
                                .weight = engine->weights.output_norm,
                                .y = engine->hidden,
                                .n_rows = n_rows,
                                .n = engine->shape.n_embd,
                                .eps = engine->shape.norm_eps};
    const MatmulParams matmul = {.x = engine->hidden,
                                 .x_stride = engine->shape.n_embd,
                                 .n_tokens = n_rows,
                                 .n_cols = engine->shape.n_embd,
                                 .n_out = 1,
                                 .out = {block_matmul_out(&engine->weights.output, NULL, engine->logits, false)},
                                 .scratch = engine->buf.matmul_scratch};
    const SoftcapParams cap = {.x = engine->logits,
                               .y = engine->logits,
                               .n = (size_t)n_rows * engine->shape.n_vocab,
                               .cap = engine->shape.final_softcap};
    return n_rows == 0 ||
           (engine->kernels->rmsnorm(&norm, engine->stream) && engine->kernels->matmul(&matmul, engine->stream) &&
            (cap.cap == 0 || engine->kernels->softcap(&cap, engine->stream)));
}

/* Passes on whether the part before it succeeded. */
static bool pulse_after(const Engine *engine, bool ok)
{
    if (engine->pulse) engine->pulse(engine->pulse_arg);
    return ok;
}

static bool run_layers(const Engine *engine, const Batch *batch)
{
    const ForwardPass pass = {.kernels = engine->kernels,
                              .stream = engine->stream,
                              .shape = &engine->shape,
                              .weights = &engine->weights,
                              .kv = engine->kv,
                              .buf = &engine->buf,
                              .seqs = engine->seqs,
                              .spans = engine->spans,
                              .n_spans = batch->n_spans,
                              .n_rows = batch->n_rows};
    for (uint32_t i = 0; i < engine->shape.n_layers; i++)
        if (!pulse_after(engine, engine->family->forward_layer(&pass, i))) return false;
    return true;
}

bool engine_forward(Engine *engine, const Batch *batch, float **ret_logits, Error *error)
{
    if (!check_batch(engine, batch, error)) return false;
    set_spans(engine, batch);
    bool ok = pulse_after(engine, embed_tokens(engine, batch)) && run_layers(engine, batch) &&
              pulse_after(engine, project_logits(engine, gather_hidden(engine, batch)));
    if (!ok) return error_set(error, ERR_DEVICE, "a kernel of '%s' failed", engine->kernels->name);
    for (uint32_t i = 0; i < batch->n_spans; i++)
        kv_seq_advance(engine->kv, batch->spans[i].seq, batch->spans[i].n_rows);
    *ret_logits = engine->logits;
    return true;
}
