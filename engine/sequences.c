/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine_state.h"
#include "engine/kv_calls.h"
#include "engine/select/select_stages.h"

#include <assert.h>
#include <string.h>

EngineKv engine_kv(const Engine *engine)
{
    return (EngineKv){&engine->classes, engine->memory, engine->seqs, engine->params.max_batch_rows};
}

bool engine_seq_new(Engine *engine, PolicyId policy, SeqId *ret_seq, Error *error)
{
    if (!engine_policy(engine, policy)) return error_set(error, ERR_INTERNAL, "there is no policy %u", policy);
    if (!kv_seq_new(engine->seqs, policy, ret_seq, error)) return false;
    select_state_open(selector_state(engine->selector), *ret_seq);
    return true;
}

void engine_seq_close(Engine *engine, SeqId seq)
{
    pass_lose_seq(engine, seq);
    select_state_close(selector_state(engine->selector), seq);
    kv_seq_close(engine->seqs, seq);
}

uint32_t engine_seq_tokens(const Engine *engine, SeqId seq)
{
    return kv_seq_tokens(engine->seqs, seq);
}

bool engine_seq_reserve(Engine *engine, SeqId seq, uint32_t n_tokens, Error *error)
{
    device_use(engine->device);
    return kv_seq_reserve(engine->seqs, seq, n_tokens, error);
}

/* Its open page would have a second owner while the kernels write into it. */
static bool check_in_no_pass(const Engine *engine, SeqId seq, Error *error)
{
    return engine->seq_pass[seq] == PASS_NONE ||
           error_set(error, ERR_INTERNAL, "sequence %u is in pass %u", seq, engine->seq_pass[seq]);
}

bool engine_seq_fork(Engine *engine, SeqId from, SeqId *ret_seq, Error *error)
{
    if (!check_in_no_pass(engine, from, error) || !kv_seq_fork(engine->seqs, from, ret_seq, error)) return false;
    select_state_fork(selector_state(engine->selector), from, *ret_seq);
    return true;
}

bool engine_seq_fork_dense(Engine *engine, SeqId from, SeqId *ret_seq, Error *error)
{
    if (!engine_seq_fork(engine, from, ret_seq, error)) return false;
    SelectState *state = selector_state(engine->selector);
    select_state_seq(state, *ret_seq)->is_dense = true;
    select_state_commit(state, *ret_seq);
    return true;
}

void engine_seq_set_prompt(Engine *engine, SeqId seq, uint32_t n_tokens)
{
    SelectState *state = selector_state(engine->selector);
    assert(engine->seq_pass[seq] == PASS_NONE);
    select_state_seq(state, seq)->n_prompt = n_tokens;
    select_state_commit(state, seq);
}

AttentionStats engine_seq_attention(const Engine *engine, SeqId seq, RowKind kind)
{
    return select_state_seq(selector_state(engine->selector), seq)->stats[kind];
}

uint32_t engine_seq_list(const Engine *engine, SeqId seq, uint32_t layer, uint32_t kv_head, uint32_t *sectors,
                         uint32_t n)
{
    const uint32_t *words;
    const SelectList *list =
        select_state_list(selector_state(engine->selector), seq, layer * engine->shape.n_kv_heads + kv_head, &words);
    if (list->n_sectors < n) n = list->n_sectors;
    device_use(engine->device);
    if (n && !device_copy(engine->device, sectors, select_sectors(list, words), n * sizeof *sectors))
        engine->device->has_failed = true;
    return list->n_sectors;
}

const RopeTurns *engine_rope_turns(const Engine *engine)
{
    return &engine->turns;
}

size_t engine_seq_state_bytes(const Engine *engine, SeqId seq)
{
    return select_state_bytes(selector_state(engine->selector), seq);
}

void engine_seq_state_read(const Engine *engine, SeqId seq, void *dst)
{
    select_state_read(selector_state(engine->selector), seq, dst);
}

void engine_seq_state_write(Engine *engine, SeqId seq, const void *src)
{
    assert(engine->seq_pass[seq] == PASS_NONE);
    select_state_write(selector_state(engine->selector), seq, src);
}

bool engine_seq_adopt(Engine *engine, SeqId seq, const PageSet *sets, uint32_t n_tokens, Error *error)
{
    return check_in_no_pass(engine, seq, error) && kv_seq_adopt(engine->seqs, seq, sets, n_tokens, error);
}

const KvClassInfo *engine_policy_classes(const Engine *engine, PolicyId policy, uint32_t *ret_n)
{
    assert(engine_policy(engine, policy));
    *ret_n = engine->classes.policies[policy_slot(policy)].n_classes;
    return engine->classes.policies[policy_slot(policy)].classes;
}

bool engine_page_read(const Engine *engine, PageId page, uint32_t n_tokens, void *dst, Error *error)
{
    device_use(engine->device);
    bool was_read = kv_page_read(engine->memory, page, dst);
    /* What a failed device holds is not trusted, even where it can be read. */
    if (!engine_check_device(engine, error)) return false;
    if (!was_read) return error_set(error, ERR_DEVICE, "%s failed while a page was read", engine->device->name);
    if (n_tokens == KV_PAGE_TOKENS) return true;
    uint32_t class_id = kv_page_class(page);
    const KvPool *pool = engine_page_is_open(engine, page) ? kv_memory_image_pool(engine->memory, class_id)
                                                           : kv_memory_pool(engine->memory, class_id);
    for (uint32_t slot = 0; slot < engine->classes.classes[class_id].n_slots; slot++)
        kv_slot_clear_from(&pool->layout, (char *)dst + slot * pool->layout.slot_bytes, n_tokens);
    /* Bounds are those of a full page. */
    if (pool->bounds_offset)
        memset((char *)dst + pool->bounds_offset, 0, engine_page_bytes(engine, page) - pool->bounds_offset);
    return true;
}

bool engine_page_write(Engine *engine, PageId page, const void *src, Error *error)
{
    device_use(engine->device);
    bool was_written = kv_page_write(engine->memory, page, src);
    return engine_check_device(engine, error) &&
           (was_written || error_set(error, ERR_DEVICE, "%s failed while a page was written", engine->device->name));
}
