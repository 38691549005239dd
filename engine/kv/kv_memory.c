/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_memory.h"
#include "kernels/attention/kv_bounds.h"

#include "engine/device.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { INDEX_BITS = 26, MAX_PAGES = (1 << INDEX_BITS) - 1 };

/*
 * Equal pieces of one mapping. Free pages are warm (their memory is there) or cold (it was given back, or never
 * touched): those from n_touched on are cold without being listed.
 */
typedef struct PagePool {
    KvPool view; /* base NULL: there is no such pool */
    uint32_t n_max, n_touched, n_used, n_warm, n_cold;
    uint32_t *warm, *cold; /* [n_max] stacks */
} PagePool;

/* Of one class. */
typedef struct ClassPages {
    PagePool pages, images;
    uint32_t *owners;   /* [pages.n_max] */
    uint32_t *image_of; /* [pages.n_max]; only where the class is quantised */
} ClassPages;

_Static_assert(KV_MAX_PAGE_CLASSES == 1 << (32 - INDEX_BITS), "a PageId is a class and a number in its pool");

struct KvMemory {
    Device *device;
    const KvClassTable *table;
    uint64_t budget_bytes;
    uint64_t used_bytes;     /* with owners, and what was charged */
    uint64_t resident_bytes; /* and what is free but warm */
    uint32_t n_pages_used;
    ClassPages classes[];
};

/* Of a pool that the budget holds no page of there is nothing but its address. */
static void *map_zeros(uint64_t bytes)
{
    void *memory = bytes > SIZE_MAX ? MAP_FAILED
                                    : mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(void *memory, uint64_t bytes)
{
    if (memory) munmap(memory, bytes ? bytes : 1);
}

static uint64_t pool_bytes(const PagePool *pool)
{
    return (uint64_t)(pool->n_max ? pool->n_max : 1) * pool->view.page_bytes;
}

static void pool_done(Device *device, PagePool *pool)
{
    device->ops->free(device, pool->view.base, pool_bytes(pool));
    unmap(pool->warm, (uint64_t)pool->n_max * sizeof *pool->warm);
    unmap(pool->cold, (uint64_t)pool->n_max * sizeof *pool->cold);
}

static bool pool_init(Device *device, PagePool *pool, const KvClass *class, KvType type, size_t page_bytes,
                      uint64_t n_max)
{
    pool->n_max = n_max > MAX_PAGES ? MAX_PAGES : (uint32_t)n_max;
    pool->view.layout = kv_layout(type, class->k_dim, class->v_dim);
    pool->view.page_bytes = page_bytes;
    pool->view.base = device->ops->alloc(device, pool_bytes(pool));
    pool->warm = map_zeros((uint64_t)pool->n_max * sizeof *pool->warm);
    pool->cold = map_zeros((uint64_t)pool->n_max * sizeof *pool->cold);
    return pool->view.base && pool->warm && pool->cold;
}

static bool class_init(Device *device, ClassPages *pages, const KvClass *class, KvShare share)
{
    if (!pool_init(device, &pages->pages, class, class->type, class->page_bytes, share.n_pages)) return false;
    pages->pages.view.bounds_offset = class->bounds_offset;
    pages->owners = map_zeros((uint64_t)pages->pages.n_max * sizeof *pages->owners);
    if (!class->image_bytes) return pages->owners;
    pages->image_of = map_zeros((uint64_t)pages->pages.n_max * sizeof *pages->image_of);
    return pages->owners && pages->image_of &&
           pool_init(device, &pages->images, class, KV_BF16, class->image_bytes, share.n_images);
}

static KvMemory *memory_new(Device *device, const KvClassTable *classes, uint64_t budget_bytes, Error *error)
{
    if (classes->n_classes > KV_MAX_PAGE_CLASSES) {
        error_set_param(error, ERR_TOO_LARGE, "roles", "the roles make %u classes of KV pages, more than %d",
                        classes->n_classes, KV_MAX_PAGE_CLASSES);
        return NULL;
    }
    KvMemory *memory = calloc(1, sizeof *memory + classes->n_classes * sizeof *memory->classes);
    if (!memory) {
        error_set(error, ERR_NO_MEMORY, "no memory for the table of KV pages");
        return NULL;
    }
    memory->device = device;
    memory->table = classes;
    memory->budget_bytes = budget_bytes;
    return memory;
}

bool kv_memory_new(const KvClassTable *classes, uint64_t budget_bytes, KvMemory **ret_memory, Error *error)
{
    for (uint32_t i = 0; i < classes->n_needed; i++)
        if (budget_bytes < classes->classes[i].page_bytes || budget_bytes < classes->classes[i].image_bytes)
            return error_set_param(error, ERR_INVALID, "host_memory", "%llu bytes of KV memory do not hold a page",
                                   (unsigned long long)budget_bytes);
    KvMemory *memory = memory_new(device_host(), classes, budget_bytes, error);
    if (!memory) return false;
    bool ok = true;
    for (uint32_t i = 0; ok && i < classes->n_classes; i++) {
        const KvClass *class = &classes->classes[i];
        KvShare all = {budget_bytes / class->page_bytes, class->image_bytes ? budget_bytes / class->image_bytes : 0};
        ok = class_init(memory->device, &memory->classes[i], class, all);
    }
    if (!ok) {
        kv_memory_free(memory);
        return error_set_param(error, ERR_NO_MEMORY, "host_memory", "no addresses for %llu MiB of KV memory",
                               (unsigned long long)(budget_bytes >> 20));
    }
    *ret_memory = memory;
    return true;
}

bool kv_memory_new_on(Device *device, const KvClassTable *classes, const KvShare *shares, KvMemory **ret_memory,
                      Error *error)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < classes->n_classes; i++)
        bytes +=
            shares[i].n_pages * classes->classes[i].page_bytes + shares[i].n_images * classes->classes[i].image_bytes;
    KvMemory *memory = memory_new(device, classes, bytes, error);
    if (!memory) return false;
    bool ok = true;
    for (uint32_t i = 0; ok && i < classes->n_classes; i++)
        ok = class_init(device, &memory->classes[i], &classes->classes[i], shares[i]);
    if (!ok) {
        kv_memory_free(memory);
        return error_set_param(error, ERR_NO_MEMORY, "gpu_memory",
                               "the device has no %llu MiB left for keys and values: less gpu_memory is needed",
                               (unsigned long long)(bytes >> 20));
    }
    *ret_memory = memory;
    return true;
}

void kv_memory_free(KvMemory *memory)
{
    if (!memory) return;
    for (uint32_t i = 0; i < memory->table->n_classes; i++) {
        ClassPages *pages = &memory->classes[i];
        unmap(pages->owners, (uint64_t)pages->pages.n_max * sizeof *pages->owners);
        unmap(pages->image_of, (uint64_t)pages->pages.n_max * sizeof *pages->image_of);
        pool_done(memory->device, &pages->pages);
        pool_done(memory->device, &pages->images);
    }
    free(memory);
}

uint32_t kv_page_class(PageId page)
{
    return page >> INDEX_BITS;
}

uint32_t kv_page_index(PageId page)
{
    return page & MAX_PAGES;
}

PageId kv_page_id(uint32_t class_id, uint32_t index)
{
    return class_id << INDEX_BITS | index;
}

bool kv_memory_has(const KvMemory *memory, const KvWant *wants, uint32_t n_wants, uint64_t beside_bytes)
{
    uint64_t bytes = beside_bytes;
    for (uint32_t i = 0; i < n_wants; i++) {
        const ClassPages *pages = &memory->classes[wants[i].class_id];
        bytes += (uint64_t)wants[i].n_pages * pages->pages.view.page_bytes;
        bytes += (uint64_t)wants[i].n_images * pages->images.view.page_bytes;
        if (wants[i].n_pages > pages->pages.n_max - pages->pages.n_used) return false;
        if (wants[i].n_images > pages->images.n_max - pages->images.n_used) return false;
    }
    return bytes <= memory->budget_bytes - memory->used_bytes;
}

bool kv_memory_meets(const KvMemory *memory, const KvNeed *need)
{
    for (uint32_t i = 0; i < memory->table->n_classes; i++) {
        const PagePool *pages = &memory->classes[i].pages, *images = &memory->classes[i].images;
        if (need->of[i].n_pages > pages->n_max - pages->n_used) return false;
        if (need->of[i].n_images > images->n_max - images->n_used) return false;
    }
    return need->bytes <= memory->budget_bytes - memory->used_bytes;
}

/* Gives the memory of one free page back; false: the pool has none that is warm. */
static bool cool_one(KvMemory *memory, PagePool *pool)
{
    if (!pool->n_warm) return false;
    uint32_t index = pool->warm[--pool->n_warm];
    /* Failing only means that the memory stays. */
    (void)madvise(pool->view.base + index * pool->view.page_bytes, pool->view.page_bytes, MADV_DONTNEED);
    pool->cold[pool->n_cold++] = index;
    memory->resident_bytes -= pool->view.page_bytes;
    return true;
}

static void make_room(KvMemory *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < memory->table->n_classes; i++)
        while (memory->resident_bytes + bytes > memory->budget_bytes &&
               (cool_one(memory, &memory->classes[i].pages) || cool_one(memory, &memory->classes[i].images)))
            ;
}

void kv_memory_charge(KvMemory *memory, uint64_t bytes)
{
    assert(bytes <= memory->budget_bytes - memory->used_bytes);
    make_room(memory, bytes);
    memory->used_bytes += bytes;
    memory->resident_bytes += bytes;
}

void kv_memory_discharge(KvMemory *memory, uint64_t bytes)
{
    assert(bytes <= memory->used_bytes && bytes <= memory->resident_bytes);
    memory->used_bytes -= bytes;
    memory->resident_bytes -= bytes;
}

static uint32_t pool_take(KvMemory *memory, PagePool *pool)
{
    size_t bytes = pool->view.page_bytes;
    assert(memory->used_bytes + bytes <= memory->budget_bytes && pool->n_used < pool->n_max);
    memory->used_bytes += bytes;
    pool->n_used++;
    if (pool->n_warm) return pool->warm[--pool->n_warm];
    make_room(memory, bytes);
    memory->resident_bytes += bytes;
    return pool->n_cold ? pool->cold[--pool->n_cold] : pool->n_touched++;
}

static void pool_give(KvMemory *memory, PagePool *pool, uint32_t index)
{
    memory->used_bytes -= pool->view.page_bytes;
    pool->n_used--;
    pool->warm[pool->n_warm++] = index;
}

PageId kv_page_take(KvMemory *memory, uint32_t class_id, bool with_image)
{
    ClassPages *pages = &memory->classes[class_id];
    uint32_t index = pool_take(memory, &pages->pages);
    pages->owners[index] = 1;
    if (pages->image_of) pages->image_of[index] = with_image ? pool_take(memory, &pages->images) : KV_NO_IMAGE;
    memory->n_pages_used++;
    return kv_page_id(class_id, index);
}

void kv_page_ref(KvMemory *memory, PageId page)
{
    uint32_t *owners = &memory->classes[kv_page_class(page)].owners[kv_page_index(page)];
    assert(*owners > 0 && *owners < UINT32_MAX);
    ++*owners;
}

void kv_page_unref(KvMemory *memory, PageId page)
{
    ClassPages *pages = &memory->classes[kv_page_class(page)];
    uint32_t index = kv_page_index(page);
    assert(pages->owners[index] > 0);
    if (--pages->owners[index]) return;
    kv_page_drop_image(memory, page);
    pool_give(memory, &pages->pages, index);
    memory->n_pages_used--;
}

void kv_set_ref(KvMemory *memory, const PageSet *set)
{
    for (uint32_t c = 0; c < KV_MAX_CLASSES; c++)
        if (set->page[c] != PAGE_NONE) kv_page_ref(memory, set->page[c]);
}

void kv_set_unref(KvMemory *memory, const PageSet *set)
{
    for (uint32_t c = 0; c < KV_MAX_CLASSES; c++)
        if (set->page[c] != PAGE_NONE) kv_page_unref(memory, set->page[c]);
}

uint32_t kv_page_owners(const KvMemory *memory, PageId page)
{
    if (kv_page_class(page) >= memory->table->n_classes) return 0;
    const ClassPages *pages = &memory->classes[kv_page_class(page)];
    return kv_page_index(page) < pages->pages.n_touched ? pages->owners[kv_page_index(page)] : 0;
}

uint32_t kv_page_image(const KvMemory *memory, PageId page)
{
    const ClassPages *pages = &memory->classes[kv_page_class(page)];
    return pages->image_of ? pages->image_of[kv_page_index(page)] : KV_NO_IMAGE;
}

void kv_page_drop_image(KvMemory *memory, PageId page)
{
    uint32_t image = kv_page_image(memory, page);
    if (image == KV_NO_IMAGE) return;
    ClassPages *pages = &memory->classes[kv_page_class(page)];
    pages->image_of[kv_page_index(page)] = KV_NO_IMAGE;
    pool_give(memory, &pages->images, image);
}

char *kv_page_data(const KvMemory *memory, PageId page, size_t *ret_bytes)
{
    const ClassPages *pages = &memory->classes[kv_page_class(page)];
    uint32_t image = kv_page_image(memory, page);
    const KvPool *pool = image == KV_NO_IMAGE ? &pages->pages.view : &pages->images.view;
    *ret_bytes = memory->table->classes[kv_page_class(page)].n_slots *
                 (pool->layout.slot_bytes + (pool->bounds_offset ? kv_bounds_bytes(pool->layout.k_dim) : 0));
    return pool->base + (size_t)(image == KV_NO_IMAGE ? kv_page_index(page) : image) * pool->page_bytes;
}

void kv_page_copy(KvMemory *memory, PageId to, PageId from)
{
    size_t bytes;
    char *target = kv_page_data(memory, to, &bytes);
    const char *source = kv_page_data(memory, from, &bytes);
    memory->device->ops->copy(memory->device, target, source, bytes);
}

bool kv_page_read(const KvMemory *memory, PageId page, void *dst)
{
    size_t bytes;
    const char *data = kv_page_data(memory, page, &bytes);
    return device_copy(memory->device, dst, data, bytes) && device_sync(memory->device);
}

bool kv_page_write(KvMemory *memory, PageId page, const void *src)
{
    size_t bytes;
    char *data = kv_page_data(memory, page, &bytes);
    return device_copy(memory->device, data, src, bytes) && device_sync(memory->device);
}

const KvPool *kv_memory_pool(const KvMemory *memory, uint32_t class_id)
{
    return &memory->classes[class_id].pages.view;
}

const KvPool *kv_memory_image_pool(const KvMemory *memory, uint32_t class_id)
{
    const PagePool *images = &memory->classes[class_id].images;
    return images->view.base ? &images->view : NULL;
}

KvUsage kv_memory_usage(const KvMemory *memory)
{
    KvUsage usage = {
        .total_bytes = memory->budget_bytes, .used_bytes = memory->used_bytes, .n_pages_used = memory->n_pages_used};
    uint64_t widest = 1;
    for (uint32_t i = 0; i < memory->table->n_classes; i++) {
        const KvClass *class = &memory->table->classes[i];
        if (class->page_bytes > widest) widest = class->page_bytes;
        usage.n_pages_of[class->kind] += memory->classes[i].pages.n_used;
        usage.n_images_used += memory->classes[i].images.n_used;
    }
    usage.total_tokens = memory->budget_bytes / widest * KV_PAGE_TOKENS;
    usage.used_tokens = memory->used_bytes / widest * KV_PAGE_TOKENS;
    return usage;
}
