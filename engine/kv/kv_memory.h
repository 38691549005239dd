/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of all classes, with their owners counted, in one budget of bytes: memory that a freed page leaves goes to
 * whatever class asks next. Addresses for the whole budget are reserved for each class, and cost nothing. An open page
 * of a quantised class has an image beside it, which lives and dies with the page's owners or goes when it is closed.
 * After kv_memory_new nothing allocates. Engine thread.
 */
#pragma once
#include "engine/kv/kv_class.h"

typedef struct KvMemory KvMemory;
struct Device;

/* classes is kept by the caller until kv_memory_free. */
LW_CHECK bool kv_memory_new(const KvClassTable *classes, uint64_t budget_bytes, KvMemory **ret_memory, Error *error);
/* In a device's own memory, all of it taken here, so that what each class has is fixed: shares [n_classes]. */
LW_CHECK bool kv_memory_new_on(struct Device *device, const KvClassTable *classes, const KvShare *shares,
                               KvMemory **ret_memory, Error *error);
void kv_memory_free(KvMemory *memory); /* NULL is fine */

/* What somebody means to take of a class; n_pages counts those with images too. */
typedef struct KvWant {
    uint32_t class_id, n_pages, n_images;
} KvWant;
/* Is all of it there at once, and so many bytes beside it? Each class comes once. */
bool kv_memory_has(const KvMemory *memory, const KvWant *wants, uint32_t n_wants, uint64_t beside_bytes);
/* The same of what several lack together. */
bool kv_memory_meets(const KvMemory *memory, const KvNeed *need);
/* Memory beside the pages, out of the same budget: kv_memory_has has said that it is there; it is given back. */
void kv_memory_charge(KvMemory *memory, uint64_t bytes);
void kv_memory_discharge(KvMemory *memory, uint64_t bytes);

/* A page with one owner; kv_memory_has said that it is there. */
PageId kv_page_take(KvMemory *memory, uint32_t class_id, bool with_image);
void kv_page_ref(KvMemory *memory, PageId page);
void kv_page_unref(KvMemory *memory, PageId page);
/* The same of every page of a set. */
void kv_set_ref(KvMemory *memory, const PageSet *set);
void kv_set_unref(KvMemory *memory, const PageSet *set);
uint32_t kv_page_owners(const KvMemory *memory, PageId page); /* 0 also for what is no page */
/* The page's number in the image pool; KV_NO_IMAGE: it has none. */
#define KV_NO_IMAGE UINT32_MAX
uint32_t kv_page_image(const KvMemory *memory, PageId page);
/* The image is not needed any more. */
void kv_page_drop_image(KvMemory *memory, PageId page);
/* Bytes of the image if the page has one, else of the page; without the padding behind them. On a device: its. */
char *kv_page_data(const KvMemory *memory, PageId page, size_t *ret_bytes);

/* The same bytes, from page to page, to the host and from there. A device that fails remembers it (device.h). */
void kv_page_copy(KvMemory *memory, PageId to, PageId from);
LW_CHECK bool kv_page_read(const KvMemory *memory, PageId page, void *dst); /* false: dst is worth nothing */
LW_CHECK bool kv_page_write(KvMemory *memory, PageId page, const void *src);

/* A PageId is a class and a number in its pool. */
uint32_t kv_page_class(PageId page);
uint32_t kv_page_index(PageId page);
PageId kv_page_id(uint32_t class_id, uint32_t index);

const KvPool *kv_memory_pool(const KvMemory *memory, uint32_t class_id);
const KvPool *kv_memory_image_pool(const KvMemory *memory, uint32_t class_id); /* NULL: unquantised */
KvUsage kv_memory_usage(const KvMemory *memory);
