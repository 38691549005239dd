/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/alloc_count.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQS = 4, N_TOKENS = 200, MAX_PASSES = 3, MAX_LAYERS = 8, CHUNK = 90 };

static Error error;

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* One pass of the test: a span each of two sequences, and how far each layer is. */
typedef struct Flight {
    bool is_open;
    PassId id;
    BatchSpan spans[2];
    uint32_t n_rows, tokens[2 * CHUNK], done[MAX_LAYERS];
} Flight;

typedef struct Fleet {
    Engine *engine;
    uint64_t seed;
    uint32_t texts[N_SEQS][N_TOKENS];
    SeqId seqs[N_SEQS];
    float *wanted[N_SEQS]; /* [N_TOKENS, n_vocab] of the sequence alone, in one piece */
    Flight flights[2];     /* flight i serves sequences 2 i and 2 i + 1 */
} Fleet;

static void fleet_open(Fleet *fleet, Engine *engine, uint64_t seed)
{
    *fleet = (Fleet){.engine = engine, .seed = seed};
    for (uint32_t i = 0; i < N_SEQS; i++) {
        SeqId seq = engine_rig_seq(engine, 0);
        engine_rig_text(engine, i + 1, fleet->texts[i], N_TOKENS);
        fleet->wanted[i] = engine_rig_logits(engine, N_TOKENS);
        engine_rig_feed(engine, seq, ROWS_PREFILL, fleet->texts[i], N_TOKENS, 0, fleet->wanted[i]);
        engine_seq_close(engine, seq);
    }
    for (uint32_t i = 0; i < N_SEQS; i++) fleet->seqs[i] = engine_rig_seq(engine, 0);
}

static void fleet_close(Fleet *fleet)
{
    for (uint32_t i = 0; i < N_SEQS; i++) free(fleet->wanted[i]);
    engine_close(fleet->engine);
}

/* Starts a pass with up to CHUNK more tokens of each of the flight's sequences; false: they have all. */
static bool begin(Fleet *fleet, uint32_t f)
{
    Flight *flight = &fleet->flights[f];
    *flight = (Flight){.is_open = true};
    uint32_t n_spans = 0;
    for (uint32_t i = 2 * f; i < 2 * f + 2; i++) {
        uint32_t held = engine_seq_tokens(fleet->engine, fleet->seqs[i]), left = N_TOKENS - held;
        if (!left) continue;
        uint32_t n = 1 + draw(&fleet->seed, left < CHUNK ? left : CHUNK);
        flight->spans[n_spans++] = (BatchSpan){fleet->seqs[i], flight->n_rows, n, held, LOGITS_ALL, ROWS_PREFILL};
        memcpy(flight->tokens + flight->n_rows, fleet->texts[i] + held, n * sizeof *flight->tokens);
        flight->n_rows += n;
        cr_assert(engine_seq_reserve(fleet->engine, fleet->seqs[i], n, &error), "%s", error.text);
    }
    const Batch batch = {flight->tokens, flight->n_rows, flight->spans, n_spans};
    if (n_spans) cr_assert(engine_pass_begin(fleet->engine, &batch, &flight->id, &error), "%s", error.text);
    flight->is_open = n_spans;
    return n_spans;
}

/* Any piece that may come next: of any layer whose rows below are done, through as many layers as stand alike. */
static void run_piece(Fleet *fleet, Flight *flight)
{
    uint32_t n_layers = engine_shape(fleet->engine)->n_layers, layer, room = 0;
    while (!room) {
        layer = draw(&fleet->seed, n_layers);
        room = (layer ? flight->done[layer - 1] : flight->n_rows) - flight->done[layer];
    }
    WorkItem item = {flight->id, layer, 1, flight->done[layer], 1 + draw(&fleet->seed, room)};
    while (layer + item.n_layers < n_layers && flight->done[layer + item.n_layers] == item.first_row &&
           draw(&fleet->seed, 2))
        item.n_layers++;
    cr_assert(engine_pass_run(fleet->engine, &item, &error), "%s", error.text);
    for (uint32_t i = 0; i < item.n_layers; i++) flight->done[layer + i] += item.n_rows;
}

static void end(Fleet *fleet, Flight *flight)
{
    size_t n_vocab = engine_shape(fleet->engine)->n_vocab;
    float *logits;
    cr_assert(engine_pass_end(fleet->engine, flight->id, &logits, &error), "%s", error.text);
    for (uint32_t i = 0; i < 2 && flight->spans[i].n_rows; i++) {
        const BatchSpan *span = &flight->spans[i];
        uint32_t which = 0;
        while (fleet->seqs[which] != span->seq) which++;
        cr_assert_arr_eq(logits + span->first_row * n_vocab, fleet->wanted[which] + span->first_pos * n_vocab,
                         span->n_rows * n_vocab * sizeof *logits, "sequence %u from %u on", which, span->first_pos);
        cr_assert_eq(engine_seq_tokens(fleet->engine, span->seq), span->first_pos + span->n_rows);
    }
    flight->is_open = false;
}

static void fly(Engine *engine, uint64_t seed)
{
    Fleet fleet;
    fleet_open(&fleet, engine, seed);
    uint32_t n_layers = engine_shape(engine)->n_layers;
    for (bool has_more[2] = {true, true}; has_more[0] || has_more[1];) {
        uint32_t f = draw(&fleet.seed, 2);
        Flight *flight = &fleet.flights[f];
        if (!flight->is_open)
            has_more[f] = begin(&fleet, f);
        else if (flight->done[n_layers - 1] < flight->n_rows)
            run_piece(&fleet, flight);
        else
            end(&fleet, flight);
    }
    for (uint32_t i = 0; i < N_SEQS; i++) cr_expect_eq(engine_seq_tokens(engine, fleet.seqs[i]), N_TOKENS);
    fleet_close(&fleet);
}

static EngineParams params_of(KvType type)
{
    EngineParams params = engine_rig_params(kv_types_all(type), N_SEQS, N_TOKENS);
    params.max_passes = MAX_PASSES;
    params.n_threads = 2;
    return params;
}

Test(test_pass, no_slicing_changes_a_bit)
{
    static const KvType types[] = {KV_F32, KV_BF16, KV_INT8, KV_INT4};
    for (uint32_t i = 0; i < 4; i++) {
        fly(ENGINE_RIG(params_of(types[i]), "layers=4"), i);
        fly(ENGINE_RIG(params_of(types[i]), "arch=gemma3", "window=33", "layers=7"), i + 10);
    }
}

/* Runs what is left of a pass and returns its logits. */
static float *finish(Engine *engine, PassId pass, uint32_t first_layer, uint32_t n_rows)
{
    float *logits;
    const WorkItem rest = {pass, first_layer, engine_shape(engine)->n_layers - first_layer, 0, n_rows};
    cr_assert(engine_pass_run(engine, &rest, &error), "%s", error.text);
    cr_assert(engine_pass_end(engine, pass, &logits, &error), "%s", error.text);
    return logits;
}

Test(test_pass, a_sequence_may_close_in_the_middle)
{
    Fleet fleet;
    Engine *engine = ENGINE_RIG(params_of(KV_INT8), "layers=4");
    fleet_open(&fleet, engine, 3);
    size_t n_vocab = engine_shape(engine)->n_vocab;
    PassId pass, other;
    cr_assert(begin(&fleet, 0));
    Flight *flight = &fleet.flights[0];
    pass = flight->id;
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 0, 2, 0, flight->n_rows}, &error));
    uint64_t used = engine_kv_usage(engine).used_bytes;
    engine_seq_close(engine, fleet.seqs[0]);
    cr_expect_lt(engine_kv_usage(engine).used_bytes, used, "its pages are free at once");
    SeqId again = engine_rig_seq(engine, 0);
    cr_expect_eq(again, fleet.seqs[0], "the place is free too");
    const BatchSpan span = {again, 0, 10, 0, LOGITS_ALL, ROWS_PREFILL};
    cr_assert(engine_seq_reserve(engine, again, 10, &error));
    cr_assert(engine_pass_begin(engine, &(Batch){fleet.texts[2], 10, &span, 1}, &other, &error), "%s", error.text);
    float *logits = finish(engine, pass, 2, flight->n_rows);
    const BatchSpan *left = &flight->spans[1];
    cr_expect_arr_eq(logits + left->first_row * n_vocab, fleet.wanted[1], left->n_rows * n_vocab * sizeof *logits);
    cr_expect_eq(engine_seq_tokens(engine, fleet.seqs[1]), left->n_rows);
    cr_expect_eq(engine_seq_tokens(engine, again), 0, "the new one is none of this pass");
    logits = finish(engine, other, 0, 10);
    cr_expect_arr_eq(logits, fleet.wanted[2], 10 * n_vocab * sizeof *logits);
    fleet_close(&fleet);
}

Test(test_pass, a_pass_without_sequences_ends_too)
{
    Engine *engine = ENGINE_RIG(params_of(KV_F16), "layers=2");
    SeqId seq = engine_rig_seq(engine, 0);
    const BatchSpan span = {seq, 0, 5, 0, LOGITS_LAST, ROWS_PREFILL};
    const uint32_t tokens[5] = {1, 2, 3, 4, 5};
    PassId pass;
    cr_assert(engine_seq_reserve(engine, seq, 5, &error));
    cr_assert(engine_pass_begin(engine, &(Batch){tokens, 5, &span, 1}, &pass, &error));
    engine_seq_close(engine, seq);
    cr_expect_eq(engine_kv_usage(engine).used_bytes, 0);
    finish(engine, pass, 0, 5);
    engine_close(engine);
}

Test(test_pass, a_dropped_pass_leaves_no_trace)
{
    Fleet fleet;
    Engine *engine = ENGINE_RIG(params_of(KV_INT4), "layers=4");
    fleet_open(&fleet, engine, 3);
    SeqId seq = fleet.seqs[0];
    size_t n_vocab = engine_shape(engine)->n_vocab;
    engine_rig_feed(engine, seq, ROWS_PREFILL, fleet.texts[0], 50, 0, NULL);
    const BatchSpan span = {seq, 0, 100, 50, LOGITS_ALL, ROWS_PREFILL};
    PassId pass;
    cr_assert(engine_seq_reserve(engine, seq, 100, &error));
    cr_assert(engine_pass_begin(engine, &(Batch){fleet.texts[1], 100, &span, 1}, &pass, &error));
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 0, 4, 0, 90}, &error));
    engine_pass_drop(engine, pass);
    cr_expect_eq(engine_seq_tokens(engine, seq), 50);
    float *got = engine_rig_logits(engine, 150);
    engine_rig_feed(engine, seq, ROWS_PREFILL, fleet.texts[0] + 50, 150, 70, got);
    cr_expect_arr_eq(got, fleet.wanted[0] + 50 * n_vocab, 150 * n_vocab * sizeof *got);
    free(got);
    fleet_close(&fleet);
}

static void expect_no_run(Engine *engine, WorkItem item)
{
    cr_expect_not(engine_pass_run(engine, &item, &error), "layers [%u, +%u) rows [%u, +%u)", item.first_layer,
                  item.n_layers, item.first_row, item.n_rows);
    cr_expect_eq(error.code, ERR_INTERNAL);
}

Test(test_pass, refuses_what_is_not_next)
{
    Engine *engine = ENGINE_RIG(params_of(KV_F16), "layers=4");
    SeqId a = engine_rig_seq(engine, 0), b = 0;
    const BatchSpan span = {a, 0, 20, 0, LOGITS_LAST, ROWS_PREFILL};
    uint32_t tokens[20] = {0};
    const Batch batch = {tokens, 20, &span, 1};
    PassId pass = 9;
    float *logits = NULL;
    cr_expect_not(engine_pass_begin(engine, &batch, &pass, &error), "nothing is reserved");
    cr_expect_eq(pass, 9);
    cr_assert(engine_seq_reserve(engine, a, 20, &error));
    cr_assert(engine_pass_begin(engine, &batch, &pass, &error), "%s", error.text);
    static const WorkItem bad[] = {{0, 1, 1, 0, 20}, {0, 0, 0, 0, 20},         {0, 0, 5, 0, 20},
                                   {0, 0, 1, 0, 0},  {0, 0, 1, 1, 19},         {0, 0, 1, 0, 21},
                                   {0, 4, 1, 0, 20}, {0, 0, UINT32_MAX, 0, 1}, {0, 0, 1, 0, UINT32_MAX},
                                   {1, 0, 1, 0, 20}, {77, 0, 1, 0, 20}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_no_run(engine, bad[i]);
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 0, 1, 0, 10}, &error));
    expect_no_run(engine, (WorkItem){pass, 1, 1, 0, 11});
    expect_no_run(engine, (WorkItem){pass, 0, 1, 0, 10});
    expect_no_run(engine, (WorkItem){pass, 0, 2, 10, 10});
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 1, 3, 0, 10}, &error), "%s", error.text);
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 0, 3, 10, 10}, &error), "%s", error.text);
    cr_expect_not(engine_pass_end(engine, pass, &logits, &error), "a layer is left");
    cr_expect_null(logits);
    cr_expect_not(engine_seq_fork(engine, a, &b, &error), "its open page is being written");
    cr_expect_not(engine_seq_adopt(engine, a, NULL, 0, &error), "what it reserved is being written");
    cr_expect_not(engine_pass_begin(engine, &batch, &pass, &error), "a sequence is in one pass");
    cr_expect_not(engine_forward(engine, &batch, &logits, &error));
    cr_assert(engine_pass_run(engine, &(WorkItem){pass, 3, 1, 10, 10}, &error));
    cr_assert(engine_pass_end(engine, pass, &logits, &error));
    cr_expect_not(engine_pass_end(engine, pass, &logits, &error), "it has ended");
    engine_close(engine);
}

Test(test_pass, has_places_for_some_and_allocates_for_none)
{
    Engine *engine = ENGINE_RIG(params_of(KV_INT8), "layers=2");
    uint64_t before = alloc_count();
    PassId passes[MAX_PASSES], one_more;
    SeqId seqs[MAX_PASSES + 1];
    const uint32_t token = 5;
    for (uint32_t i = 0; i <= MAX_PASSES; i++) {
        cr_assert(engine_seq_new(engine, 0, &seqs[i], &error));
        cr_assert(engine_seq_reserve(engine, seqs[i], 1, &error));
        const BatchSpan span = {seqs[i], 0, 1, 0, LOGITS_LAST, ROWS_DECODE};
        bool ok =
            engine_pass_begin(engine, &(Batch){&token, 1, &span, 1}, i < MAX_PASSES ? &passes[i] : &one_more, &error);
        cr_assert_eq(ok, i < MAX_PASSES);
    }
    cr_expect_eq(error.code, ERR_BUSY);
    for (uint32_t i = 0; i < MAX_PASSES; i++) finish(engine, passes[MAX_PASSES - 1 - i], 0, 1);
    cr_expect_eq(alloc_count(), before);
    engine_close(engine);
}
