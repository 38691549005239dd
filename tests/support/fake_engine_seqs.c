/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences, pages and policies of the fake engine. */
#include "engine/kv_calls.h"
#include "tests/support/fake_engine_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- sequences and pages: those of engine/kv ---- */

EngineKv engine_kv(const Engine *engine)
{
    return (EngineKv){&engine->classes, engine->memory, engine->seqs, engine->params.max_batch_rows};
}

bool engine_seq_new(Engine *engine, PolicyId policy, SeqId *ret_seq, Error *error)
{
    if (!kv_seq_new(engine->seqs, policy, ret_seq, error)) return false;
    engine->selections[*ret_seq] = (FakeSelection){.decode_from = UINT32_MAX};
    engine->counts.opened++;
    engine->counts.open++;
    return true;
}

void engine_seq_close(Engine *engine, SeqId seq)
{
    if (!fake_keeps(engine, kv_seq_is_open(engine->seqs, seq))) return;
    for (uint32_t p = 0; p < engine->params.max_passes; p++)
        for (uint32_t i = 0; engine->passes[p].is_open && i < engine->passes[p].n_spans; i++)
            if (engine->passes[p].spans[i].seq == seq) engine->passes[p].spans[i].n_rows = 0;
    engine->is_in_pass[seq] = false;
    kv_seq_close(engine->seqs, seq);
    engine->counts.open--;
}

uint32_t engine_seq_tokens(const Engine *engine, SeqId seq)
{
    return kv_seq_is_open(engine->seqs, seq) ? kv_seq_tokens(engine->seqs, seq) : 0;
}

bool engine_seq_reserve(Engine *engine, SeqId seq, uint32_t n_tokens, Error *error)
{
    if (!fake_keeps(engine, kv_seq_is_open(engine->seqs, seq) && !engine->is_in_pass[seq]))
        return error_set(error, ERR_INTERNAL, "not open, or in a pass");
    if (engine->params.is_full && *engine->params.is_full) return error_set(error, ERR_BUSY, "no page is free");
    return kv_seq_reserve(engine->seqs, seq, n_tokens, error);
}

bool engine_seq_fork(Engine *engine, SeqId from, SeqId *ret_seq, Error *error)
{
    if (!fake_keeps(engine, kv_seq_is_open(engine->seqs, from) && !engine->is_in_pass[from]))
        return error_set(error, ERR_INTERNAL, "not open, or in a pass");
    if (!kv_seq_fork(engine->seqs, from, ret_seq, error)) return false;
    engine->selections[*ret_seq] = engine->selections[from];
    engine->counts.forked++;
    engine->counts.open++;
    return true;
}

bool engine_seq_adopt(Engine *engine, SeqId seq, const PageSet *sets, uint32_t n_tokens, Error *error)
{
    bool ok = kv_seq_is_open(engine->seqs, seq) && !engine->is_in_pass[seq] &&
              kv_seq_adopt(engine->seqs, seq, sets, n_tokens, error);
    return fake_keeps(engine, ok);
}

void engine_seq_set_prompt(Engine *engine, SeqId seq, uint32_t n_tokens)
{
    if (fake_keeps(engine, kv_seq_is_open(engine->seqs, seq) && !engine->is_in_pass[seq]))
        engine->selections[seq].n_prompt = n_tokens;
}

AttentionStats engine_seq_attention(const Engine *engine, SeqId seq, RowKind kind)
{
    uint32_t n_prompt = engine->selections[seq].n_prompt, n = kv_seq_tokens(engine->seqs, seq);
    return (AttentionStats){.n_queries = kind == ROWS_DECODE && n > n_prompt ? n - n_prompt : 0};
}

size_t engine_seq_state_bytes(const Engine *engine, SeqId seq)
{
    (void)seq;
    return sizeof *engine->selections;
}

void engine_seq_state_read(const Engine *engine, SeqId seq, void *dst)
{
    memcpy(dst, &engine->selections[seq], sizeof *engine->selections);
}

void engine_seq_state_write(Engine *engine, SeqId seq, const void *src)
{
    if (fake_keeps(engine, kv_seq_is_open(engine->seqs, seq) && !engine->is_in_pass[seq]))
        memcpy(&engine->selections[seq], src, sizeof *engine->selections);
}

bool engine_seq_fork_dense(Engine *engine, SeqId from, SeqId *ret_seq, Error *error)
{
    return engine_seq_fork(engine, from, ret_seq, error);
}

/* The fake has no policies but its own. */
bool engine_policy_intern(Engine *engine, const AttnPolicy *policy, PolicyId *ret_policy, Error *error)
{
    if (engine->params.max_interned && engine->counts.interned == engine->params.max_interned)
        return error_set(error, ERR_BUSY, "%u attention policies are in use", engine->params.max_interned);
    for (PolicyId i = 0; i < engine->params.n_policies; i++)
        if (!strcmp(engine->params.policies[i].name, policy->name)) {
            *ret_policy = i;
            engine->counts.interned++;
            return true;
        }
    return error_set(error, ERR_INVALID, "the fake has no policy '%s'", policy->name);
}

void engine_policy_release(Engine *engine, PolicyId policy)
{
    engine->counts.interned -= fake_keeps(engine, policy < engine->params.n_policies && engine->counts.interned > 0);
}

const KvClassInfo *engine_policy_classes(const Engine *engine, PolicyId policy, uint32_t *ret_n)
{
    *ret_n = engine->classes.policies[policy].n_classes;
    return engine->classes.policies[policy].classes;
}

const AttnPolicy *engine_policy(const Engine *engine, PolicyId policy)
{
    return policy < engine->params.n_policies ? &engine->params.policies[policy] : NULL;
}

uint64_t engine_model_fingerprint(const Engine *engine)
{
    return engine->params.n_layers;
}

uint64_t engine_policy_fingerprint(const Engine *engine, PolicyId policy)
{
    return ((uint64_t)engine->classes.n_classes << 32) + policy;
}

bool engine_page_read(const Engine *engine, PageId page, uint32_t n_tokens, void *dst, Error *error)
{
    size_t bytes;
    if (!engine_check_device(engine, error)) return false;
    const char *data = kv_page_data(engine->memory, page, &bytes);
    memcpy(dst, data, bytes);
    memset((Cell *)dst + n_tokens, 0, (KV_PAGE_TOKENS - n_tokens) * sizeof(Cell));
    return true;
}

/* What goes to an image stands in the page too, as if it had been quantised on the way. */
Cell *fake_cells(const Engine *engine, PageId page, bool of_image)
{
    size_t bytes;
    const KvPool *pool = kv_memory_pool(engine->memory, kv_page_class(page));
    return of_image ? (Cell *)kv_page_data(engine->memory, page, &bytes)
                    : (Cell *)(pool->base + (size_t)kv_page_index(page) * pool->page_bytes);
}

bool engine_page_write(Engine *engine, PageId page, const void *src, Error *error)
{
    size_t bytes;
    if (!engine_check_device(engine, error)) return false;
    char *data = kv_page_data(engine->memory, page, &bytes);
    memcpy(data, src, bytes);
    if (engine_page_is_open(engine, page)) memcpy(fake_cells(engine, page, false), src, KV_PAGE_TOKENS * sizeof(Cell));
    return true;
}

/* holders [n_classes, n_pages]: how often an open sequence has the page. */
static void count_holders(const Engine *engine, uint32_t n_pages, uint32_t *holders)
{
    PageSet set;
    for (SeqId seq = 0; seq < engine->params.max_sequences; seq++)
        for (uint32_t i = 0; kv_seq_is_open(engine->seqs, seq) && i < kv_n_pages(engine->params.context); i++) {
            kv_seq_page(engine->seqs, seq, i, &set);
            for (uint32_t c = 0; c < KV_MAX_CLASSES; c++)
                if (set.page[c] != PAGE_NONE)
                    holders[kv_page_class(set.page[c]) * n_pages + kv_page_index(set.page[c])]++;
        }
}

static const char *check_owners(const Engine *engine, uint32_t n_pages, const uint32_t *holders, uint32_t n_cached)
{
    uint32_t n_used = 0, n_extra = 0;
    for (uint32_t i = 0; i < engine->classes.n_classes * n_pages; i++) {
        uint32_t n_owners = kv_page_owners(engine->memory, kv_page_id(i / n_pages, i % n_pages));
        if (holders[i] > n_owners) return "a page has fewer owners than sequences that hold it";
        if (n_owners - holders[i] > 1) return "a page has an owner that is none";
        n_used += n_owners > 0;
        n_extra += n_owners - holders[i];
    }
    if (n_used != engine_kv_usage(engine).n_pages_used) return "the number of pages in use is wrong";
    return n_extra == n_cached ? NULL : n_extra > n_cached ? "a page leaked" : "a page of the cache has no owner";
}

const char *fake_engine_check_pages(const Engine *engine, uint32_t n_cached)
{
    KvUsage usage = engine_kv_usage(engine);
    if (usage.used_bytes > usage.total_bytes) return "more bytes are used than there are";
    size_t page_bytes = SIZE_MAX;
    for (uint32_t c = 0; c < engine->classes.n_classes; c++)
        if (engine->classes.classes[c].page_bytes < page_bytes) page_bytes = engine->classes.classes[c].page_bytes;
    uint32_t n_pages = (uint32_t)(usage.total_bytes / page_bytes);
    uint32_t *holders = fake_checked(calloc((size_t)engine->classes.n_classes * n_pages, sizeof *holders));
    count_holders(engine, n_pages, holders);
    const char *wrong = check_owners(engine, n_pages, holders, n_cached);
    free(holders);
    return wrong;
}

uint32_t fake_engine_useful_passes(const Engine *engine)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < engine->params.max_passes; p++) {
        const FakePass *pass = &engine->passes[p];
        bool is_useful = false;
        for (uint32_t i = 0; i < pass->n_spans; i++) is_useful |= pass->spans[i].n_rows > 0;
        n += pass->is_open && is_useful;
    }
    return n;
}
