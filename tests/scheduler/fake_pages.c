/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/fake_pages.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SEQS = 64, MAX_LOGICAL = FAKE_CONTEXT / KV_PAGE_TOKENS + 1 };

typedef struct FakeSeq {
    bool is_open, is_decoded;
    PolicyId policy;
    uint32_t salt, n;
    uint32_t tokens[FAKE_CONTEXT];
    PageSet sets[MAX_LOGICAL];
} FakeSeq;

struct Engine {
    const FakePolicy *policies;
    uint32_t n_policies;
    FakePage pages[FAKE_MAX_PAGES];
    uint32_t n_pages, next_page; /* page numbers are used in turn */
    FakeSeq seqs[MAX_SEQS];
};

Engine *fake_pages_new(const FakePolicy *policies, uint32_t n)
{
    Engine *engine = calloc(1, sizeof *engine);
    if (!engine) abort();
    engine->policies = policies;
    engine->n_policies = n;
    return engine;
}

void fake_pages_free(Engine *engine)
{
    free(engine);
}

const FakePage *fake_page(const Engine *engine, PageId page)
{
    if (page >= FAKE_MAX_PAGES || !engine->pages[page].refs) abort();
    return &engine->pages[page];
}

const FakePage *fake_page_any(const Engine *engine, PageId page)
{
    return &engine->pages[page];
}

PageId fake_pages_end(const Engine *engine)
{
    return engine->n_pages;
}

uint32_t fake_pages_used(const Engine *engine)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->n_pages; i++) n += engine->pages[i].refs > 0;
    return n;
}

uint32_t fake_pages_kept(const Engine *engine)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->n_pages; i++) n += engine->pages[i].kept;
    return n;
}

uint64_t fake_history(const uint32_t *tokens, uint32_t n)
{
    uint64_t hash = 1469598103934665603u;
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ tokens[i]) * 1099511628211u;
    return hash;
}

static void change(Engine *engine, const PageSet *set, int by, bool is_kept)
{
    for (uint32_t c = 0; c < KV_MAX_CLASSES; c++) {
        if (set->page[c] == PAGE_NONE) continue;
        FakePage *page = &engine->pages[set->page[c]];
        if (set->page[c] >= FAKE_MAX_PAGES || !page->refs || (is_kept && by < 0 && !page->kept)) abort();
        page->refs += (uint32_t)by;
        if (is_kept) page->kept += (uint32_t)by;
    }
}

static PageId new_page(Engine *engine)
{
    for (uint32_t i = 0; i < FAKE_MAX_PAGES; i++) {
        PageId page = engine->next_page++ % FAKE_MAX_PAGES;
        if (engine->pages[page].refs) continue;
        if (page >= engine->n_pages) engine->n_pages = page + 1;
        engine->pages[page] = (FakePage){.refs = 1};
        return page;
    }
    abort();
}

/* ---- sequences ---- */

static FakeSeq *seq_of(Engine *engine, SeqId seq)
{
    if (seq >= MAX_SEQS || !engine->seqs[seq].is_open) abort();
    return &engine->seqs[seq];
}

SeqId fake_seq_new(Engine *engine, PolicyId policy, uint32_t salt)
{
    for (SeqId seq = 0; seq < MAX_SEQS; seq++) {
        if (engine->seqs[seq].is_open) continue;
        engine->seqs[seq] = (FakeSeq){.is_open = true, .policy = policy, .salt = salt};
        return seq;
    }
    abort();
}

/* The page of the next token, its own: new, or a copy of a shared one. */
static FakePage *writable_page(Engine *engine, FakeSeq *seq, uint32_t c)
{
    PageId *page = &seq->sets[seq->n / KV_PAGE_TOKENS].page[c], old = *page;
    bool is_new = seq->n % KV_PAGE_TOKENS == 0;
    if (!is_new && (old == PAGE_NONE || !engine->pages[old].refs)) abort();
    if (!is_new && engine->pages[old].refs == 1) {
        engine->pages[old].n_tokens = seq->n % KV_PAGE_TOKENS;
        return &engine->pages[old];
    }
    *page = new_page(engine);
    FakePage *made = &engine->pages[*page];
    if (is_new) {
        *made = (FakePage){.class_id = engine->policies[seq->policy].classes[c].class_id,
                           .salt = seq->salt,
                           .policy = seq->policy,
                           .first = seq->n,
                           .history = fake_history(seq->tokens, seq->n)};
    } else {
        *made = engine->pages[old];
        made->kept = 0;
        engine->pages[old].refs--;
    }
    made->refs = 1;
    made->n_tokens = seq->n % KV_PAGE_TOKENS;
    return made;
}

static void trim(Engine *engine, FakeSeq *seq, uint32_t n)
{
    const FakePolicy *policy = &engine->policies[seq->policy];
    for (uint32_t i = 0; i * KV_PAGE_TOKENS < seq->n; i++)
        for (uint32_t c = 0; c < policy->n_classes; c++) {
            PageId *page = &seq->sets[i].page[c];
            if (*page == PAGE_NONE || kv_class_needs(&policy->classes[c], n, (uint64_t)i * KV_PAGE_TOKENS)) continue;
            engine->pages[*page].refs--;
            *page = PAGE_NONE;
        }
}

void fake_seq_append(Engine *engine, SeqId id, const uint32_t *tokens, uint32_t n, bool decoded, uint32_t slack)
{
    FakeSeq *seq = seq_of(engine, id);
    const FakePolicy *policy = &engine->policies[seq->policy];
    if (seq->n + n > FAKE_CONTEXT) abort();
    seq->is_decoded |= decoded && n > 0 && !policy_decodes_as_prefilled(&policy->policy);
    for (uint32_t i = 0; i < n; i++) {
        if (seq->n % KV_PAGE_TOKENS == 0)
            seq->sets[seq->n / KV_PAGE_TOKENS] = (PageSet){{PAGE_NONE, PAGE_NONE, PAGE_NONE}};
        for (uint32_t c = 0; c < policy->n_classes; c++) {
            FakePage *page = writable_page(engine, seq, c);
            page->tokens[page->n_tokens++] = tokens[i];
            page->is_decoded |= seq->is_decoded;
        }
        seq->tokens[seq->n++] = tokens[i];
    }
    trim(engine, seq, seq->n > slack ? seq->n - slack : 0);
}

void fake_seq_adopt(Engine *engine, SeqId id, const PageSet *sets, const uint32_t *tokens, uint32_t n)
{
    FakeSeq *seq = seq_of(engine, id);
    uint32_t n_pages = (n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    memcpy(seq->tokens, tokens, n * sizeof *tokens);
    memcpy(seq->sets, sets, n_pages * sizeof *sets);
    for (uint32_t i = 0; i < n_pages; i++) {
        change(engine, &sets[i], 1, false);
        for (uint32_t c = 0; c < KV_MAX_CLASSES; c++)
            if (sets[i].page[c] != PAGE_NONE) seq->is_decoded |= engine->pages[sets[i].page[c]].is_decoded;
    }
    seq->n = n;
}

SeqId fake_seq_fork(Engine *engine, SeqId from)
{
    FakeSeq *old = seq_of(engine, from);
    SeqId made = fake_seq_new(engine, old->policy, old->salt);
    fake_seq_adopt(engine, made, old->sets, old->tokens, old->n);
    engine->seqs[made].is_decoded = old->is_decoded;
    return made;
}

void fake_seq_close(Engine *engine, SeqId id)
{
    FakeSeq *seq = seq_of(engine, id);
    for (uint32_t i = 0; i * KV_PAGE_TOKENS < seq->n; i++) change(engine, &seq->sets[i], -1, false);
    seq->is_open = false;
}

const uint32_t *fake_seq_tokens(const Engine *engine, SeqId seq, uint32_t *ret_n)
{
    *ret_n = engine->seqs[seq].n;
    return engine->seqs[seq].tokens;
}

/* ---- what the prefix cache calls ---- */

uint32_t engine_context(const Engine *engine)
{
    (void)engine;
    return FAKE_CONTEXT;
}

const KvClassInfo *engine_policy_classes(const Engine *engine, PolicyId policy, uint32_t *ret_n)
{
    *ret_n = engine->policies[policy].n_classes;
    return engine->policies[policy].classes;
}

bool engine_is_deterministic_device(const Engine *engine)
{
    (void)engine;
    return false;
}

const AttnPolicy *engine_policy(const Engine *engine, PolicyId policy)
{
    return policy < engine->n_policies ? &engine->policies[policy].policy : NULL;
}

void engine_seq_page(const Engine *engine, SeqId seq, uint32_t logical_page, PageSet *ret_set)
{
    if (seq >= MAX_SEQS || !engine->seqs[seq].is_open || logical_page * KV_PAGE_TOKENS >= engine->seqs[seq].n) abort();
    *ret_set = engine->seqs[seq].sets[logical_page];
}

/* Images are none of the code's business. */
bool engine_page_is_open(const Engine *engine, PageId page)
{
    (void)fake_page(engine, page);
    return false;
}

size_t engine_page_bytes(const Engine *engine, PageId page)
{
    (void)fake_page(engine, page);
    return 1;
}

void engine_pages_ref(Engine *engine, const PageSet *set)
{
    change(engine, set, 1, true);
}

void engine_pages_unref(Engine *engine, const PageSet *set)
{
    change(engine, set, -1, true);
}
