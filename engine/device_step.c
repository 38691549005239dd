/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_step.h"

#include "engine/device_logits.h"
#include "engine/device_packet.h"
#include "engine/device_plans.h"

#include <stdlib.h>
#include <string.h>

enum { SPLIT_SPAN_ROWS = 16, SPLIT_ROWS_MORE = 64, RUNS_TO_NEXT_TRY = 256 };

/*
 * Kinds of steps; a graph for each. By what is known of the longest context (KvLaunch.most_keys); those with bands
 * (KvLaunch.has_bands); those whose rows select, with bands and without; and of one row without also those with the
 * same layers due, which come round again: others need no launch for that.
 */
static const uint32_t reaches[] = {256, 2048, 0};
enum {
    KIND_ALL = sizeof reaches / sizeof *reaches - 1,
    KIND_BANDS,
    KIND_SELECTED,
    KIND_SELECTED_BANDS,
    KIND_DUE, /* the first of N_DUE */
    N_DUE = 16,
    N_KINDS = KIND_DUE + N_DUE,
    MOST_NEAR_ROWS = 2
};

/* Sizes that steps are padded to. Up to 16 rows the products take them in one go, from 33 on they go to cuBLAS. */
static const uint32_t sizes[] = {1,  2,  3,  4,  5,  6,  7,   8,   12,  16,  20,  24,  28,  32,
                                 40, 48, 56, 64, 80, 96, 128, 160, 192, 256, 320, 384, 448, 512};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

struct DeviceStep {
    char *packets; /* [DEVICE_FENCES, packet_bytes] pinned */
    bool is_sent[DEVICE_FENCES];
    uint32_t next;
    size_t packet_bytes;
    /* On the device, in one piece. */
    char *memory;
    uint64_t bytes;
    char *place; /* [packet_bytes] */
    DevicePlans plans;
    Pass pass; /* of steps: its rows */
    uint32_t max_rows;
    uint32_t types; /* of all classes, as KvLaunch has them */
    DeviceGraph *graphs[N_KINDS][N_SIZES];
    /* Until a graph is made: one sets up what a first launch does, more after a failure. */
    uint32_t plain_runs[N_KINDS][N_SIZES];
    AttnPlan *looked;      /* [engine_piece_spans, n_kv_heads] of the host, for who looks at a layer */
    const DigestAsk *asks; /* of the step that ran last, in its place */
    uint64_t due_layers;   /* Piece.due_layers of the packet that was put together last */
    uint64_t due[N_DUE];   /* [n_due] the same of each kind */
    uint32_t n_due;
};

/* ---- the packet ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A packet that the device does not read any more; NULL: the device failed. */
static char *packet_take(Engine *engine)
{
    DeviceStep *step = engine->step;
    uint32_t i = step->next % DEVICE_FENCES;
    if (step->is_sent[i] && !engine->device->ops->wait(engine->device, i)) return NULL;
    return step->packets + i * step->packet_bytes;
}

static bool packet_send(Engine *engine, const char *packet, size_t bytes)
{
    DeviceStep *step = engine->step;
    uint32_t i = step->next++ % DEVICE_FENCES;
    step->is_sent[i] = true;
    return device_copy(engine->device, step->place, packet, bytes) && engine->device->ops->fence(engine->device, i);
}

static uint32_t slot_of(const Engine *engine, SeqId seq)
{
    return policy_slot(kv_seq_policy(engine->seqs, seq));
}

/* What the row of a piece's span, its only one, has to do with selection. */
static SelectRow row_of(const Engine *engine, const PieceSpan *span)
{
    uint32_t slot = slot_of(engine, span->seq);
    return (SelectRow){.seq = span->seq,
                       .position = span->first_pos,
                       .policy = &engine->policies[slot].policy,
                       .plans = engine_plans(engine, slot, ROWS_DECODE),
                       .heads = engine->classes.policies[slot].heads,
                       .classes = kv_seq_views(engine->seqs, span->seq)};
}

static bool span_selects(const Engine *engine, const PieceSpan *span)
{
    if (span->seq == SEQ_NONE || span->kind != ROWS_DECODE || !engine->max_list) return false;
    const SelectRow row = row_of(engine, span);
    return selector_row_selects(engine->selector, &row);
}

/* Of engine->piece_spans. */
static bool some_select(const Engine *engine, uint32_t n_spans)
{
    bool found = false;
    for (uint32_t i = 0; i < n_spans; i++) found |= span_selects(engine, &engine->piece_spans[i]);
    return found;
}

static uint32_t count_closed(const Engine *engine, uint32_t n_spans)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_spans; i++) {
        const PieceSpan *span = &engine->piece_spans[i];
        if (span->seq != SEQ_NONE)
            n += (span->first_pos + span->n_rows) / KV_PAGE_TOKENS - span->first_pos / KV_PAGE_TOKENS;
    }
    return n;
}

/* A range of layers of a packet, and the spans that it has room for. */
typedef struct PacketRange {
    uint32_t n_padded, first_layer, n_layers;
} PacketRange;

/* Plans of span i, and what it selects. */
static void put_plans(Engine *engine, char *packet, const Packet *at, const PacketRange *range, uint32_t i)
{
    const SelectRow row = row_of(engine, &engine->piece_spans[i]);
    AttnPlan *plans = (AttnPlan *)(void *)(packet + at->plans) + i * at->n_plans;
    SelectJob *jobs = (SelectJob *)(void *)(packet + at->jobs);
    for (uint32_t i_layer = 0; i_layer < range->n_layers; i_layer++) {
        uint32_t layer = range->first_layer + i_layer;
        SelectJob *job = &jobs[(size_t)i_layer * range->n_padded + i];
        AttnPlan *own = plans + (size_t)i_layer * engine->shape.n_kv_heads;
        selector_plan_row(engine->selector, &row, layer, own, job);
        for (uint32_t h = 0; h < engine->shape.n_kv_heads; h++)
            own[h].bands = device_plans_bands(engine, &engine->step->plans, slot_of(engine, row.seq), own[h].bands);
        if (layer < 64 && job->n_keep) engine->step->due_layers |= UINT64_C(1) << layer;
    }
}

/* Spans [n_spans] of engine->piece_spans, then those of 0 rows up to n_padded. */
static bool put_spans(Engine *engine, char *packet, const Packet *at, uint32_t n_spans, const PacketRange *range)
{
    DeviceStep *step = engine->step;
    step->due_layers = 0;
    const uint32_t n_padded = range->n_padded, first_layer = range->first_layer, n_layers = range->n_layers;
    size_t n_kv_heads = engine->shape.n_kv_heads;
    const AttnPlan *own_plans = (const AttnPlan *)(void *)(step->place + at->plans);
    KvPages *views = (KvPages *)(void *)(packet + at->views);
    const KvPages *device_views = (const KvPages *)(void *)(step->place + at->views);
    KvSpan *spans = (KvSpan *)(void *)(packet + at->spans);
    memset(spans, 0, (size_t)n_layers * n_padded * sizeof *spans);
    if (at->n_plans) memset(packet + at->jobs, 0, (size_t)n_layers * n_padded * sizeof(SelectJob));
    for (uint32_t i = 0; i < n_spans; i++) {
        const PieceSpan *from = &engine->piece_spans[i];
        if (from->seq == SEQ_NONE) continue;
        const uint32_t slot = slot_of(engine, from->seq);
        if (!kv_seq_device_views(engine->seqs, from->seq, views + (size_t)i * KV_MAX_CLASSES)) return false;
        KvSpan span = {.classes = device_views + (size_t)i * KV_MAX_CLASSES,
                       .heads = device_plans_heads(engine, &step->plans, slot) + first_layer * n_kv_heads,
                       .plans = device_plans_of(engine, &step->plans, from) + first_layer * n_kv_heads,
                       .first_row = from->first_row,
                       .n_rows = from->n_rows,
                       .first_pos = from->first_pos,
                       .is_split = from->is_split};
        if (at->n_plans && span_selects(engine, from)) {
            put_plans(engine, packet, at, range, i);
            span.plans = own_plans + i * at->n_plans;
        }
        for (uint32_t layer = 0; layer < n_layers; layer++) {
            spans[(size_t)layer * n_padded + i] = span;
            span.heads += n_kv_heads;
            span.plans += n_kv_heads;
        }
    }
    return true;
}

bool device_step_rows(Engine *engine, const Pass *pass, const uint32_t **ret_ids, const uint32_t **ret_positions)
{
    const Packet at = packet_of((PacketShape){.n_rows = pass->n_rows});
    char *packet = packet_take(engine);
    if (!packet) return false;
    memcpy(packet, pass->tokens, pass->n_rows * sizeof *pass->tokens);
    memcpy(packet + at.positions, pass->positions, pass->n_rows * sizeof *pass->positions);
    *ret_ids = (const uint32_t *)(void *)engine->step->place;
    *ret_positions = (const uint32_t *)(void *)(engine->step->place + at.positions);
    return packet_send(engine, packet, at.bytes);
}

/* ---- pieces ---- */

uint32_t device_step_split_rows(const Engine *engine)
{
    return engine->params.max_sequences + SPLIT_ROWS_MORE;
}

/*
 * Few rows that may look far back are shared out over the device; many keep it busy by themselves. The two ways differ
 * in their bits: where those may not depend on the batch, the row's kind decides.
 */
static KvLaunch choose_split(Engine *engine, uint32_t n_spans)
{
    KvLaunch launch = {
        .types = engine->step->types, .is_deterministic = engine->params.is_deterministic, .is_early = true};
    uint32_t most = SPLIT_SPAN_ROWS, left = device_step_split_rows(engine);
    if (n_spans > SPLIT_ROWS_MORE / SPLIT_SPAN_ROWS) most = 1;
    for (uint32_t i = 0; i < n_spans; i++) {
        PieceSpan *span = &engine->piece_spans[i];
        span->is_split =
            launch.is_deterministic ? span->kind == ROWS_DECODE : span->n_rows <= most && span->n_rows <= left;
        launch.has_bands |= device_plans_cut(engine, span);
        if (!span->is_split) {
            launch.tiled_rows += span->n_rows;
            continue;
        }
        left -= span->n_rows;
        if (span->n_rows > launch.split_rows) launch.split_rows = span->n_rows;
    }
    return launch;
}

bool device_step_piece(Engine *engine, uint32_t n_spans, uint32_t first_layer, uint32_t n_layers, Piece *ret_piece)
{
    const char *place = engine->step->place;
    const PacketRange range = {n_spans, first_layer, n_layers};
    size_t n_plans = some_select(engine, n_spans) ? (size_t)n_layers * engine->shape.n_kv_heads : 0;
    const Packet at = packet_of((PacketShape){.n_spans = n_spans,
                                              .n_layers = n_layers,
                                              .n_plans = n_plans,
                                              .n_planned = least(n_spans, engine->params.max_sequences)});
    char *packet = packet_take(engine);
    *ret_piece = (Piece){.n_spans = n_spans,
                         .first_layer = first_layer,
                         .spans = (const KvSpan *)(const void *)(place + at.spans),
                         .layer_stride = n_spans ? n_spans : 1,
                         .jobs = n_plans ? (const SelectJob *)(const void *)(place + at.jobs) : NULL,
                         .n_closed = count_closed(engine, n_spans),
                         .launch = choose_split(engine, n_spans),
                         .packet = packet};
    if (!packet || !put_spans(engine, packet, &at, n_spans, &range)) return false;
    ret_piece->due_layers = engine->step->due_layers;
    return packet_send(engine, packet, at.bytes);
}

/* The host's copy of what lies in the packet of a piece; NULL: it does not. */
static const char *copied(const Engine *engine, const Piece *piece, const void *at)
{
    size_t offset = (size_t)((const char *)at - engine->step->place);
    return offset < engine->step->packet_bytes ? piece->packet + offset : NULL;
}

LayerTrace device_step_trace(const Engine *engine, const Piece *piece, uint32_t layer)
{
    size_t at = (size_t)(layer - piece->first_layer) * piece->layer_stride;
    const size_t n_kv_heads = engine->shape.n_kv_heads;
    const KvSpan *spans = (const KvSpan *)(const void *)copied(engine, piece, piece->spans + at);
    for (uint32_t i = 0; i < piece->n_spans; i++) {
        const PieceSpan *from = &engine->piece_spans[i];
        KvSpan *span = &engine->spans[i];
        engine->span_seqs[i] = from->seq;
        *span = spans[i];
        if (from->seq == SEQ_NONE) continue; /* no rows */
        uint32_t slot = slot_of(engine, from->seq);
        const AttnPlan *own = (const AttnPlan *)(const void *)copied(engine, piece, span->plans);
        span->classes = kv_seq_views(engine->seqs, from->seq);
        span->heads = engine->classes.policies[slot].heads + layer * n_kv_heads;
        AttnPlan *plans = engine->step->looked + i * n_kv_heads;
        device_plans_look(engine, from, layer, own, plans);
        span->plans = plans;
    }
    return (LayerTrace){.n_spans = piece->n_spans,
                        .spans = engine->spans,
                        .seqs = engine->span_seqs,
                        .jobs = piece->jobs ? (const SelectJob *)(const void *)copied(engine, piece, piece->jobs + at)
                                            : NULL,
                        .device = engine->device};
}

/* ---- steps ---- */

bool device_step_takes(const Engine *engine, const Batch *batch)
{
    if (batch->n_rows > engine->step->max_rows || batch->n_rows != batch->n_spans || engine->trace) return false;
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        if (batch->spans[i].logits == LOGITS_NONE) return false;
        if (engine->params.is_deterministic && batch->spans[i].kind != ROWS_DECODE) return false; /* choose_split */
    }
    return true;
}

static uint32_t size_of(const DeviceStep *step, uint32_t size)
{
    return sizes[size] < step->max_rows ? sizes[size] : step->max_rows;
}

static Packet packet_of_step(const Engine *engine, uint32_t n_rows, bool selects)
{
    const uint32_t n_layers = engine->shape.n_layers;
    size_t n_plans = selects ? (size_t)n_layers * engine->shape.n_kv_heads : 0;
    return packet_of((PacketShape){.n_rows = n_rows,
                                   .n_spans = n_rows,
                                   .n_layers = n_layers,
                                   .n_plans = n_plans,
                                   .n_planned = n_rows,
                                   .n_asks = n_rows});
}

static Piece piece_of_step(const Engine *engine, uint32_t n_rows, uint32_t kind)
{
    const DeviceStep *step = engine->step;
    const Packet at = packet_of_step(engine, n_rows, kind >= KIND_SELECTED);
    return (Piece){.n_spans = n_rows,
                   .spans = (const KvSpan *)(void *)(step->place + at.spans),
                   .layer_stride = n_rows,
                   .jobs = at.n_plans ? (const SelectJob *)(void *)(step->place + at.jobs) : NULL,
                   .due_layers = kind >= KIND_DUE ? step->due[kind - KIND_DUE] : UINT64_MAX,
                   .launch = {.types = step->types,
                              .split_rows = 1,
                              .is_deterministic = engine->params.is_deterministic,
                              .most_keys = kind <= KIND_ALL ? reaches[kind] : 0,
                              .has_bands = kind == KIND_BANDS || kind == KIND_SELECTED_BANDS,
                              .is_early = true}};
}

/* All launches of a step of so many rows, whose packet is in its place. */
static bool launch_step(Engine *engine, uint32_t n_rows, uint32_t kind)
{
    DeviceStep *step = engine->step;
    const Packet at = packet_of_step(engine, n_rows, kind >= KIND_SELECTED);
    const Piece piece = piece_of_step(engine, n_rows, kind);
    step->pass.n_rows = n_rows;
    if (!forward_embed(engine, &step->pass, (const uint32_t *)(void *)step->place,
                       (const uint32_t *)(void *)(step->place + at.positions)))
        return false;
    for (uint32_t layer = 0; layer < engine->shape.n_layers; layer++)
        if (!forward_layer(engine, &step->pass, &piece, layer, 0, n_rows)) return false;
    return forward_output(engine, step->pass.x, n_rows);
}

static bool make_graph(Engine *engine, uint32_t size, uint32_t kind)
{
    const DeviceOps *ops = engine->device->ops;
    if (!ops->graph_begin(engine->device)) return false;
    bool ok = launch_step(engine, size_of(engine->step, size), kind);
    DeviceGraph *graph = ops->graph_end(engine->device);
    if (ok)
        engine->step->graphs[kind][size] = graph;
    else
        ops->graph_free(graph);
    return ok && graph;
}

static bool put_step(Engine *engine, const Pass *pass, uint32_t n_rows, bool selects)
{
    const Packet at = packet_of_step(engine, n_rows, selects);
    const PacketRange range = {.n_padded = n_rows, .n_layers = engine->shape.n_layers};
    char *packet = packet_take(engine);
    if (!packet) return false;
    memset(packet, 0, at.views); /* rows behind the last one are token 0 at position 0 */
    memcpy(packet, pass->tokens, pass->n_rows * sizeof *pass->tokens);
    memcpy(packet + at.positions, pass->positions, pass->n_rows * sizeof *pass->positions);
    memset(packet + at.asks, 0, n_rows * sizeof *pass->asks);
    device_logits_ask(engine, pass, (DigestAsk *)(void *)(packet + at.asks));
    engine->step->asks = (const DigestAsk *)(const void *)(engine->step->place + at.asks);
    return put_spans(engine, packet, &at, pass->n_spans, &range) && packet_send(engine, packet, at.bytes);
}

static void set_piece_spans(Engine *engine, const Pass *pass)
{
    for (uint32_t i = 0; i < pass->n_spans; i++) {
        const BatchSpan *span = &pass->spans[i];
        engine->piece_spans[i] = (PieceSpan){span->seq, span->kind, i, 1, span->first_pos, true};
    }
}

static bool has_bands(const Engine *engine, uint32_t n_spans)
{
    for (uint32_t i = 0; i < n_spans; i++)
        if (device_plans_cut(engine, &engine->piece_spans[i])) return true;
    return false;
}

/* Of rows that neither select nor have bands. Of few: what many do does not follow from it. */
static uint32_t kind_by_reach(const Pass *pass)
{
    uint32_t most = 0, kind = 0;
    if (pass->n_spans > MOST_NEAR_ROWS) return KIND_ALL;
    for (uint32_t i = 0; i < pass->n_spans; i++)
        if (pass->spans[i].first_pos >= most) most = pass->spans[i].first_pos + 1;
    while (kind < KIND_ALL && most > reaches[kind]) kind++;
    return kind;
}

/* One row's, of the packet that was put together last. */
static uint32_t kind_by_due(DeviceStep *step)
{
    uint32_t i = 0;
    while (i < step->n_due && step->due[i] != step->due_layers) i++;
    if (i == N_DUE) return KIND_SELECTED;
    if (i == step->n_due) step->due[step->n_due++] = step->due_layers;
    return KIND_DUE + i;
}

static uint32_t kind_of(Engine *engine, const Pass *pass, uint32_t n_rows, bool selects)
{
    if (has_bands(engine, pass->n_spans)) return selects ? KIND_SELECTED_BANDS : KIND_BANDS;
    if (!selects) return kind_by_reach(pass);
    return n_rows > 1 ? KIND_SELECTED : kind_by_due(engine->step);
}

static bool run_graph(Engine *engine, uint32_t size, uint32_t kind)
{
    DeviceStep *step = engine->step;
    uint32_t *plain_runs = &step->plain_runs[kind][size];
    DeviceGraph *const *graph = &step->graphs[kind][size];
    if (!*graph && *plain_runs) {
        --*plain_runs;
        return launch_step(engine, size_of(step, size), kind);
    }
    if (*graph || make_graph(engine, size, kind)) return engine->device->ops->graph_run(engine->device, *graph);
    *plain_runs = RUNS_TO_NEXT_TRY;
    return launch_step(engine, size_of(step, size), kind);
}

bool device_step_run(Engine *engine, const Pass *pass)
{
    DeviceStep *step = engine->step;
    set_piece_spans(engine, pass);
    bool selects = some_select(engine, pass->n_spans);
    uint32_t size = 0;
    while (size_of(step, size) < pass->n_rows) size++;
    const uint32_t n_rows = size_of(step, size);
    if (!put_step(engine, pass, n_rows, selects)) return false;
    uint32_t kind = kind_of(engine, pass, n_rows, selects);
    if (!run_graph(engine, size, kind)) return false;
    Piece piece = piece_of_step(engine, n_rows, kind);
    piece.n_closed = count_closed(engine, pass->n_spans);
    return forward_bounds(engine, &piece, engine->shape.n_layers); /* of a page in 64 steps */
}

bool device_step_prepare(Engine *engine)
{
    uint32_t none = 0;
    DeviceStep *step = engine->step;
    const Pass nobody = {.tokens = &none, .positions = &none};
    uint32_t n_rows = 0;
    for (uint32_t size = 0; n_rows < step->max_rows; size++) {
        n_rows = size_of(step, size);
        for (uint32_t kind = n_rows > MOST_NEAR_ROWS ? KIND_ALL : 0; kind <= KIND_ALL; kind++)
            for (int run = 0; run < 2; run++) /* plain, then as a graph */
                if (!put_step(engine, &nobody, n_rows, false) || !run_graph(engine, size, kind)) return false;
    }
    return device_sync(engine->device);
}

/* ---- memory ---- */

typedef struct Sizes {
    uint64_t packet, plans, x, table, window_table;
} Sizes;

uint32_t device_step_max_rows(const Engine *engine)
{
    const EngineParams *p = &engine->params;
    return least(least(p->max_sequences, p->max_batch_rows), least(p->max_logit_rows, sizes[N_SIZES - 1]));
}

static Sizes measure(const Engine *engine)
{
    const ModelShape *s = &engine->shape;
    const EngineParams *p = &engine->params;
    uint64_t n_heads = (uint64_t)s->n_layers * s->n_kv_heads, rows = device_step_max_rows(engine);
    const PacketShape packet = {.n_rows = p->max_batch_rows,
                                .n_spans = engine_piece_spans(engine),
                                .n_layers = s->n_layers,
                                .n_plans = engine->max_list ? n_heads : 0,
                                .n_planned = p->max_sequences,
                                .n_asks = rows};
    Sizes bytes = {.packet = packet_aligned(packet_of(packet).bytes),
                   .plans = packet_aligned(device_plans_bytes(engine)),
                   .x = packet_aligned(rows * s->n_embd * sizeof(float)),
                   .table = packet_aligned(rows * s->rope_dim * sizeof(float))};
    bytes.window_table = s->window_rope_base ? bytes.table : 0;
    return bytes;
}

static uint64_t sum(const Sizes *bytes)
{
    return bytes->packet + bytes->plans + bytes->x + bytes->table + bytes->window_table;
}

uint64_t device_step_bytes(const Engine *engine)
{
    const Sizes bytes = measure(engine);
    return sum(&bytes);
}

static void place_parts(const Engine *engine, const Sizes *bytes)
{
    DeviceStep *step = engine->step;
    char *plans = step->memory + bytes->packet;
    step->place = step->memory;
    device_plans_place(engine, &step->plans, plans);
    step->pass.x = (float *)(void *)(plans + bytes->plans);
    step->pass.cos_sin = (float *)(void *)((char *)step->pass.x + bytes->x);
    if (bytes->window_table) step->pass.window_cos_sin = (float *)(void *)((char *)step->pass.cos_sin + bytes->table);
}

const DigestAsk *device_step_asks(const Engine *engine)
{
    return engine->step->asks;
}

bool device_step_policy(Engine *engine, uint32_t slot)
{
    return device_plans_send(engine, &engine->step->plans, slot);
}

static bool send_tables(Engine *engine)
{
    for (uint32_t i = 0; i < engine->n_policies; i++)
        if (!device_step_policy(engine, i)) return false;
    for (uint32_t i = 0; i < engine->classes.n_classes; i++)
        engine->step->types |= 1u << engine->classes.classes[i].type;
    return true;
}

bool device_step_new(Engine *engine, Error *error)
{
    Device *device = engine->device;
    const Sizes bytes = measure(engine);
    DeviceStep *step = engine->step = calloc(1, sizeof *step);
    if (!step) return error_set(error, ERR_NO_MEMORY, "no memory for the steps of a device");
    step->max_rows = device_step_max_rows(engine);
    step->looked = calloc((size_t)engine_piece_spans(engine) * engine->shape.n_kv_heads, sizeof *step->looked);
    if (!step->looked) return error_set(error, ERR_NO_MEMORY, "no memory for the steps of a device");
    for (uint32_t kind = 0; kind < N_KINDS; kind++)
        for (uint32_t i = 0; i < N_SIZES; i++) step->plain_runs[kind][i] = 1;
    step->packet_bytes = bytes.packet;
    step->bytes = sum(&bytes);
    step->packets = device->ops->pin(device, DEVICE_FENCES * bytes.packet);
    step->memory = device->ops->alloc(device, step->bytes);
    if (!step->packets || !step->memory)
        return error_set(error, ERR_NO_MEMORY, "no memory that %s and the host share for the steps", device->name);
    place_parts(engine, &bytes);
    return send_tables(engine) || error_set(error, ERR_DEVICE, "%s failed", device->name);
}

void device_step_free(Engine *engine)
{
    DeviceStep *step = engine->step;
    Device *device = engine->device;
    if (!step) return;
    for (uint32_t kind = 0; kind < N_KINDS; kind++)
        for (uint32_t i = 0; i < N_SIZES; i++) device->ops->graph_free(step->graphs[kind][i]);
    device->ops->unpin(device, step->packets, DEVICE_FENCES * step->packet_bytes);
    device->ops->free(device, step->memory, step->bytes);
    free(step->looked);
    free(step);
    engine->step = NULL;
}
