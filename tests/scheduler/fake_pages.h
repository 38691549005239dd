/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the engine's pages, chosen at link time: pages know which tokens they hold and what came before them,
 * count their owners, and sequences drop and copy pages as the engine does. What the code under test refs through
 * engine_pages_ref is counted apart. Aborts when a page is used after its end. One thread.
 */
#pragma once
#include "engine/engine.h"

typedef struct FakePage {
    uint32_t refs, kept; /* all owners; of these, those of the code under test */
    uint32_t class_id;
    uint32_t salt, policy;
    uint32_t first;   /* position of its first token */
    uint64_t history; /* hash of all tokens before it */
    uint32_t tokens[KV_PAGE_TOKENS], n_tokens;
    bool is_decoded; /* some of it, or of what came before it */
} FakePage;

typedef struct FakePolicy {
    AttnPolicy policy;
    KvClassInfo classes[KV_MAX_CLASSES];
    uint32_t n_classes;
} FakePolicy;

enum { FAKE_MAX_PAGES = 4000, FAKE_CONTEXT = 6000 };

/* policies [n], kept. */
Engine *fake_pages_new(const FakePolicy *policies, uint32_t n);
void fake_pages_free(Engine *engine);
const FakePage *fake_page(const Engine *engine, PageId page);
/* All pages that ever were are below the end; those without an owner have no refs. */
const FakePage *fake_page_any(const Engine *engine, PageId page);
PageId fake_pages_end(const Engine *engine);
/* Pages with an owner; pages kept by the code under test. */
uint32_t fake_pages_used(const Engine *engine);
uint32_t fake_pages_kept(const Engine *engine);
/* Not an engine function: the fake has to know who may share. */
SeqId fake_seq_new(Engine *engine, PolicyId policy, uint32_t salt);
void fake_seq_adopt(Engine *engine, SeqId seq, const PageSet *sets, const uint32_t *tokens, uint32_t n);
/* Computes n more tokens, then drops the pages that no query from n - slack on needs. */
void fake_seq_append(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n, bool decoded, uint32_t slack);
SeqId fake_seq_fork(Engine *engine, SeqId seq);
void fake_seq_close(Engine *engine, SeqId seq);
const uint32_t *fake_seq_tokens(const Engine *engine, SeqId seq, uint32_t *ret_n);

uint64_t fake_history(const uint32_t *tokens, uint32_t n);
