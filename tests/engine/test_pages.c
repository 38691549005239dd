/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that go on from shared, kept and copied pages get the bits that they get alone. */
#include "engine/device.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 300, MAX_SETS = 8 };

static Error error;

/* All heads of some layers stream; the model has 4 layers of 2 KV heads. */
static const uint8_t streams[4 * 2] = {1, 0, 0, 1, 1, 1, 0, 0};
static const HeadRoles roles = {"half", streams};
static const AttnPolicy policies[] = {{.name = "dense"},
                                      {"half", &roles, .sink = 64, .recent_prefill = 128, .recent_decode = 64}};

static Engine *open_engine(KvTypes types, bool is_gemma)
{
    EngineParams params = engine_rig_params(types, 4, N_TOKENS);
    params.policies = policies;
    params.n_policies = is_gemma ? 1 : 2;
    return is_gemma ? ENGINE_RIG(params, "arch=gemma3", "window=70", "layers=7") : ENGINE_RIG(params, "layers=4");
}

typedef struct Case {
    Engine *engine;
    PolicyId policy;
    uint32_t tokens[N_TOKENS];
    float *wanted; /* [N_TOKENS, n_vocab] */
    size_t n_vocab;
} Case;

static Case make_case(Engine *engine, PolicyId policy)
{
    Case c = {.engine = engine, .policy = policy, .n_vocab = engine_shape(engine)->n_vocab};
    SeqId seq = engine_rig_seq(engine, policy);
    engine_rig_text(engine, 5, c.tokens, N_TOKENS);
    c.wanted = engine_rig_logits(engine, N_TOKENS);
    engine_rig_feed(engine, seq, ROWS_PREFILL, c.tokens, N_TOKENS, 0, c.wanted);
    engine_seq_close(engine, seq);
    return c;
}

/* The sequence holds the first tokens of the case's text: runs the next n and compares their logits. */
static void expect_next(const Case *c, SeqId seq, uint32_t n, const char *what)
{
    uint32_t first = engine_seq_tokens(c->engine, seq);
    float *got = engine_rig_logits(c->engine, n);
    engine_rig_feed(c->engine, seq, ROWS_PREFILL, c->tokens + first, n, 37, got);
    cr_expect_arr_eq(got, c->wanted + first * c->n_vocab, n * c->n_vocab * sizeof *got, "%s, policy %u: from %u on",
                     what, c->policy, first);
    free(got);
}

/* Another text over the same pages first, so that a page that should have been copied is spoilt. */
static void spoil(const Case *c, SeqId seq)
{
    uint32_t other[70];
    engine_rig_text(c->engine, 99, other, 70);
    engine_rig_feed(c->engine, seq, ROWS_DECODE, other, 70, 0, NULL);
}

static void check_forks(const Case *c)
{
    for (uint32_t n = 60; n <= 230; n += 41) {
        SeqId a = engine_rig_seq(c->engine, c->policy), b = 0;
        engine_rig_feed(c->engine, a, ROWS_PREFILL, c->tokens, n, 0, NULL);
        cr_assert(engine_seq_fork(c->engine, a, &b, &error), "%s", error.text);
        spoil(c, n % 4 < 2 ? a : b);
        expect_next(c, n % 4 < 2 ? b : a, 70, "fork");
        engine_seq_close(c->engine, a);
        engine_seq_close(c->engine, b);
    }
    cr_expect_eq(engine_kv_usage(c->engine).used_bytes, 0);
}

static uint32_t keep(const Case *c, SeqId seq, uint32_t n, PageSet *sets)
{
    for (uint32_t i = 0; i < kv_n_pages(n); i++) {
        engine_seq_page(c->engine, seq, i, &sets[i]);
        engine_pages_ref(c->engine, &sets[i]);
    }
    return kv_n_pages(n);
}

static void check_adoption(const Case *c)
{
    PageSet sets[MAX_SETS];
    for (uint32_t n = 64; n <= 230; n += 83) {
        SeqId a = engine_rig_seq(c->engine, c->policy), b;
        engine_rig_feed(c->engine, a, ROWS_PREFILL, c->tokens, n, 0, NULL);
        uint32_t n_sets = keep(c, a, n, sets);
        spoil(c, a);
        engine_seq_close(c->engine, a);
        for (uint32_t less = 0; less < 2 && less <= n % KV_PAGE_TOKENS; less++) {
            b = engine_rig_seq(c->engine, c->policy);
            cr_assert(engine_seq_adopt(c->engine, b, sets, n - less, &error), "%s", error.text);
            cr_expect_eq(engine_seq_tokens(c->engine, b), n - less);
            expect_next(c, b, 70, "adoption");
            engine_seq_close(c->engine, b);
        }
        for (uint32_t i = 0; i < n_sets; i++) engine_pages_unref(c->engine, &sets[i]);
    }
    cr_expect_eq(engine_kv_usage(c->engine).used_bytes, 0);
}

/* Reads a page's bytes, writes them into a new page, and gives the old one up. */
static PageId copy_page(Engine *engine, uint32_t class_id, PageId page)
{
    PageId copy = PAGE_NONE;
    size_t bytes = engine_page_bytes(engine, page);
    char *data = malloc(bytes);
    cr_assert_not_null(data);
    cr_assert(engine_page_read(engine, page, KV_PAGE_TOKENS, data, &error), "%s", error.text);
    cr_assert(engine_page_new(engine, class_id, engine_page_is_open(engine, page), &copy, &error), "%s", error.text);
    cr_assert_eq(engine_page_bytes(engine, copy), bytes);
    cr_assert(engine_page_write(engine, copy, data, &error), "%s", error.text);
    free(data);
    return copy;
}

static void check_copies(const Case *c)
{
    PageSet sets[MAX_SETS], copies[MAX_SETS];
    SeqId a = engine_rig_seq(c->engine, c->policy), b;
    engine_rig_feed(c->engine, a, ROWS_PREFILL, c->tokens, 210, 0, NULL);
    uint32_t n_sets = keep(c, a, 210, sets), n_classes;
    const KvClassInfo *classes = engine_policy_classes(c->engine, c->policy, &n_classes);
    for (uint32_t i = 0; i < n_sets; i++) {
        copies[i] = sets[i];
        for (uint32_t k = 0; k < n_classes; k++)
            if (sets[i].page[k] != PAGE_NONE)
                copies[i].page[k] = copy_page(c->engine, classes[k].class_id, sets[i].page[k]);
    }
    engine_seq_close(c->engine, a);
    for (uint32_t i = 0; i < n_sets; i++) engine_pages_unref(c->engine, &sets[i]);
    b = engine_rig_seq(c->engine, c->policy);
    cr_assert(engine_seq_adopt(c->engine, b, copies, 210, &error), "%s", error.text);
    for (uint32_t i = 0; i < n_sets; i++) engine_pages_unref(c->engine, &copies[i]);
    expect_next(c, b, 80, "copies");
    engine_seq_close(c->engine, b);
    cr_expect_eq(engine_kv_usage(c->engine).used_bytes, 0);
}

static void check_all(KvTypes types, bool is_gemma)
{
    Engine *engine = open_engine(types, is_gemma);
    for (PolicyId policy = 0; engine_policy(engine, policy); policy++) {
        Case c = make_case(engine, policy);
        check_forks(&c);
        check_adoption(&c);
        check_copies(&c);
        free(c.wanted);
    }
    engine_close(engine);
}

Test(test_pages, shared_kept_and_copied_pages_give_the_same_bits)
{
    static const KvTypes types[] = {{{KV_F16, KV_F16, KV_F16}}, {{KV_INT8, KV_F8, KV_INT4}}};
    for (int i = 0; i < 4; i++) check_all(types[i / 2], i % 2);
}

Test(test_pages, what_is_shared_after_its_reservation_is_reserved_again)
{
    Engine *engine = open_engine(kv_types_all(KV_F16), false);
    SeqId seq = engine_rig_seq(engine, 0);
    const uint32_t tokens[3] = {1, 2, 3};
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, 3, 0, NULL);
    const BatchSpan span = {seq, 0, 3, 3, LOGITS_LAST, ROWS_DECODE};
    const Batch batch = {tokens, 3, &span, 1};
    PageSet set;
    PassId pass;
    cr_assert(engine_seq_reserve(engine, seq, 3, &error));
    engine_seq_page(engine, seq, 0, &set);
    engine_pages_ref(engine, &set);
    cr_expect_not(engine_pass_begin(engine, &batch, &pass, &error));
    cr_assert(engine_seq_reserve(engine, seq, 3, &error));
    cr_expect(engine_pass_begin(engine, &batch, &pass, &error), "%s", error.text);
    engine_pages_unref(engine, &set);
    engine_close(engine);
}

Test(test_pages, pages_run_out_without_a_trace)
{
    EngineParams params = engine_rig_params(kv_types_all(KV_INT8), 4, 64);
    params.context = 128;
    Engine *engine = ENGINE_RIG(params, "layers=4");
    uint64_t total = engine_kv_usage(engine).total_bytes;
    engine_close(engine);
    params.kv_bytes = total / 4;
    engine = ENGINE_RIG(params, "layers=4");
    SeqId a = engine_rig_seq(engine, 0), b = engine_rig_seq(engine, 0);
    cr_assert(engine_seq_reserve(engine, a, 128, &error), "one context fits: %s", error.text);
    uint64_t used = engine_kv_usage(engine).used_bytes;
    PageId page = 9;
    cr_expect_not(engine_seq_reserve(engine, b, 1, &error));
    cr_expect_eq(error.code, ERR_BUSY);
    cr_expect_not(engine_page_new(engine, 0, false, &page, &error));
    cr_expect(error.code == ERR_BUSY && page == 9);
    cr_expect_not(engine_page_new(engine, 77, false, &page, &error));
    cr_expect_eq(engine_kv_usage(engine).used_bytes, used);
    engine_seq_close(engine, a);
    cr_expect(engine_seq_reserve(engine, b, 128, &error), "%s", error.text);
    engine_close(engine);
}

/* A device that failed once: nothing is computed on it any more, and none of its pages leaves it. */
Test(test_pages, a_failed_device_gives_nothing_away)
{
    Device device = *device_host();
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 2, 64);
    params.device = &device;
    Engine *engine = ENGINE_RIG(params, NULL);
    uint32_t tokens[80];
    engine_rig_text(engine, 1, tokens, 80);
    SeqId seq = engine_rig_seq(engine, 0);
    engine_rig_feed(engine, seq, ROWS_PREFILL, tokens, 64, 0, NULL);
    PageSet set;
    engine_seq_page(engine, seq, 0, &set);
    char *page = calloc(1, engine_page_bytes(engine, set.page[0]));
    cr_assert(engine_page_read(engine, set.page[0], KV_PAGE_TOKENS, page, &error), "%s", error.text);
    cr_assert(engine_check_device(engine, &error));
    const BatchSpan span = {.seq = seq, .n_rows = 1, .first_pos = 64, .kind = ROWS_DECODE, .logits = LOGITS_LAST};
    const Batch batch = {.tokens = tokens + 64, .n_rows = 1, .spans = &span, .n_spans = 1};
    float *logits;
    WorkItem item = {.n_layers = engine_shape(engine)->n_layers, .n_rows = 1};
    cr_assert(engine_seq_reserve(engine, seq, 1, &error) && engine_pass_begin(engine, &batch, &item.pass, &error));
    device.has_failed = true;
    cr_expect_not(engine_check_device(engine, &error));
    cr_expect_not(engine_pass_run(engine, &item, &error));
    cr_expect_eq(error.code, ERR_DEVICE);
    engine_pass_drop(engine, item.pass);
    cr_expect_not(engine_step(engine, &batch, &logits, &error));
    cr_expect_eq(error.code, ERR_DEVICE);
    cr_expect_not(engine_page_read(engine, set.page[0], KV_PAGE_TOKENS, page, &error));
    cr_expect_eq(error.code, ERR_DEVICE);
    cr_expect_not(engine_page_write(engine, set.page[0], page, &error));
    cr_expect_eq(error.code, ERR_DEVICE);
    cr_expect_eq(engine_seq_tokens(engine, seq), 64);
    free(page);
    engine_close(engine);
}
