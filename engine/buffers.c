/* SPDX-License-Identifier: Apache-2.0 */
#include "base/carver.h"
#include "engine/device_step.h"
#include "engine/engine_state.h"

enum { BUFFER_ALIGNMENT = 256 };

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t matmul_scratch_max(const Engine *engine)
{
    const ModelShape *s = &engine->shape;
    const uint32_t cols[] = {s->n_embd, s->n_ff, s->n_heads * s->v_dim}, rows[] = {1, engine->params.max_batch_rows};
    size_t bytes = 0; /* on a device many rows may need less than a few */
    for (uint32_t i = 0; i < 3; i++) {
        bytes = max_size(bytes, engine->device->ops->matmul_scratch(rows[0], cols[i]));
        bytes = max_size(bytes, engine->device->ops->matmul_scratch(rows[1], cols[i]));
        if (rows[1] > MATMUL_CUDA_ROWS)
            bytes = max_size(bytes, engine->device->ops->matmul_scratch(MATMUL_CUDA_ROWS, cols[i]));
    }
    return bytes;
}

static size_t attend_scratch_max(const Engine *engine)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    const AttendNeed need = {.n_workers = p->n_threads,
                             .context = p->context,
                             .split_rows = device_step_split_rows(engine),
                             .is_deterministic = p->is_deterministic,
                             .n_heads = s->n_heads,
                             .n_kv_heads = s->n_kv_heads,
                             .max_dim = s->head_dim > s->v_dim ? s->head_dim : s->v_dim};
    return engine->device->ops->attend_scratch(&need);
}

/* The tables for angles of sliding-window layers are there when these turn by a base of their own. */
static float *carve_window_table(const Engine *engine, Carver *carver)
{
    size_t n = (size_t)engine->params.max_batch_rows * engine->shape.rope_dim;
    return engine->shape.window_rope_base ? carve(carver, n, sizeof(float)) : NULL;
}

static Pass lay_out_pass(const Engine *engine, Carver *host, Carver *device)
{
    size_t rows = engine->params.max_batch_rows;
    return (Pass){.spans = carve(host, engine->params.max_sequences, sizeof(BatchSpan)),
                  .rows_done = carve(host, engine->shape.n_layers, sizeof(uint32_t)),
                  .tokens = carve(host, rows, sizeof(uint32_t)),
                  .positions = carve(host, rows, sizeof(uint32_t)),
                  .x = carve(device, rows * engine->shape.n_embd, sizeof(float)),
                  .cos_sin = carve(device, rows * engine->shape.rope_dim, sizeof(float)),
                  .window_cos_sin = carve_window_table(engine, device)};
}

static void lay_out_step(Engine *engine, Carver *carver)
{
    const ModelShape *s = &engine->shape;
    size_t rows = engine->params.max_batch_rows;
    engine->buf = (StepBuffers){
        .normed = carve(carver, rows * s->n_embd, sizeof(float)),
        .q = carve(carver, rows * s->n_heads * s->head_dim, sizeof(float)),
        .k = carve(carver, rows * s->n_kv_heads * s->head_dim, sizeof(float)),
        .v = carve(carver, rows * s->n_kv_heads * s->v_dim, sizeof(float)),
        .attn = carve(carver, rows * s->n_heads * s->v_dim, sizeof(float)),
        .gate = carve(carver, rows * s->n_ff, sizeof(float)),
        .up = carve(carver, rows * s->n_ff, sizeof(float)),
        .matmul_scratch = carve(carver, matmul_scratch_max(engine), 1),
        .attention_scratch = carve(carver, attend_scratch_max(engine), 1),
    };
}

/* Rotations by as many tokens as a context has. */
static void lay_out_turns(const Engine *engine, Carver *carver, const RopeOrder *rope, RopeTurns *ret_turns)
{
    uint32_t n_pairs = engine->shape.rope_dim / 2, n_coarse = engine->params.context / ROPE_TURNS_FINE + 2;
    *ret_turns = (RopeTurns){.theta = rope->theta, .n_pairs = n_pairs, .n_coarse = n_coarse};
    ret_turns->fine = carve(carver, (size_t)ROPE_TURNS_FINE * n_pairs * 2, sizeof(float));
    ret_turns->coarse = carve(carver, (size_t)n_coarse * n_pairs * 2, sizeof(float));
}

/* What a device needs to select. */
static void lay_out_selection(Engine *engine, Carver *device)
{
    const EngineParams *p = &engine->params;
    const RopeTurns *turns = &engine->turns;
    if (!engine_bounds_on_device(engine)) return;
    engine->device_turns = *turns;
    engine->device_turns.fine = carve(device, (size_t)ROPE_TURNS_FINE * turns->n_pairs * 2, sizeof(float));
    engine->device_turns.coarse = carve(device, (size_t)turns->n_coarse * turns->n_pairs * 2, sizeof(float));
    engine->select_scratch =
        carve(device, select_scratch_bytes(p->max_sequences, engine->shape.n_kv_heads, kv_n_pages(p->context)), 1);
}

static void lay_out(Engine *engine, Carver *host, Carver *device)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    size_t n_heads = (size_t)s->n_layers * s->n_kv_heads;
    engine->plans = carve(host, POLICY_MAX_SLOTS * N_ROW_KINDS * n_heads, sizeof *engine->plans);
    lay_out_turns(engine, host, &engine->weights.rope, &engine->turns);
    lay_out_turns(engine, host, &engine->weights.window_rope, &engine->window_turns);
    lay_out_selection(engine, device);
    engine->passes = carve(host, p->max_passes, sizeof *engine->passes);
    for (uint32_t i = 0; i < p->max_passes; i++) {
        Pass pass = lay_out_pass(engine, host, device);
        if (host->base) engine->passes[i] = pass;
    }
    engine->seq_pass = carve(host, p->max_sequences, sizeof *engine->seq_pass);
    lay_out_step(engine, device);
    engine->piece_spans = carve(host, engine_piece_spans(engine), sizeof *engine->piece_spans);
    engine->spans = carve(host, engine_piece_spans(engine), sizeof *engine->spans);
    engine->span_plans = carve(host, p->max_sequences, sizeof *engine->span_plans);
    engine->span_seqs = carve(host, engine_piece_spans(engine), sizeof *engine->span_seqs);
    engine->hidden = carve(device, (size_t)p->max_logit_rows * s->n_embd, sizeof(float));
    engine->logits = carve(device, (size_t)p->max_logit_rows * s->n_vocab, sizeof(float));
}

static void fill_turns(const RopeTurns *turns)
{
    rope_turns_fill(turns, (float *)turns->fine, (float *)turns->coarse);
}

static bool send_turns(const Engine *engine)
{
    const RopeTurns *from = &engine->turns, *to = &engine->device_turns;
    if (!engine_bounds_on_device(engine)) return true;
    return device_copy(engine->device, (float *)to->fine, from->fine,
                       (size_t)ROPE_TURNS_FINE * from->n_pairs * 2 * sizeof(float)) &&
           device_copy(engine->device, (float *)to->coarse, from->coarse,
                       (size_t)from->n_coarse * from->n_pairs * 2 * sizeof(float)) &&
           device_sync(engine->device);
}

static void fill_tables(Engine *engine)
{
    fill_turns(&engine->turns);
    fill_turns(&engine->window_turns);
    policies_fill(engine);
    for (SeqId seq = 0; seq < engine->params.max_sequences; seq++) engine->seq_pass[seq] = PASS_NONE;
}

static bool measure(Engine *engine, size_t *ret_host, size_t *ret_device, Error *error)
{
    Carver host = {.alignment = BUFFER_ALIGNMENT}, device = {.alignment = BUFFER_ALIGNMENT};
    lay_out(engine, &host, &device);
    *ret_host = host.used_bytes;
    *ret_device = device.used_bytes;
    return !(host.overflow || device.overflow) ||
           error_set(error, ERR_NO_MEMORY, "no memory for the buffers of a step of %u rows",
                     engine->params.max_batch_rows);
}

bool buffers_device_bytes(const Engine *engine, uint64_t *ret_bytes, Error *error)
{
    Engine copy = *engine;
    size_t host, device;
    if (!measure(&copy, &host, &device, error)) return false;
    *ret_bytes = device;
    return true;
}

bool buffers_new(Engine *engine, Error *error)
{
    Device *device = engine->device, *host = device_host();
    if (!measure(engine, &engine->slab_bytes, &engine->device_slab_bytes, error)) return false;
    engine->slab = host->ops->alloc(host, engine->slab_bytes);
    engine->device_slab = device->ops->alloc(device, engine->device_slab_bytes);
    if (!engine->slab || !engine->device_slab)
        return error_set(error, ERR_NO_MEMORY, "no memory for the buffers of a step of %u rows",
                         engine->params.max_batch_rows);
    Carver of_host = {engine->slab, BUFFER_ALIGNMENT}, of_device = {engine->device_slab, BUFFER_ALIGNMENT};
    lay_out(engine, &of_host, &of_device);
    engine->host_logits = engine->logits;
    fill_tables(engine);
    return send_turns(engine) || error_set(error, ERR_DEVICE, "%s failed", device->name);
}

void buffers_free(Engine *engine)
{
    if (engine->slab) device_host()->ops->free(device_host(), engine->slab, engine->slab_bytes);
    if (engine->device_slab) engine->device->ops->free(engine->device, engine->device_slab, engine->device_slab_bytes);
    engine->slab = engine->device_slab = NULL;
}
