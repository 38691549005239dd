/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/swap.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <string.h>

enum { N = 150, FIRST = 64 };

/* Until it holds n tokens. */
static void run_tokens(Engine *engine, SeqId seq, uint32_t n)
{
    uint32_t tokens[2 * N];
    Error error;
    float *logits;
    for (uint32_t i = 0; i < n; i++) tokens[i] = TINY_FIRST_BYTE + i % 200;
    uint32_t held = engine_seq_tokens(engine, seq), n_rows = n - held;
    const BatchSpan span = {.seq = seq, .n_rows = n_rows, .first_pos = held};
    const Batch batch = {.tokens = tokens + held, .n_rows = n_rows, .spans = &span, .n_spans = 1};
    WorkItem item = {.n_layers = FAKE_LAYERS, .n_rows = n_rows};
    cr_assert(engine_seq_reserve(engine, seq, n_rows, &error), "%s", error.text);
    cr_assert(engine_pass_begin(engine, &batch, &item.pass, &error), "%s", error.text);
    cr_assert(engine_pass_run(engine, &item, &error) && engine_pass_end(engine, item.pass, &logits, &error));
}

static Engine *make_engine(const char *types, uint32_t n_pages)
{
    FakeEngineParams params = {.context = 512,
                               .max_batch_rows = 256,
                               .max_sequences = 4,
                               .n_layers = FAKE_LAYERS,
                               .kv_types = types,
                               .policies = fake_policies,
                               .n_policies = FAKE_POLICIES};
    Engine *measure = fake_engine_new(&params);
    params.kv_bytes = engine_need_bytes(measure, 2, n_pages * KV_PAGE_TOKENS);
    engine_close(measure);
    return fake_engine_new(&params);
}

/* Out, its place given away, and in again behind a prompt that was computed again: the pages hold what they held. */
Test(swap, pages_come_back_as_they_went)
{
    static const char *const types[] = {"f16", "int8", "full=int8,stream=f16"};
    for (size_t t = 0; t < 3; t++) {
        Engine *engine = make_engine(types[t], 8);
        SwapStore store = {.max_bytes = 1 << 24};
        Swapped *swapped = NULL;
        SeqId seq, other;
        Error error;
        cr_assert(engine_seq_new(engine, 2, &seq, &error));
        run_tokens(engine, seq, N);
        PageSet set;
        engine_seq_page(engine, seq, N / KV_PAGE_TOKENS, &set);
        char before[1 << 16], after[1 << 16];
        size_t bytes = engine_page_bytes(engine, set.page[0]);
        cr_assert_leq(bytes, sizeof before);
        cr_assert(engine_page_read(engine, set.page[0], N % KV_PAGE_TOKENS, before, &error));
        cr_assert(swap_out(&store, engine, 2, seq, FIRST, &swapped, &error), "%s", error.text);
        cr_assert_eq(swapped_first(swapped), FIRST);
        cr_assert_eq(swapped_bytes(swapped), store.used_bytes);
        engine_seq_close(engine, seq);
        cr_assert(engine_seq_new(engine, 2, &other, &error));
        run_tokens(engine, other, FIRST);
        cr_assert(swap_in(engine, other, swapped, &error), "%s", error.text);
        cr_assert_eq(engine_seq_tokens(engine, other), N);
        engine_seq_page(engine, other, N / KV_PAGE_TOKENS, &set);
        cr_assert_eq(engine_page_bytes(engine, set.page[0]), bytes);
        cr_assert(engine_page_read(engine, set.page[0], KV_PAGE_TOKENS, after, &error));
        cr_assert_eq(memcmp(before, after, bytes), 0);
        run_tokens(engine, other, N + 30); /* it sees all that it needs, and may write */
        swap_drop(&store, swapped);
        cr_assert_eq(store.used_bytes, 0);
        engine_seq_close(engine, other);
        cr_assert_eq(engine_kv_usage(engine).used_bytes, 0);
        cr_assert_eq(fake_engine_counts(engine)->broken_promises, 0);
        engine_close(engine);
    }
}

Test(swap, pages_of_a_failed_device_go_nowhere)
{
    Engine *engine = make_engine("f16", 8);
    SwapStore store = {.max_bytes = 1 << 24};
    Swapped *swapped = NULL, *none = NULL;
    SeqId seq, other;
    Error error;
    cr_assert(engine_seq_new(engine, 0, &seq, &error) && engine_seq_new(engine, 0, &other, &error));
    run_tokens(engine, seq, N);
    cr_assert(swap_out(&store, engine, 0, seq, 0, &swapped, &error));
    uint64_t swap_bytes = store.used_bytes, used_bytes = engine_kv_usage(engine).used_bytes;
    fake_engine_break_device(engine);
    cr_assert_not(swap_out(&store, engine, 0, seq, 0, &none, &error));
    cr_assert_eq(error.code, ERR_DEVICE);
    cr_assert_null(none);
    cr_assert_eq(store.used_bytes, swap_bytes);
    cr_assert_not(swap_in(engine, other, swapped, &error));
    cr_assert_eq(error.code, ERR_DEVICE);
    cr_assert_eq(engine_kv_usage(engine).used_bytes, used_bytes);
    cr_assert_eq(engine_seq_tokens(engine, other), 0);
    swap_drop(&store, swapped);
    engine_close(engine);
}

Test(swap, a_full_store_or_memory_changes_nothing)
{
    Engine *engine = make_engine("f16", 3);
    SwapStore store = {.max_bytes = 1 << 24};
    Swapped *swapped = NULL;
    SeqId seq, other;
    Error error;
    cr_assert(engine_seq_new(engine, 0, &seq, &error));
    run_tokens(engine, seq, N);
    SwapStore small = {.max_bytes = 100};
    cr_assert_not(swap_out(&small, engine, 0, seq, FIRST, &swapped, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    cr_assert_null(swapped);
    cr_assert_eq(small.used_bytes, 0);
    cr_assert(swap_out(&store, engine, 0, seq, 0, &swapped, &error));
    uint64_t used_bytes = engine_kv_usage(engine).used_bytes;
    cr_assert(engine_seq_new(engine, 0, &other, &error));
    cr_assert_not(swap_in(engine, other, swapped, &error)); /* the first still has its pages */
    cr_assert_eq(error.code, ERR_BUSY);
    cr_assert_eq(engine_kv_usage(engine).used_bytes, used_bytes);
    cr_assert_eq(engine_seq_tokens(engine, other), 0);
    engine_seq_close(engine, seq);
    cr_assert(swap_in(engine, other, swapped, &error), "%s", error.text);
    cr_assert_eq(engine_seq_tokens(engine, other), N);
    engine_seq_close(engine, other);
    swap_drop(&store, swapped);
    swap_drop(&store, NULL);
    engine_close(engine);
}
