/* SPDX-License-Identifier: Apache-2.0 */
/* Selection in an engine: what a row sees depends on its tokens, its policy and where decoding began, and nothing else.
 */
#include "tests/support/alloc_count.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 389, N_DECODED = 75, N_TOKENS = N_PROMPT + N_DECODED, N_POLICIES = 9, MAX_ROWS = N_TOKENS };

static Error error;

static const uint8_t streams[4 * 2] = {1, 0, 0, 1, 1, 0, 0, 0};
static const HeadRoles roles = {"some", streams};

/* One for each way to select; index 0 of the engine's is dense. */
static const AttnPolicy policies[N_POLICIES] = {
    {.name = "dense"},
    {.name = "all",
     .selection = {.planner = "hip",
                   .stages = {{SCAN_BOX, 16, 1 << 20, 4}, {SCAN_EXACT, 16, 1 << 20, 2}},
                   .n_stages = 2,
                   .sink = 64,
                   .recent = 64}},
    {.name = "pages",
     .selection = {.planner = "pages",
                   .stages = {{SCAN_BOX, 64, PLAN_ALL, 4}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 64,
                   .budget = 300,
                   .bypass = 300,
                   .prefill_from = PLAN_ALL}},
    {.name = "hip",
     .selection = {.planner = "hip",
                   .stages = {{SCAN_CENTER, 16, 160, 16}, {SCAN_MEAN, 16, 96, 8}, {SCAN_EXACT, 16, 48, 4}},
                   .n_stages = 3,
                   .sink = 64,
                   .recent = 128,
                   .scan_positions = SCAN_RELATIVE,
                   .early_scan_positions = SCAN_CHUNK_INDEXED,
                   .early_layers = 3,
                   .early_keep_tokens = 80,
                   .row_stride = 4,
                   .n_probes = 4,
                   .audit_interval = 5}},
    {.name = "every",
     .selection = {.planner = "oracle", .stages = {{SCAN_EXACT, 16, 64, 1}}, .n_stages = 1, .sink = 64, .recent = 64}},
    {.name = "random",
     .selection = {.planner = "random",
                   .stages = {{SCAN_EXACT, 32, 64, 8}},
                   .n_stages = 1,
                   .sink = 0,
                   .recent = 64,
                   .delta_stride = 16}},
    {.name = "adaptive",
     .selection = {.planner = "pages",
                   .stages = {{SCAN_DESCENT, 64, PLAN_ALL, 6}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 64,
                   .budget = 256,
                   .bypass = 256,
                   .n_probes = 3,
                   .max_missing_mass = 0.05f}},
    {.name = "mixed",
     .roles = &roles,
     .sink = 64,
     .recent_prefill = 128,
     .recent_decode = 64,
     .selection = {.planner = "pages",
                   .stages = {{SCAN_BOX, 64, 64, 4}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 64,
                   .prefill_from = PLAN_ALL},
     .wavelength = {.k_prefill = 4, .k_decode = 2}},
    {.name = "packed",
     .roles = &roles,
     .sink = 64,
     .recent_prefill = 64,
     .recent_decode = 64,
     .selection = {.planner = "hip",
                   .stages = {{SCAN_EXACT, 16, 64, 4}},
                   .n_stages = 1,
                   .sink = 64,
                   .recent = 64,
                   .scan_positions = SCAN_RELATIVE},
     .positions = POSITIONS_PACKED},
};

/* trained: "context=N" of the model: of what is beyond, packed positions tell nothing. */
static Engine *open_trained(KvType type, uint32_t n_threads, const char *trained)
{
    EngineParams params = engine_rig_params(kv_types_all(type), 4, MAX_ROWS);
    params.policies = policies;
    params.n_policies = N_POLICIES;
    params.n_threads = n_threads;
    params.max_passes = 2;
    params.context = N_TOKENS;
    return ENGINE_RIG(params, "layers=4", trained);
}

static Engine *open_engine(KvType type, uint32_t n_threads)
{
    return open_trained(type, n_threads, "context=320");
}

/* A text under a policy: all logits of it alone, prompt in one piece, decoded rows one by one. */
typedef struct Case {
    Engine *engine;
    PolicyId policy;
    size_t n_vocab;
    uint32_t tokens[N_TOKENS];
    float *wanted; /* [N_TOKENS, n_vocab] */
} Case;

static Case case_open(Engine *engine, PolicyId policy)
{
    Case c = {.engine = engine, .policy = policy, .n_vocab = engine_shape(engine)->n_vocab};
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_text(engine, policy + 3, c.tokens, N_TOKENS);
    c.wanted = engine_rig_logits(engine, N_TOKENS);
    engine_rig_feed(engine, seq, ROWS_PREFILL, c.tokens, N_PROMPT, 0, c.wanted);
    engine_rig_feed(engine, seq, ROWS_DECODE, c.tokens + N_PROMPT, N_DECODED, 1, c.wanted + N_PROMPT * c.n_vocab);
    engine_seq_close(engine, seq);
    return c;
}

static void expect_same(const Case *c, uint32_t first, uint32_t n, const float *got, const char *what)
{
    uint32_t i = 0;
    while (i < n && !memcmp(got + i * c->n_vocab, c->wanted + (first + i) * c->n_vocab, c->n_vocab * sizeof *got)) i++;
    cr_expect_eq(i, n, "%s under '%s': row %u of %u rows from %u on", what, policies[c->policy].name, i, n, first);
}

/* Runs the next n tokens in chunks and compares their logits. */
static void expect_next(const Case *c, SeqId seq, RowKind kind, uint32_t n, uint32_t chunk, const char *what)
{
    uint32_t first = engine_seq_tokens(c->engine, seq);
    float *got = engine_rig_logits(c->engine, n);
    engine_rig_feed(c->engine, seq, kind, c->tokens + first, n, chunk, got);
    expect_same(c, first, n, got, what);
    free(got);
}

static SeqId prompt_of(const Case *c)
{
    SeqId seq = engine_rig_seq(c->engine, c->policy);
    engine_rig_feed(c->engine, seq, ROWS_PREFILL, c->tokens, N_PROMPT, 0, NULL);
    return seq;
}

/* ---- ranges and lists ---- */

Test(test_selector, a_list_of_everything_is_dense_attention)
{
    for (KvType type = 0; type < KV_N_TYPES; type++) {
        Engine *engine = open_engine(type, 1);
        Case all = case_open(engine, 1);
        SeqId seq = engine_rig_seq(engine, 0);
        expect_next(&all, seq, ROWS_PREFILL, N_PROMPT, 0, "dense");
        expect_next(&all, seq, ROWS_DECODE, N_DECODED, 1, "dense");
        engine_seq_close(engine, seq);
        free(all.wanted);
        engine_close(engine);
    }
}

Test(test_selector, chunks_and_rows_together_change_nothing)
{
    static const uint32_t chunks[] = {64, 192};
    for (KvType type = 0; type < KV_N_TYPES; type++) {
        Engine *engine = open_engine(type, 1);
        for (PolicyId policy = 1 + type % 2; policy < N_POLICIES; policy += 2) {
            Case c = case_open(engine, policy);
            for (uint32_t i = 0; i < 2; i++) {
                SeqId seq = engine_rig_seq(engine, policy);
                expect_next(&c, seq, ROWS_PREFILL, N_PROMPT, chunks[i], "chunks");
                expect_next(&c, seq, ROWS_DECODE, N_DECODED, 1 + 17 * i, "decoded rows");
                engine_seq_close(engine, seq);
            }
            free(c.wanted);
        }
        engine_close(engine);
    }
}

/* ---- what a sequence keeps ---- */

/* All cases in one batch, joining one after the other, and leaving; their order changes at each step. */
Test(test_selector, nobody_reads_the_lists_of_another)
{
    Engine *engine = open_engine(KV_INT8, 2);
    const PolicyId of[] = {3, 6, 2};
    Case cases[3];
    SeqId seqs[3];
    uint32_t n_done[3] = {0};
    for (uint32_t i = 0; i < 3; i++) cases[i] = case_open(engine, of[i]);
    for (uint32_t step = 0; n_done[2] < N_DECODED; step++) {
        BatchSpan spans[3];
        uint32_t tokens[3], who[3], n = 0;
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t i = (k + step) % 3;
            if (step == 5 * i) seqs[i] = prompt_of(&cases[i]);
            if (step < 5 * i || n_done[i] == N_DECODED) continue;
            uint32_t position = N_PROMPT + n_done[i];
            who[n] = i;
            tokens[n] = cases[i].tokens[position];
            spans[n] = (BatchSpan){seqs[i], n, 1, position, LOGITS_ALL, ROWS_DECODE};
            n++;
        }
        float *logits;
        cr_assert(engine_forward(engine, &(Batch){tokens, n, spans, n}, &logits, &error), "%s", error.text);
        for (uint32_t j = 0; j < n; j++) {
            const Case *c = &cases[who[j]];
            expect_same(c, N_PROMPT + n_done[who[j]], 1, logits + j * c->n_vocab, "beside others");
            if (++n_done[who[j]] == N_DECODED) engine_seq_close(engine, seqs[who[j]]);
        }
    }
    for (uint32_t i = 0; i < 3; i++) free(cases[i].wanted);
    engine_close(engine);
}

/* Out of the engine at any row: pages as copies, the rest as bytes. */
static SeqId move_out_and_in(const Case *c, SeqId seq)
{
    enum { MAX_SETS = N_TOKENS / KV_PAGE_TOKENS + 1 };
    Engine *engine = c->engine;
    PageSet sets[MAX_SETS];
    uint32_t n = engine_seq_tokens(engine, seq), n_sets = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint8_t *state = malloc(engine_seq_state_bytes(engine, seq));
    engine_seq_state_read(engine, seq, state);
    for (uint32_t i = 0; i < n_sets; i++) {
        engine_seq_page(engine, seq, i, &sets[i]);
        engine_pages_ref(engine, &sets[i]);
    }
    engine_seq_close(engine, seq);
    SeqId other = engine_rig_seq(engine, 4); /* takes the place, and lists of its own */
    engine_rig_feed(engine, other, ROWS_PREFILL, c->tokens, 300, 0, NULL);
    engine_rig_feed(engine, other, ROWS_DECODE, c->tokens, 2, 1, NULL);
    SeqId back = engine_rig_seq(engine, c->policy);
    cr_assert(engine_seq_adopt(engine, back, sets, n, &error), "%s", error.text);
    engine_seq_state_write(engine, back, state);
    engine_seq_close(engine, other);
    for (uint32_t i = 0; i < n_sets; i++) engine_pages_unref(engine, &sets[i]);
    free(state);
    return back;
}

static void drop_pass(const Case *c, SeqId seq, uint32_t n_rows)
{
    PassId pass;
    BatchSpan span = {seq, 0, n_rows, engine_seq_tokens(c->engine, seq), LOGITS_LAST, ROWS_DECODE};
    uint32_t tokens[32];
    for (uint32_t i = 0; i < n_rows; i++) tokens[i] = c->tokens[span.first_pos + i] ^ 1;
    cr_assert(engine_seq_reserve(c->engine, seq, n_rows, &error), "%s", error.text);
    cr_assert(engine_pass_begin(c->engine, &(Batch){tokens, n_rows, &span, 1}, &pass, &error), "%s", error.text);
    cr_assert(engine_pass_run(c->engine, &(WorkItem){pass, 0, 3, 0, n_rows}, &error), "%s", error.text);
    engine_pass_drop(c->engine, pass);
}

Test(test_selector, lists_survive_moves_forks_and_passes_given_up)
{
    static const KvType types[] = {KV_F32, KV_INT8};
    for (uint32_t t = 0; t < 2; t++) {
        Engine *engine = open_engine(types[t], 1);
        for (PolicyId policy = 1; policy < N_POLICIES; policy++) {
            Case c = case_open(engine, policy);
            SeqId seq = prompt_of(&c), twin;
            expect_next(&c, seq, ROWS_DECODE, 9, 1, "before");
            seq = move_out_and_in(&c, seq);
            expect_next(&c, seq, ROWS_DECODE, 10, 1, "moved out and in");
            drop_pass(&c, seq, 7);
            expect_next(&c, seq, ROWS_DECODE, 10, 3, "a pass given up");
            cr_assert(engine_seq_fork(engine, seq, &twin, &error), "%s", error.text);
            expect_next(&c, seq, ROWS_DECODE, 13, 1, "forked");
            drop_pass(&c, twin, 30);
            expect_next(&c, twin, ROWS_DECODE, N_DECODED - 29, 1, "fork");
            engine_seq_close(engine, seq);
            engine_seq_close(engine, twin);
            free(c.wanted);
        }
        engine_close(engine);
    }
}

enum { MAX_POISONED = 4096 };

/* Takes all pages of a class that are free and fills each with what no number is; *ret_bytes of one. */
static uint32_t take_all(Engine *engine, uint32_t class_id, bool is_open, PageId pages[MAX_POISONED], size_t *ret_bytes)
{
    uint32_t n = 0;
    char *noise = NULL;
    for (; n < MAX_POISONED && engine_page_new(engine, class_id, is_open, &pages[n], &error); n++) {
        *ret_bytes = engine_page_bytes(engine, pages[n]);
        if (!noise) noise = malloc(*ret_bytes);
        cr_assert_not_null(noise);
        memset(noise, 0xFF, *ret_bytes);
        cr_assert(engine_page_write(engine, pages[n], noise, &error), "%s", error.text);
    }
    free(noise);
    cr_assert(n > 2 * N_TOKENS / KV_PAGE_TOKENS && n < MAX_POISONED, "%u pages of class %u", n, class_id);
    return n;
}

static void give_back(Engine *engine, const PageId *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PageSet set;
        for (int c = 0; c < KV_MAX_CLASSES; c++) set.page[c] = PAGE_NONE;
        set.page[0] = pages[i];
        engine_pages_unref(engine, &set);
    }
}

/* Every free page of the policy's classes, and its image if it has one, holds nothing but NaNs and open bounds. */
static void poison(Engine *engine, PolicyId policy)
{
    static PageId pages[MAX_POISONED];
    uint32_t n_classes;
    const KvClassInfo *classes = engine_policy_classes(engine, policy, &n_classes);
    for (uint32_t c = 0; c < n_classes; c++)
        for (int is_open = 0; is_open < 2; is_open++) {
            size_t bytes = 0;
            uint32_t n = take_all(engine, classes[c].class_id, is_open, pages, &bytes);
            give_back(engine, pages, n);
            uint8_t *held = malloc(bytes);
            cr_assert(engine_page_new(engine, classes[c].class_id, is_open, pages, &error), "%s", error.text);
            cr_assert(engine_page_read(engine, pages[0], KV_PAGE_TOKENS, held, &error), "%s", error.text);
            cr_assert(held[0] == 0xFF && held[bytes - 1] == 0xFF, "a page comes back as it was left");
            give_back(engine, pages, 1);
            free(held);
        }
}

/* Oracles E1, E2: stale keys, values and bounds of recycled pages are never read. */
Test(test_selector, poisoned_pages_change_nothing)
{
    static const KvType types[] = {KV_F16, KV_INT8};
    for (uint32_t t = 0; t < 2; t++)
        for (PolicyId policy = 0; policy < N_POLICIES; policy++) {
            Engine *engine = open_engine(types[t], 1);
            Case c = case_open(engine, policy);
            poison(engine, policy);
            SeqId seq = engine_rig_seq(engine, policy);
            expect_next(&c, seq, ROWS_PREFILL, N_PROMPT, 192, "poisoned");
            expect_next(&c, seq, ROWS_DECODE, N_DECODED, 1, "poisoned");
            free(c.wanted);
            engine_close(engine);
        }
}

/* With every stage due at every row, what is kept from row to row is not used. */
Test(test_selector, refreshed_at_every_row_is_without_memory)
{
    Engine *engine = open_engine(KV_BF16, 1);
    Case c = case_open(engine, 4);
    SeqId seq = prompt_of(&c), empty = engine_rig_seq(engine, 4);
    size_t bytes = engine_seq_state_bytes(engine, empty);
    uint8_t *nothing = malloc(bytes);
    engine_seq_state_read(engine, empty, nothing);
    for (uint32_t i = 0; i < N_DECODED; i++) {
        engine_seq_state_write(engine, seq, nothing);
        expect_next(&c, seq, ROWS_DECODE, 1, 1, "forgetful");
    }
    free(nothing);
    free(c.wanted);
    engine_close(engine);
}

/* ---- what is counted ---- */

static AttentionStats decode_stats(const Case *c)
{
    SeqId seq = prompt_of(c);
    engine_rig_feed(c->engine, seq, ROWS_DECODE, c->tokens + N_PROMPT, N_DECODED, 1, NULL);
    AttentionStats stats = engine_seq_attention(c->engine, seq, ROWS_DECODE);
    engine_seq_close(c->engine, seq);
    return stats;
}

Test(test_selector, counts_what_rows_see_and_read)
{
    Engine *engine = open_trained(KV_F16, 1, "context=512");
    uint64_t n = N_DECODED, n_context = n * N_PROMPT + n * (n + 1) / 2, n_heads = 4 * 2;
    for (PolicyId policy = 0; policy < N_POLICIES; policy++) {
        Case c = case_open(engine, policy);
        AttentionStats stats = decode_stats(&c);
        cr_expect_eq(stats.n_queries, n * n_heads);
        cr_expect_eq(stats.n_context, n_context * n_heads);
        if (policy < 2) {
            cr_expect_eq(stats.n_tokens, stats.n_context);
            cr_expect_eq(stats.kv_bytes, stats.context_bytes);
            cr_expect_eq(stats.select_bytes, 0, "nothing to choose");
        } else {
            cr_expect_lt(stats.n_tokens, stats.n_context * 9 / 10, "'%s'", policies[policy].name);
            cr_expect_lt(stats.kv_bytes, stats.context_bytes);
        }
        if (policy == 2) cr_expect_leq(stats.n_tokens, n * n_heads * 300, "within the budget");
        bool draws_lots = !strcmp(policies[policy].name, "random");
        if (policy > 1) cr_expect_eq(stats.select_bytes == 0, draws_lots, "'%s'", policies[policy].name);
        /* A stage that is run runs all behind it: the last one makes every list. */
        uint32_t n_stages = policies[policy].selection.n_stages;
        for (uint32_t i = 0; i < SELECT_MAX_STAGES; i++) {
            uint64_t most = i + 1 < n_stages ? stats.n_refreshes[i + 1] : stats.n_selections;
            cr_expect(i < n_stages ? stats.n_refreshes[i] > 0 && stats.n_refreshes[i] <= most
                                   : stats.n_refreshes[i] == 0,
                      "'%s', stage %u", policies[policy].name, i);
        }
        if (n_stages) cr_expect_eq(stats.n_refreshes[n_stages - 1], stats.n_selections);
        if (!strcmp(policies[policy].name, "every")) cr_expect_eq(stats.n_refreshes[0], n * n_heads);
        cr_expect_eq(stats.n_estimates > 0, policies[policy].selection.n_probes > 0);
        cr_expect_eq(stats.n_audits, policies[policy].selection.audit_interval ? n / 5 * n_heads : 0);
        cr_expect(stats.estimated_mass >= 0 && stats.estimated_mass <= (double)stats.n_estimates);
        if (stats.n_audits) cr_expect(stats.audited_mass > 0 && stats.audited_mass < (double)stats.n_audits);
        free(c.wanted);
    }
    engine_close(engine);
}

/* A dense fork's row has the logits of dense attention over the keys that are there. */
Test(test_selector, a_dense_fork_selects_nothing)
{
    Engine *engine = open_engine(KV_F16, 1);
    Case c = case_open(engine, 2);
    SeqId seq = engine_rig_seq(engine, 2), fork, plain = engine_rig_seq(engine, 0);
    engine_rig_feed(engine, seq, ROWS_PREFILL, c.tokens, N_PROMPT, 0, NULL);
    engine_rig_feed(engine, plain, ROWS_PREFILL, c.tokens, N_PROMPT, 0, NULL);
    cr_assert(engine_seq_fork_dense(engine, seq, &fork, &error), "%s", error.text);
    float *got = engine_rig_logits(engine, 1), *wanted = engine_rig_logits(engine, 1);
    engine_rig_feed(engine, fork, ROWS_DECODE, c.tokens + N_PROMPT, 1, 1, got);
    engine_rig_feed(engine, plain, ROWS_DECODE, c.tokens + N_PROMPT, 1, 1, wanted);
    cr_expect_arr_eq(got, wanted, c.n_vocab * sizeof *got);
    cr_expect_arr_neq(got, c.wanted + N_PROMPT * c.n_vocab, c.n_vocab * sizeof *got);
    expect_next(&c, seq, ROWS_DECODE, N_DECODED, 1, "the one that was forked");
    free(got);
    free(wanted);
    free(c.wanted);
    engine_close(engine);
}

/* Of one layer keys and values are the same under every policy: so what is dense is dense to the bit. */
Test(test_selector, the_last_rows_of_a_prompt_are_dense)
{
    enum { N_TAIL = 70, N_VARIANTS = 3 };
    static const AttnPolicy tails[] = {{.name = "dense"},
                                       {.name = "tail",
                                        .selection = {.planner = "hip",
                                                      .stages = {{SCAN_EXACT, 16, 64, 1}},
                                                      .n_stages = 1,
                                                      .sink = 64,
                                                      .recent = 64,
                                                      .dense_tail_rows = N_TAIL}}};
    static const uint32_t prompts[N_VARIANTS] = {N_PROMPT, N_PROMPT, 0}, chunks[N_VARIANTS] = {0, 128, 0};
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 2, MAX_ROWS);
    params.policies = tails;
    params.n_policies = 2;
    Engine *engine = ENGINE_RIG(params, "layers=1");
    uint32_t tokens[N_PROMPT];
    size_t n_vocab = engine_shape(engine)->n_vocab;
    float *dense = engine_rig_logits(engine, N_PROMPT), *got = engine_rig_logits(engine, N_PROMPT);
    engine_rig_text(engine, 1, tokens, N_PROMPT);
    SeqId seq = engine_rig_seq(engine, 0);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N_PROMPT, 0, dense);
    engine_seq_close(engine, seq);
    for (int i = 0; i < N_VARIANTS; i++) {
        seq = engine_rig_seq(engine, 1);
        if (prompts[i]) engine_seq_set_prompt(engine, seq, prompts[i]);
        engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N_PROMPT, chunks[i], got);
        engine_seq_close(engine, seq);
        uint32_t n_before = 0, n_tail = 0;
        for (uint32_t row = 0; row < N_PROMPT; row++) {
            bool is_same = !memcmp(dense + row * n_vocab, got + row * n_vocab, n_vocab * sizeof *got);
            *(row < N_PROMPT - N_TAIL ? &n_before : &n_tail) += is_same;
        }
        cr_expect_lt(n_before, N_PROMPT - N_TAIL, "rows before the tail select");
        if (prompts[i])
            cr_expect_eq(n_tail, N_TAIL, "%d: %u of the last rows are dense", i, n_tail);
        else
            cr_expect_lt(n_tail, N_TAIL, "no end of a prompt, no tail");
    }
    free(dense);
    free(got);
    engine_close(engine);
}

/* Rows of one layer under a policy [N_PROMPT, n_vocab]. */
static float *prompt_logits(Engine *engine, PolicyId policy, const uint32_t *tokens, uint32_t chunk,
                            AttentionStats *ret_stats)
{
    float *logits = engine_rig_logits(engine, N_PROMPT);
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, N_PROMPT, chunk, logits);
    *ret_stats = engine_seq_attention(engine, seq, ROWS_PREFILL);
    engine_seq_close(engine, seq);
    return logits;
}

#define DELTA(name_, keep, stride)                                                                                     \
    {                                                                                                                  \
        .name = (name_), .selection = {                                                                                \
            .planner = "hip",                                                                                          \
            .stages = {{SCAN_EXACT, 16, keep, 1}},                                                                     \
            .n_stages = 1,                                                                                             \
            .sink = 64,                                                                                                \
            .recent = 64,                                                                                              \
            .delta_stride = stride                                                                                     \
        }                                                                                                              \
    }

/*
 * Oracles E6: of stride 1 every row is dense, of 16 those at its multiples, to the bit; where nothing is left out there
 * is nothing to correct. The prompt ends in the middle of a stride.
 */
Test(test_selector, dense_rows_correct_those_beside_them)
{
    static const AttnPolicy deltas[] = {{.name = "dense"},
                                        DELTA("one", 64, 1),
                                        DELTA("sixteen", 64, 16),
                                        DELTA("none", 64, 0),
                                        DELTA("all", 1 << 20, 16)};
    enum { ONE = 1, SIXTEEN, NONE, ALL, N };
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 2, MAX_ROWS);
    params.policies = deltas;
    params.n_policies = N;
    Engine *engine = ENGINE_RIG(params, "layers=1");
    uint32_t tokens[N_PROMPT], n_corrected = 0, n_sparse = 0;
    size_t n_vocab = engine_shape(engine)->n_vocab, bytes = n_vocab * sizeof(float);
    float *logits[N];
    AttentionStats stats[N];
    cr_assert_neq(N_PROMPT % 16, 0);
    engine_rig_text(engine, 1, tokens, N_PROMPT);
    for (PolicyId i = 0; i < N; i++) logits[i] = prompt_logits(engine, i, tokens, i == SIXTEEN ? 128 : 0, &stats[i]);
    cr_expect_arr_eq(logits[ONE], logits[0], N_PROMPT * bytes, "every row");
    cr_expect_arr_eq(logits[ALL], logits[0], N_PROMPT * bytes, "nothing is left out");
    for (uint32_t row = 0; row < N_PROMPT; row++) {
        const float *own = logits[SIXTEEN] + row * n_vocab, *sparse = logits[NONE] + row * n_vocab;
        bool is_dense = !memcmp(own, logits[0] + row * n_vocab, bytes);
        if (row % 16 == 0) cr_expect(is_dense, "row %u", row);
        n_corrected += row % 16 != 0 && memcmp(own, sparse, bytes) != 0;
        n_sparse += memcmp(sparse, logits[0] + row * n_vocab, bytes) != 0;
    }
    cr_expect_gt(n_sparse, 64);
    cr_expect_gt(n_corrected, 64, "others get what the dense one of their stride lacked");
    uint64_t more = stats[ONE].select_bytes - stats[NONE].select_bytes,
             some = stats[SIXTEEN].select_bytes - stats[NONE].select_bytes;
    cr_expect(more > stats[ONE].context_bytes / 2 && more < stats[ONE].context_bytes, "rows that select read all too");
    cr_expect(some > more / 20 && some < more / 14, "every sixteenth: %lu of %lu", some, more);
    cr_expect_eq(stats[ONE].n_queries, stats[NONE].n_queries);
    for (int i = 0; i < N; i++) free(logits[i]);
    engine_close(engine);
}

/* Of any planner: those of eval are served too where requests may ask for them. */
Test(test_selector, a_row_allocates_nothing)
{
    static const char *const planners[] = {"vertical-slash", "random", "pages"};
    Engine *engine = open_engine(KV_F16, 1);
    Case c = case_open(engine, 0);
    for (size_t i = 0; i < sizeof planners / sizeof *planners; i++) {
        AttnPolicy policy = {.name = planners[i],
                             .selection = {.planner = planners[i],
                                           .stages = {{SCAN_EXACT, 16, 64, 1}},
                                           .n_stages = 1,
                                           .sink = 64,
                                           .recent = 64,
                                           .n_probes = 4}};
        PolicyId id;
        cr_assert(engine_policy_intern(engine, &policy, &id, &error), "%s", error.text);
        SeqId seq = engine_rig_seq(engine, id);
        float *logits = engine_rig_logits(engine, N_PROMPT);
        uint64_t before = alloc_count();
        engine_rig_feed(engine, seq, ROWS_PREFILL, c.tokens, N_PROMPT, 0, logits);
        engine_rig_feed(engine, seq, ROWS_DECODE, c.tokens + N_PROMPT, N_DECODED, 1, logits);
        cr_expect_eq(alloc_count(), before, "%s", planners[i]);
        cr_expect_gt(engine_seq_attention(engine, seq, ROWS_DECODE).n_selections, 0);
        free(logits);
        engine_seq_close(engine, seq);
    }
    free(c.wanted);
    engine_close(engine);
}
