/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences and pages against a model of them in plain arrays: which token stands where, who holds which page. Every
 * page has the tokens written into it that the kernels would write, and is poisoned once nobody owns it.
 */
#include "tests/support/kv_rig.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_SEQS = 6, MAX_KEPT = 4, MAX_PAGES = RIG_CONTEXT / KV_PAGE_TOKENS, MAX_IDS = 4096, POISON = 0xEE };

typedef struct Text {
    bool is_live;
    PolicyId policy;
    uint32_t n;
    uint32_t tokens[RIG_CONTEXT];
} Text;

/* What the prefix cache would keep: pages and the tokens that they stand for. */
typedef struct Kept {
    Text text;
    PageSet sets[MAX_PAGES];
} Kept;

typedef struct Model {
    KvRig rig;
    Text seqs[MAX_SEQS];
    uint32_t n_reserved[MAX_SEQS]; /* logical pages */
    Kept kept[MAX_KEPT];
    uint64_t seed;
    uint32_t n_busy, n_taken, n_adopted, n_forked;
} Model;

static Error error;

static uint32_t draw(Model *model, uint32_t n)
{
    model->seed = model->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(model->seed >> 33) % n;
}

static const KvPolicyMap *map_of(const Model *model, const Text *text)
{
    return &model->rig.classes.policies[text->policy];
}

static uint32_t *token_at(const Model *model, PageId page, uint32_t position)
{
    size_t bytes;
    char *data = kv_page_data(model->rig.memory, page, &bytes);
    cr_assert_geq(bytes, KV_PAGE_TOKENS * sizeof(uint32_t));
    return (uint32_t *)(void *)data + position % KV_PAGE_TOKENS;
}

/* Owners of every page, counted from what the model believes. */
static void count_owners(const Model *model, uint32_t owners[][MAX_IDS])
{
    for (SeqId s = 0; s < MAX_SEQS; s++)
        for (uint32_t i = 0; model->seqs[s].is_live && i < MAX_PAGES; i++) {
            PageSet set;
            kv_seq_page(model->rig.seqs, s, i, &set);
            for (int c = 0; c < KV_MAX_CLASSES; c++)
                if (set.page[c] != PAGE_NONE) owners[kv_page_class(set.page[c])][kv_page_index(set.page[c])]++;
        }
    for (uint32_t k = 0; k < MAX_KEPT; k++)
        for (uint32_t i = 0; model->kept[k].text.is_live && i < kv_n_pages(model->kept[k].text.n); i++)
            for (int c = 0; c < KV_MAX_CLASSES; c++) {
                PageId page = model->kept[k].sets[i].page[c];
                if (page != PAGE_NONE) owners[kv_page_class(page)][kv_page_index(page)]++;
            }
}

static void check_owners(const Model *model)
{
    static uint32_t owners[8][MAX_IDS];
    const KvMemory *memory = model->rig.memory;
    uint64_t bytes = 0;
    uint32_t n_pages = 0;
    memset(owners, 0, sizeof owners);
    count_owners(model, owners);
    for (uint32_t c = 0; c < model->rig.classes.n_classes; c++)
        for (uint32_t i = 0; i < MAX_IDS; i++) {
            PageId page = kv_page_id(c, i);
            cr_assert_eq(kv_page_owners(memory, page), owners[c][i], "class %u page %u", c, i);
            if (!owners[c][i]) continue;
            n_pages++;
            bytes += model->rig.classes.classes[c].page_bytes;
            if (kv_page_image(memory, page) != KV_NO_IMAGE) bytes += model->rig.classes.classes[c].image_bytes;
        }
    KvUsage usage = kv_memory_usage(memory);
    cr_assert(usage.used_bytes == bytes && usage.n_pages_used == n_pages && bytes <= usage.total_bytes);
}

/* Every position that the next query may see is there with its token; what no query sees is not held. */
static void check_seq(const Model *model, SeqId s)
{
    const Text *text = &model->seqs[s];
    const KvPolicyMap *map = map_of(model, text);
    cr_assert_eq(kv_seq_tokens(model->rig.seqs, s), text->n);
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t p = 0; p < text->n; p++) {
            PageSet set;
            const KvClassInfo *class = &map->classes[c];
            bool is_seen = class->window == PLAN_ALL || p < class->sink || text->n - p < class->window;
            kv_seq_page(model->rig.seqs, s, p / KV_PAGE_TOKENS, &set);
            uint32_t first = p / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
            if (set.page[c] == PAGE_NONE)
                cr_assert_not(is_seen, "sequence %u of %u tokens: class %u lacks position %u", s, text->n, c, p);
            else
                cr_assert_eq(*token_at(model, set.page[c], p), text->tokens[p], "sequence %u class %u at %u", s, c, p);
            cr_assert_eq(set.page[c] != PAGE_NONE,
                         kv_class_needs(class, text->n, first) || first == text->n / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
        }
}

static void check(const Model *model)
{
    check_owners(model);
    for (SeqId s = 0; s < MAX_SEQS; s++) {
        cr_assert_eq(kv_seq_is_open(model->rig.seqs, s), model->seqs[s].is_live);
        if (model->seqs[s].is_live) check_seq(model, s);
    }
}

/* Fills whatever nobody owns, as far as the pools were ever used. */
static void poison(const Model *model)
{
    for (uint32_t c = 0; c < model->rig.classes.n_classes; c++) {
        const KvPool *pool = kv_memory_pool(model->rig.memory, c);
        uint64_t n = kv_memory_usage(model->rig.memory).total_bytes / pool->page_bytes;
        for (uint32_t i = 0; i < n; i++)
            if (!kv_page_owners(model->rig.memory, kv_page_id(c, i)))
                memset(pool->base + i * pool->page_bytes, POISON, KV_PAGE_TOKENS * sizeof(uint32_t));
    }
}

static void take_over(Model *model, SeqId s, const Text *text, uint32_t n)
{
    model->seqs[s] = *text;
    model->seqs[s].is_live = true;
    model->seqs[s].n = n;
}

static void open_one(Model *model)
{
    SeqId s = 99;
    PolicyId policy = draw(model, RIG_POLICIES);
    if (kv_seq_new(model->rig.seqs, policy, &s, &error))
        take_over(model, s, &(Text){.policy = policy}, 0);
    else
        cr_assert_eq(error.code, ERR_BUSY);
}

/* What the kernels of a pass do: into the image, and into the page once it is full. */
static void write_tokens(Model *model, SeqId s, uint32_t n)
{
    Text *text = &model->seqs[s];
    const KvPolicyMap *map = map_of(model, text);
    for (uint32_t p = text->n; p < text->n + n; p++) {
        PageSet set;
        text->tokens[p] = draw(model, 1 << 30);
        kv_seq_page(model->rig.seqs, s, p / KV_PAGE_TOKENS, &set);
        for (uint32_t c = 0; c < map->n_classes; c++) {
            const KvPool *pool = kv_memory_pool(model->rig.memory, kv_page_class(set.page[c]));
            *token_at(model, set.page[c], p) = text->tokens[p];
            if ((p + 1) % KV_PAGE_TOKENS == 0)
                memcpy(pool->base + kv_page_index(set.page[c]) * pool->page_bytes, token_at(model, set.page[c], 0),
                       KV_PAGE_TOKENS * sizeof(uint32_t));
        }
    }
}

/* Would n more tokens find room? From owners and bytes alone. */
static bool fits(const Model *model, SeqId s, uint32_t n, uint32_t n_held)
{
    const Text *text = &model->seqs[s];
    const KvPolicyMap *map = map_of(model, text);
    uint32_t end = kv_n_pages(text->n + n);
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < map->n_classes; c++) {
        const KvClass *class = &model->rig.classes.classes[map->classes[c].class_id];
        for (uint32_t i = text->n / KV_PAGE_TOKENS; i < end; i++) {
            PageSet set;
            kv_seq_page(model->rig.seqs, s, i, &set);
            if (i >= n_held || kv_page_owners(model->rig.memory, set.page[c]) > 1)
                bytes += class->page_bytes + class->image_bytes;
        }
    }
    KvUsage usage = kv_memory_usage(model->rig.memory);
    return bytes <= usage.total_bytes - usage.used_bytes;
}

static uint32_t count_held(const Model *model, SeqId s)
{
    uint32_t i = 0;
    PageSet set;
    for (; i < MAX_PAGES; i++) {
        kv_seq_page(model->rig.seqs, s, i, &set);
        if (set.page[0] == PAGE_NONE) break;
    }
    return i;
}

static void extend_one(Model *model, SeqId s)
{
    uint32_t n = 1 + draw(model, draw(model, 2) ? 200 : 3), before = count_held(model, s);
    if (n > RIG_CONTEXT - model->seqs[s].n) n = RIG_CONTEXT - model->seqs[s].n;
    bool is_expected = fits(model, s, n, before);
    cr_assert_eq(kv_seq_reserve(model->rig.seqs, s, n, &error), is_expected);
    if (!is_expected) {
        cr_assert_eq(error.code, ERR_BUSY);
        cr_assert_eq(count_held(model, s), before, "a refusal takes nothing");
        model->n_busy++;
        return;
    }
    cr_assert(kv_seq_may_write(model->rig.seqs, s, n));
    if (draw(model, 8) == 0) return; /* the pass is given up */
    write_tokens(model, s, n);
    kv_seq_advance(model->rig.seqs, s, n);
    model->seqs[s].n += n;
    model->n_taken++;
}

static void fork_one(Model *model, SeqId s)
{
    SeqId child = 99;
    if (!kv_seq_fork(model->rig.seqs, s, &child, &error)) {
        cr_assert_eq(error.code, ERR_BUSY);
        return;
    }
    take_over(model, child, &model->seqs[s], model->seqs[s].n);
    model->n_forked++;
}

static void each_page(Model *model, const Kept *kept, void (*fn)(KvMemory *, PageId))
{
    for (uint32_t i = 0; i < kv_n_pages(kept->text.n); i++)
        for (int c = 0; c < KV_MAX_CLASSES; c++)
            if (kept->sets[i].page[c] != PAGE_NONE) fn(model->rig.memory, kept->sets[i].page[c]);
}

static void forget_one(Model *model, Kept *kept)
{
    if (kept->text.is_live) each_page(model, kept, kv_page_unref);
    kept->text.is_live = false;
}

static void keep_one(Model *model, SeqId s, Kept *kept)
{
    forget_one(model, kept);
    kept->text = model->seqs[s];
    for (uint32_t i = 0; i < kv_n_pages(kept->text.n); i++) kv_seq_page(model->rig.seqs, s, i, &kept->sets[i]);
    each_page(model, kept, kv_page_ref);
}

static void adopt_one(Model *model, const Kept *kept)
{
    SeqId s = 99;
    uint32_t n = kept->text.n;
    if (!kept->text.is_live || n == 0) return;
    if (draw(model, 2)) n = draw(model, n / KV_PAGE_TOKENS + 1) * KV_PAGE_TOKENS;
    if (!kv_seq_new(model->rig.seqs, kept->text.policy, &s, &error)) return;
    bool has_all = true;
    const KvPolicyMap *map = map_of(model, &kept->text);
    for (uint32_t c = 0; c < map->n_classes; c++)
        for (uint32_t i = 0; i < kv_n_pages(n); i++)
            has_all &= kept->sets[i].page[c] != PAGE_NONE || !kv_class_needs(&map->classes[c], n, i * KV_PAGE_TOKENS);
    cr_assert_eq(kv_seq_adopt(model->rig.seqs, s, kept->sets, n, &error), has_all, "%u tokens: %s", n, error.text);
    take_over(model, s, &kept->text, has_all ? n : 0);
    model->n_adopted += has_all;
}

static void step(Model *model)
{
    SeqId s = draw(model, MAX_SEQS);
    Kept *kept = &model->kept[draw(model, MAX_KEPT)];
    uint32_t action = draw(model, 24);
    if (action < 2) {
        open_one(model);
    } else if (action < 5) {
        adopt_one(model, kept);
    } else if (action == 5) {
        forget_one(model, kept);
    } else if (!model->seqs[s].is_live) {
        return;
    } else if (action < 8) {
        keep_one(model, s, kept);
    } else if (action < 10) {
        kv_seq_close(model->rig.seqs, s);
        model->seqs[s].is_live = false;
    } else if (action < 12) {
        fork_one(model, s);
    } else {
        extend_one(model, s);
    }
}

static void run(bool has_window, const char *kv_types, uint64_t budget_bytes, uint64_t seed)
{
    static Model model;
    model = (Model){.seed = seed};
    kv_rig_open(&model.rig, has_window, kv_types, budget_bytes, MAX_SEQS);
    for (int i = 0; i < 1500; i++) {
        step(&model);
        poison(&model);
        check(&model);
    }
    cr_expect(model.n_busy > 10 && model.n_taken > 100 && model.n_adopted > 5 && model.n_forked > 5,
              "%u refusals, %u extensions, %u adoptions, %u forks", model.n_busy, model.n_taken, model.n_adopted,
              model.n_forked);
    for (uint32_t k = 0; k < MAX_KEPT; k++) forget_one(&model, &model.kept[k]);
    for (SeqId s = 0; s < MAX_SEQS; s++)
        if (model.seqs[s].is_live) kv_seq_close(model.rig.seqs, s);
    kv_rig_close(&model.rig);
}

Test(test_kv_model, random_lives_keep_every_token_and_leak_no_page)
{
    for (uint64_t i = 0; i < 2; i++) {
        run(i, "f32", 200 * 4096, i + 1);
        run(i, "int8", 120 * 4096, i + 3);
        run(i, "full=f16,stream=int4,window=f8", 100 * 4096, i + 5);
    }
}
