/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_seq.h"

#include "engine/device.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct KvSeq {
    bool is_open;
    PolicyId policy;
    uint32_t n_tokens;
    uint32_t n_pages;                    /* logical pages, those that have left among them */
    uint32_t first_held[KV_MAX_CLASSES]; /* of the pages behind the sink; between the two all have left */
    uint64_t lists_bytes;                /* charged for what selection keeps of it */
    KvPages views[KV_MAX_CLASSES];
    uint32_t first_new[KV_MAX_CLASSES], end_new[KV_MAX_CLASSES]; /* entries of the tables that the device lacks */
} KvSeq;

struct KvSeqs {
    KvSeqsParams params;
    uint32_t max_pages; /* of one sequence and class */
    uint32_t *tables;   /* [max_sequences, KV_MAX_CLASSES, pages and images, max_pages] */
    size_t table_bytes;
    /* On the device; NULL: the host computes. */
    uint32_t *device_tables; /* as tables */
    KvPool *device_pools;    /* [n_classes, pages and images] */
    KvSeq seqs[];
};

static size_t pool_bytes(const KvSeqs *seqs)
{
    return seqs->params.classes->n_classes * 2 * sizeof *seqs->device_pools;
}

static bool copy_pools(KvSeqs *seqs)
{
    Device *device = seqs->params.device;
    for (uint32_t i = 0; i < seqs->params.classes->n_classes; i++) {
        const KvPool *images = kv_memory_image_pool(seqs->params.memory, i);
        KvPool *to = &seqs->device_pools[2 * i];
        if (!device_copy(device, to, kv_memory_pool(seqs->params.memory, i), sizeof *to)) return false;
        if (images && !device_copy(device, to + 1, images, sizeof *to)) return false;
    }
    return true;
}

uint64_t kv_seqs_device_bytes(const KvClassTable *classes, uint32_t context, uint32_t max_sequences)
{
    return (uint64_t)max_sequences * KV_MAX_CLASSES * 2 * kv_n_pages(context) * sizeof(uint32_t) +
           classes->n_classes * 2 * sizeof(KvPool);
}

static bool open_device(KvSeqs *seqs, Error *error)
{
    Device *device = seqs->params.device;
    if (!device) return true;
    seqs->device_tables = device->ops->alloc(device, seqs->table_bytes);
    seqs->device_pools = device->ops->alloc(device, pool_bytes(seqs));
    if (!seqs->device_tables || !seqs->device_pools)
        return error_set_param(error, ERR_NO_MEMORY, "gpu_memory", "no device memory for the page tables");
    return copy_pools(seqs) || error_set(error, ERR_DEVICE, "%s failed", device->name);
}

bool kv_seqs_new(const KvSeqsParams *params, KvSeqs **ret_seqs, Error *error)
{
    KvSeqs *seqs = calloc(1, sizeof *seqs + params->max_sequences * sizeof *seqs->seqs);
    if (!seqs) return error_set(error, ERR_NO_MEMORY, "no memory for %u sequences", params->max_sequences);
    seqs->params = *params;
    seqs->max_pages = kv_n_pages(params->context);
    seqs->table_bytes = (size_t)params->max_sequences * KV_MAX_CLASSES * 2 * seqs->max_pages * sizeof *seqs->tables;
    seqs->tables =
        mmap(NULL, seqs->table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seqs->tables == MAP_FAILED) {
        free(seqs);
        return error_set_param(error, ERR_NO_MEMORY, "ctx", "no addresses for the page tables of %u sequences",
                               params->max_sequences);
    }
    if (!open_device(seqs, error)) {
        kv_seqs_free(seqs);
        return false;
    }
    *ret_seqs = seqs;
    return true;
}

void kv_seqs_free(KvSeqs *seqs)
{
    if (!seqs) return;
    for (SeqId seq = 0; seq < seqs->params.max_sequences; seq++)
        if (seqs->seqs[seq].is_open) kv_seq_close(seqs, seq);
    if (seqs->params.device) {
        seqs->params.device->ops->free(seqs->params.device, seqs->device_tables, seqs->table_bytes);
        seqs->params.device->ops->free(seqs->params.device, seqs->device_pools, pool_bytes(seqs));
    }
    munmap(seqs->tables, seqs->table_bytes);
    free(seqs);
}

static const KvPolicyMap *map_of(const KvSeqs *seqs, const KvSeq *seq)
{
    return &seqs->params.classes->policies[policy_slot(seq->policy)];
}

static uint32_t *table_of(const KvSeqs *seqs, SeqId id, uint32_t class, bool of_images)
{
    return seqs->tables + (((size_t)id * KV_MAX_CLASSES + class) * 2 + of_images) * seqs->max_pages;
}

static KvSeq *seq_at(KvSeqs *seqs, SeqId id)
{
    assert(kv_seq_is_open(seqs, id));
    return &seqs->seqs[id];
}

static const KvSeq *peek_at(const KvSeqs *seqs, SeqId id)
{
    assert(kv_seq_is_open(seqs, id));
    return &seqs->seqs[id];
}

static PageId page_at(const KvSeqs *seqs, SeqId id, uint32_t class, uint32_t logical_page)
{
    uint32_t index = table_of(seqs, id, class, false)[logical_page];
    return index == PAGE_NONE ? PAGE_NONE : kv_page_id(map_of(seqs, &seqs->seqs[id])->classes[class].class_id, index);
}

static void set_page(KvSeqs *seqs, SeqId id, uint32_t class, uint32_t logical_page, PageId page)
{
    bool is_none = page == PAGE_NONE;
    table_of(seqs, id, class, false)[logical_page] = is_none ? PAGE_NONE : kv_page_index(page);
    table_of(seqs, id, class, true)[logical_page] = is_none ? KV_NO_IMAGE : kv_page_image(seqs->params.memory, page);
    KvSeq *seq = &seqs->seqs[id];
    if (logical_page < seq->first_new[class]) seq->first_new[class] = logical_page;
    if (logical_page >= seq->end_new[class]) seq->end_new[class] = logical_page + 1;
}

/* The pages from the one that is written next have images; the kernels' view of them starts there. */
static void set_tokens(KvSeqs *seqs, SeqId id, uint32_t n_tokens)
{
    KvSeq *seq = &seqs->seqs[id];
    seq->n_tokens = n_tokens;
    for (uint32_t c = 0; c < map_of(seqs, seq)->n_classes; c++) {
        KvPages *view = &seq->views[c];
        view->first_image = n_tokens / KV_PAGE_TOKENS;
        view->images = view->image_pool ? table_of(seqs, id, c, true) + view->first_image : NULL;
    }
}

static bool find_place(const KvSeqs *seqs, SeqId *ret_seq, Error *error)
{
    for (SeqId id = 0; id < seqs->params.max_sequences; id++)
        if (!seqs->seqs[id].is_open) {
            *ret_seq = id;
            return true;
        }
    return error_set(error, ERR_BUSY, "all %u sequences are in use", seqs->params.max_sequences);
}

bool kv_seq_new(KvSeqs *seqs, PolicyId policy, SeqId *ret_seq, Error *error)
{
    SeqId id = 0;
    if (policy_slot(policy) >= seqs->params.classes->n_policies)
        return error_set(error, ERR_INTERNAL, "there is no policy %u", policy);
    if (!find_place(seqs, &id, error)) return false;
    KvSeq *seq = &seqs->seqs[id];
    *seq = (KvSeq){.is_open = true, .policy = policy};
    const KvPolicyMap *map = map_of(seqs, seq);
    for (uint32_t c = 0; c < map->n_classes; c++) {
        uint32_t class_id = map->classes[c].class_id;
        seq->first_held[c] = kv_n_pages(map->classes[c].sink);
        seq->first_new[c] = UINT32_MAX;
        seq->views[c] = (KvPages){.pool = kv_memory_pool(seqs->params.memory, class_id),
                                  .pages = table_of(seqs, id, c, false),
                                  .image_pool = kv_memory_image_pool(seqs->params.memory, class_id)};
    }
    set_tokens(seqs, id, 0);
    *ret_seq = id;
    return true;
}

/* Leaves the pages from first on. */
static void cut_pages(KvSeqs *seqs, SeqId id, uint32_t first)
{
    KvSeq *seq = &seqs->seqs[id];
    for (uint32_t c = 0; c < map_of(seqs, seq)->n_classes; c++)
        for (uint32_t i = first; i < seq->n_pages; i++) {
            PageId page = page_at(seqs, id, c, i);
            if (page != PAGE_NONE) kv_page_unref(seqs->params.memory, page);
        }
    if (seq->n_pages > first) seq->n_pages = first;
}

void kv_seq_close(KvSeqs *seqs, SeqId id)
{
    KvSeq *seq = seq_at(seqs, id);
    cut_pages(seqs, id, 0);
    kv_memory_discharge(seqs->params.memory, seq->lists_bytes);
    seq->is_open = false;
}

bool kv_seq_is_open(const KvSeqs *seqs, SeqId id)
{
    return id < seqs->params.max_sequences && seqs->seqs[id].is_open;
}

uint32_t kv_seq_tokens(const KvSeqs *seqs, SeqId id)
{
    return peek_at(seqs, id)->n_tokens;
}

PolicyId kv_seq_policy(const KvSeqs *seqs, SeqId id)
{
    return peek_at(seqs, id)->policy;
}

const KvPages *kv_seq_views(const KvSeqs *seqs, SeqId id)
{
    return peek_at(seqs, id)->views;
}

/* Brings the device's table of a class up to date. */
static bool send_table(KvSeqs *seqs, SeqId id, uint32_t class)
{
    KvSeq *seq = &seqs->seqs[id];
    uint32_t first = seq->first_new[class], end = seq->end_new[class];
    seq->first_new[class] = UINT32_MAX;
    seq->end_new[class] = 0;
    for (uint32_t of_images = 0; first < end && of_images < (seq->views[class].image_pool ? 2 : 1); of_images++) {
        const uint32_t *from = table_of(seqs, id, class, of_images) + first;
        if (!device_copy(seqs->params.device, seqs->device_tables + (from - seqs->tables), from,
                         (end - first) * sizeof *from))
            return false;
    }
    return true;
}

bool kv_seq_device_views(KvSeqs *seqs, SeqId id, KvPages *ret_views)
{
    const KvSeq *seq = peek_at(seqs, id);
    const KvPolicyMap *map = map_of(seqs, seq);
    for (uint32_t c = 0; c < map->n_classes; c++) {
        if (!send_table(seqs, id, c)) return false;
        const KvPages *view = &seq->views[c];
        const KvPool *pools = &seqs->device_pools[2 * map->classes[c].class_id];
        ret_views[c] = (KvPages){.pool = pools,
                                 .pages = seqs->device_tables + (view->pages - seqs->tables),
                                 .first_image = view->first_image};
        if (!view->images) continue;
        ret_views[c].image_pool = pools + 1;
        ret_views[c].images = seqs->device_tables + (view->images - seqs->tables);
    }
    return true;
}

/* More that its lists may take when it has n tokens. */
static uint64_t more_lists(const KvSeqs *seqs, const KvSeq *seq, uint32_t n_tokens)
{
    uint64_t bytes = kv_lists_bytes(map_of(seqs, seq), n_tokens);
    return bytes > seq->lists_bytes ? bytes - seq->lists_bytes : 0;
}

uint64_t kv_seq_list_bytes(const KvSeqs *seqs, SeqId id)
{
    return peek_at(seqs, id)->lists_bytes;
}

/* Held pages that the next tokens are written into, but that have other owners too. */
static uint32_t count_shared(const KvSeqs *seqs, SeqId id, uint32_t class, uint32_t end)
{
    const KvSeq *seq = &seqs->seqs[id];
    uint32_t n = 0;
    for (uint32_t i = seq->n_tokens / KV_PAGE_TOKENS; i < end && i < seq->n_pages; i++)
        n += kv_page_owners(seqs->params.memory, page_at(seqs, id, class, i)) > 1;
    return n;
}

/* Pages and images that are its own to go on with. */
static KvShare count_held(const KvSeqs *seqs, SeqId id, uint32_t class)
{
    const KvSeq *seq = &seqs->seqs[id];
    const KvClassInfo *info = &map_of(seqs, seq)->classes[class];
    uint32_t n_sink = kv_n_pages(info->sink), first = seq->first_held[class], next = seq->n_tokens / KV_PAGE_TOKENS;
    uint32_t n_shared = count_shared(seqs, id, class, seq->n_pages);
    uint32_t n_left = seq->n_pages <= n_sink ? 0 : (seq->n_pages < first ? seq->n_pages : first) - n_sink;
    uint32_t n_images = info->is_quantised && seq->n_pages > next ? seq->n_pages - next - n_shared : 0;
    return (KvShare){seq->n_pages - n_left - n_shared, n_images};
}

static uint64_t n_missing(uint64_t need, uint64_t held)
{
    return need > held ? need - held : 0;
}

void kv_seq_add_missing(const KvSeqs *seqs, SeqId id, uint32_t n_tokens, uint32_t max_rows, KvNeed *need)
{
    const KvSeq *seq = peek_at(seqs, id);
    const KvClassTable *table = seqs->params.classes;
    const KvPolicyMap *map = map_of(seqs, seq);
    need->bytes += more_lists(seqs, seq, n_tokens);
    for (uint32_t c = 0; c < map->n_classes; c++) {
        const KvClass *class = &table->classes[map->classes[c].class_id];
        KvShare whole = kv_class_need(table, seq->policy, c, n_tokens, max_rows), held = count_held(seqs, id, c);
        KvShare more = {n_missing(whole.n_pages, held.n_pages), n_missing(whole.n_images, held.n_images)};
        KvShare *sum = &need->of[map->classes[c].class_id];
        sum->n_pages += more.n_pages;
        sum->n_images += more.n_images;
        need->bytes += more.n_pages * class->page_bytes + more.n_images * class->image_bytes;
    }
}

static void copy_shared(KvSeqs *seqs, SeqId id, uint32_t class, uint32_t end)
{
    KvMemory *memory = seqs->params.memory;
    const KvSeq *seq = &seqs->seqs[id];
    for (uint32_t i = seq->n_tokens / KV_PAGE_TOKENS; i < end && i < seq->n_pages; i++) {
        PageId old = page_at(seqs, id, class, i);
        if (kv_page_owners(memory, old) == 1) continue;
        PageId copy = kv_page_take(memory, kv_page_class(old), kv_page_image(memory, old) != KV_NO_IMAGE);
        kv_page_copy(memory, copy, old);
        set_page(seqs, id, class, i, copy);
        kv_page_unref(memory, old);
    }
}

bool kv_seq_reserve(KvSeqs *seqs, SeqId id, uint32_t n_tokens, Error *error)
{
    KvSeq *seq = seq_at(seqs, id);
    KvMemory *memory = seqs->params.memory;
    const KvPolicyMap *map = map_of(seqs, seq);
    KvWant wants[KV_MAX_CLASSES];
    if (n_tokens > seqs->params.context - seq->n_tokens)
        return error_set(error, ERR_CONTEXT_LENGTH, "%u tokens and %u more do not fit a context of %u", seq->n_tokens,
                         n_tokens, seqs->params.context);
    uint32_t end = kv_n_pages(seq->n_tokens + n_tokens), n_new = end > seq->n_pages ? end - seq->n_pages : 0;
    for (uint32_t c = 0; c < map->n_classes; c++) {
        uint32_t n = n_new + count_shared(seqs, id, c, end);
        wants[c] = (KvWant){map->classes[c].class_id, n, map->classes[c].is_quantised ? n : 0};
    }
    uint64_t more = more_lists(seqs, seq, seq->n_tokens + n_tokens);
    if (!kv_memory_has(memory, wants, map->n_classes, more))
        return error_set(error, ERR_BUSY, "too few KV pages are free for %u more tokens", n_tokens);
    for (uint32_t c = 0; c < map->n_classes; c++) {
        copy_shared(seqs, id, c, end);
        for (uint32_t i = seq->n_pages; i < end; i++)
            set_page(seqs, id, c, i, kv_page_take(memory, wants[c].class_id, map->classes[c].is_quantised));
    }
    seq->n_pages += n_new;
    kv_memory_charge(memory, more);
    seq->lists_bytes += more;
    return true;
}

bool kv_seq_may_write(const KvSeqs *seqs, SeqId id, uint32_t n_tokens)
{
    const KvSeq *seq = peek_at(seqs, id);
    if (n_tokens > seqs->params.context - seq->n_tokens) return false;
    uint32_t end = kv_n_pages(seq->n_tokens + n_tokens), n_shared = 0;
    for (uint32_t c = 0; c < map_of(seqs, seq)->n_classes; c++) n_shared += count_shared(seqs, id, c, end);
    return end <= seq->n_pages && !n_shared;
}

/* Windowed classes leave the pages that no query from n_tokens on sees. */
static void leave_seen(KvSeqs *seqs, SeqId id)
{
    KvSeq *seq = &seqs->seqs[id];
    const KvPolicyMap *map = map_of(seqs, seq);
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t i; (i = seq->first_held[c]) < seq->n_tokens / KV_PAGE_TOKENS &&
                         !kv_class_needs(&map->classes[c], seq->n_tokens, (uint64_t)i * KV_PAGE_TOKENS);
             seq->first_held[c]++) {
            PageId page = page_at(seqs, id, c, i);
            if (page == PAGE_NONE) continue;
            kv_page_unref(seqs->params.memory, page);
            set_page(seqs, id, c, i, PAGE_NONE);
        }
}

void kv_seq_advance(KvSeqs *seqs, SeqId id, uint32_t n)
{
    KvSeq *seq = seq_at(seqs, id);
    assert(kv_seq_may_write(seqs, id, n));
    const KvPolicyMap *map = map_of(seqs, seq);
    uint32_t end = (seq->n_tokens + n) / KV_PAGE_TOKENS;
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t i = seq->n_tokens / KV_PAGE_TOKENS; map->classes[c].is_quantised && i < end; i++) {
            kv_page_drop_image(seqs->params.memory, page_at(seqs, id, c, i));
            table_of(seqs, id, c, true)[i] = KV_NO_IMAGE;
        }
    set_tokens(seqs, id, seq->n_tokens + n);
    leave_seen(seqs, id);
}

bool kv_seq_fork(KvSeqs *seqs, SeqId from, SeqId *ret_seq, Error *error)
{
    const KvSeq *parent = peek_at(seqs, from);
    SeqId id = 0;
    if (!kv_seq_new(seqs, parent->policy, &id, error)) return false;
    KvSeq *seq = &seqs->seqs[id];
    for (uint32_t c = 0; c < map_of(seqs, seq)->n_classes; c++) {
        seq->first_held[c] = parent->first_held[c];
        for (uint32_t i = 0; i < kv_n_pages(parent->n_tokens); i++) {
            PageId page = page_at(seqs, from, c, i);
            if (page != PAGE_NONE) kv_page_ref(seqs->params.memory, page);
            set_page(seqs, id, c, i, page);
        }
    }
    seq->n_pages = kv_n_pages(parent->n_tokens);
    set_tokens(seqs, id, parent->n_tokens);
    *ret_seq = id;
    return true;
}

/* May page be what a class holds of [first, first + n) in a sequence whose next query is at position next? */
static bool check_adopted(const KvMemory *memory, const KvClassInfo *class, PageId page, uint64_t first, uint32_t n,
                          uint64_t next, Error *error)
{
    if (page == PAGE_NONE) {
        if (!kv_class_needs(class, next, first)) return true;
        return error_set(error, ERR_INTERNAL, "class '%s' lacks the page of position %llu", class->name,
                         (unsigned long long)first);
    }
    if (kv_page_class(page) != class->class_id || !kv_page_owners(memory, page))
        return error_set(error, ERR_INTERNAL, "page %u is none of class '%s'", page, class->name);
    bool is_open = kv_page_image(memory, page) != KV_NO_IMAGE;
    if (class->is_quantised && is_open != (n < KV_PAGE_TOKENS))
        return error_set(error, ERR_INTERNAL, "class '%s': %u tokens of a page that is %s", class->name, n,
                         is_open ? "open" : "closed");
    return true;
}

bool kv_seq_adopt(KvSeqs *seqs, SeqId id, const PageSet *sets, uint32_t n_tokens, Error *error)
{
    KvSeq *seq = seq_at(seqs, id);
    KvMemory *memory = seqs->params.memory;
    const KvPolicyMap *map = map_of(seqs, seq);
    uint32_t held = seq->n_tokens, n_sets = kv_n_pages(n_tokens), first = held / KV_PAGE_TOKENS;
    if (held % KV_PAGE_TOKENS || n_tokens > seqs->params.context - held)
        return error_set(error, ERR_INTERNAL, "%u tokens cannot be adopted behind %u", n_tokens, held);
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t i = 0; i < n_sets; i++)
            if (!check_adopted(memory, &map->classes[c], sets[i].page[c], (uint64_t)(first + i) * KV_PAGE_TOKENS,
                               kv_tokens_of_page(n_tokens, i), (uint64_t)held + n_tokens, error))
                return false;
    cut_pages(seqs, id, first);
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t i = 0; i < n_sets; i++) {
            if (sets[i].page[c] != PAGE_NONE) kv_page_ref(memory, sets[i].page[c]);
            set_page(seqs, id, c, first + i, sets[i].page[c]);
        }
    seq->n_pages = first + n_sets;
    set_tokens(seqs, id, held + n_tokens);
    leave_seen(seqs, id);
    return true;
}

void kv_seq_page(const KvSeqs *seqs, SeqId id, uint32_t logical_page, PageSet *ret_set)
{
    const KvSeq *seq = peek_at(seqs, id);
    uint32_t n_classes = logical_page < seq->n_pages ? map_of(seqs, seq)->n_classes : 0;
    for (uint32_t c = 0; c < KV_MAX_CLASSES; c++)
        ret_set->page[c] = c < n_classes ? page_at(seqs, id, c, logical_page) : PAGE_NONE;
}
