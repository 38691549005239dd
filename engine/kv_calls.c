/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv_calls.h"

void engine_seq_page(const Engine *engine, SeqId seq, uint32_t logical_page, PageSet *ret_set)
{
    kv_seq_page(engine_kv(engine).seqs, seq, logical_page, ret_set);
}

void engine_pages_ref(Engine *engine, const PageSet *set)
{
    kv_set_ref(engine_kv(engine).memory, set);
}

void engine_pages_unref(Engine *engine, const PageSet *set)
{
    kv_set_unref(engine_kv(engine).memory, set);
}

KvUsage engine_kv_usage(const Engine *engine)
{
    return kv_memory_usage(engine_kv(engine).memory);
}

uint64_t engine_need_bytes(const Engine *engine, PolicyId policy, uint32_t n_tokens)
{
    EngineKv kv = engine_kv(engine);
    return kv_classes_need_bytes(kv.classes, policy, n_tokens, kv.max_batch_rows);
}

void engine_seq_add_missing(const Engine *engine, SeqId seq, uint32_t n_tokens, uint32_t max_rows, KvNeed *need)
{
    EngineKv kv = engine_kv(engine);
    kv_seq_add_missing(kv.seqs, seq, n_tokens, max_rows < kv.max_batch_rows ? max_rows : kv.max_batch_rows, need);
}

bool engine_kv_meets(const Engine *engine, const KvNeed *need)
{
    return kv_memory_meets(engine_kv(engine).memory, need);
}

uint64_t engine_seq_list_bytes(const Engine *engine, SeqId seq)
{
    return kv_seq_list_bytes(engine_kv(engine).seqs, seq);
}

size_t engine_page_bytes(const Engine *engine, PageId page)
{
    size_t bytes;
    kv_page_data(engine_kv(engine).memory, page, &bytes);
    return bytes;
}

bool engine_page_is_open(const Engine *engine, PageId page)
{
    return kv_page_image(engine_kv(engine).memory, page) != KV_NO_IMAGE;
}

bool engine_page_new(Engine *engine, uint32_t class_id, bool is_open, PageId *ret_page, Error *error)
{
    EngineKv kv = engine_kv(engine);
    if (class_id >= kv.classes->n_classes)
        return error_set(error, ERR_INTERNAL, "there is no class %u of KV pages", class_id);
    bool with_image = is_open && kv.classes->classes[class_id].image_bytes;
    if (!kv_memory_has(kv.memory, &(KvWant){class_id, 1, with_image}, 1, 0))
        return error_set(error, ERR_BUSY, "no KV page is free");
    *ret_page = kv_page_take(kv.memory, class_id, with_image);
    return true;
}
