/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_cache_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HALF_LIFE_USEC = 300 * 1000000 };

/* ---- the cache ---- */

bool prefix_cache_new(const PrefixParams *params, PrefixCache **ret_cache, Error *error)
{
    PrefixCache *cache = calloc(1, sizeof *cache);
    if (!cache) return error_set(error, ERR_NO_MEMORY, "no memory for the prefix cache");
    cache->engine = params->engine;
    cache->exact = params->exact;
    cache->max_idle_bytes = params->max_idle_bytes ? params->max_idle_bytes : UINT64_MAX;
    cache->clock_usec = params->clock_usec;
    cache->max_pages = engine_context(params->engine) / KV_PAGE_TOKENS + 1;
    if (!prefix_tree_init(&cache->tree, params->max_nodes, error)) {
        prefix_cache_free(cache);
        return false;
    }
    cache->path = calloc(cache->max_pages, sizeof *cache->path);
    cache->first = calloc((size_t)cache->max_pages + 1, sizeof *cache->first);
    cache->sets = calloc(cache->max_pages, sizeof *cache->sets);
    if (!cache->path || !cache->first || !cache->sets) {
        prefix_cache_free(cache);
        return error_set(error, ERR_NO_MEMORY, "no memory for the prefix cache");
    }
    *ret_cache = cache;
    return true;
}

static uint32_t count_pages(const PageSet *set)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < KV_MAX_CLASSES; c++) n += set->page[c] != PAGE_NONE;
    return n;
}

/* How many went. */
static uint32_t unref_pages(PrefixCache *cache, uint32_t node)
{
    PageSet *pages = &cache->tree.nodes[node].pages;
    uint32_t n = count_pages(pages);
    if (n == 0) return 0;
    engine_pages_unref(cache->engine, pages);
    *pages = (PageSet){{PAGE_NONE, PAGE_NONE, PAGE_NONE}};
    prefix_tree_weigh(&cache->tree, node, 0);
    cache->stats.n_pages -= n;
    cache->stats.n_nodes--;
    return n;
}

void prefix_cache_free(PrefixCache *cache)
{
    if (!cache) return;
    for (uint32_t node = 0; node < cache->tree.n_nodes; node++)
        if (cache->tree.nodes[node].state == NODE_LIVE) unref_pages(cache, node);
    prefix_tree_done(&cache->tree);
    free(cache->path);
    free(cache->first);
    free(cache->sets);
    free(cache);
}

PrefixStats prefix_cache_stats(const PrefixCache *cache)
{
    return cache->stats;
}

double prefix_now(const PrefixCache *cache)
{
    return (double)cache->clock_usec() / HALF_LIFE_USEC;
}

PrefixClasses prefix_classes(const PrefixCache *cache, PolicyId policy)
{
    const AttnPolicy *attention = engine_policy(cache->engine, policy);
    PrefixClasses classes = {.tells_decode = engine_is_deterministic_device(cache->engine) ||
                                             !policy_decodes_as_prefilled(attention),
                             .in_blocks = policy_selects_blocks(attention)};
    classes.info = engine_policy_classes(cache->engine, policy, &classes.n);
    classes.in_part = !kv_classes_are_quantised(classes.info, classes.n);
    return classes;
}

uint32_t prefix_first_needed(const KvClassInfo *info, uint32_t n)
{
    uint64_t seen = (uint64_t)info->window + KV_PAGE_TOKENS - 1;
    if (info->window == PLAN_ALL || n < seen) return 0;
    return (uint32_t)((n - seen) / KV_PAGE_TOKENS) + 1;
}

/* ---- eviction ---- */

uint64_t prefix_cache_idle_bytes(const PrefixCache *cache)
{
    return cache->tree.idle_bytes;
}

bool prefix_cache_evict(PrefixCache *cache)
{
    for (uint32_t node; (node = prefix_tree_worst(&cache->tree)) != NODE_NONE;) {
        uint32_t n = unref_pages(cache, node);
        prefix_tree_give_up(&cache->tree, node);
        cache->stats.evicted_pages += n;
        if (n) return true;
    }
    return false;
}

uint64_t prefix_cache_max_idle_bytes(const PrefixCache *cache)
{
    return cache->max_idle_bytes;
}

/* Is there more that no cursor keeps than there may be beside so many bytes? */
static bool is_over_limit(const PrefixCache *cache, uint64_t bytes)
{
    return bytes > cache->max_idle_bytes || cache->tree.idle_bytes > cache->max_idle_bytes - bytes;
}

bool prefix_cache_make_room(PrefixCache *cache, uint32_t n, uint64_t bytes)
{
    while (cache->tree.n_nodes - 1 - cache->tree.n_live < n || is_over_limit(cache, bytes))
        if (!prefix_cache_evict(cache)) return false;
    return true;
}

/* A place for a new node, for which the least worthy one may have to go. */
static uint32_t take_node(PrefixCache *cache)
{
    uint32_t node = prefix_tree_take(&cache->tree);
    if (node != NODE_NONE) return node;
    uint32_t worst = prefix_tree_worst(&cache->tree);
    if (worst == NODE_NONE) return NODE_NONE;
    cache->stats.evicted_pages += unref_pages(cache, worst);
    prefix_tree_give_up(&cache->tree, worst);
    return prefix_tree_take(&cache->tree);
}

/* ---- nodes ---- */

uint32_t prefix_namespace(PrefixCache *cache, const PrefixKey *key)
{
    uint32_t name[KV_PAGE_TOKENS] = {key->policy, key->n_salt};
    static_assert(sizeof name - 2 * sizeof *name == PREFIX_MAX_SALT_BYTES, "a salt fills the rest of the name");
    if (key->n_salt > PREFIX_MAX_SALT_BYTES) return NODE_NONE;
    if (key->n_salt) memcpy(name + 2, key->salt, key->n_salt);
    PrefixTree *tree = &cache->tree;
    uint32_t node = prefix_tree_find(tree, NODE_TOP, name, KV_PAGE_TOKENS, NULL);
    if (node != NODE_NONE) {
        if (tree->nodes[node].state == NODE_GHOST) prefix_tree_revive(tree, node);
        return node;
    }
    node = take_node(cache);
    if (node == NODE_NONE) return NODE_NONE;
    memcpy(tree->nodes[node].tokens, name, sizeof name);
    tree->nodes[node].n_tokens = KV_PAGE_TOKENS;
    prefix_tree_insert(tree, NODE_TOP, node);
    return node;
}

/* What one call publishes, and from where. */
typedef struct Publisher {
    PrefixCache *cache;
    PrefixCursor *cursor;
    const PrefixRun *run;
    PrefixClasses classes;
} Publisher;

static PageSet pages_of_run(const Publisher *publisher, uint32_t logical_page)
{
    PageSet set;
    if (publisher->run->sets) return publisher->run->sets[logical_page];
    engine_seq_page(publisher->cache->engine, publisher->run->seq, logical_page, &set);
    return set;
}

static bool is_decoded(const Publisher *publisher, uint32_t end)
{
    return publisher->classes.tells_decode &&
           (end > publisher->run->n_prefilled || end > publisher->cursor->n_prefilled);
}

static void weigh(const Publisher *publisher, uint32_t node)
{
    PrefixCache *cache = publisher->cache;
    const PageSet *pages = &cache->tree.nodes[node].pages;
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < publisher->classes.n; c++) {
        if (pages->page[c] == PAGE_NONE) continue;
        bytes += publisher->classes.info[c].page_bytes;
        if (engine_page_is_open(cache->engine, pages->page[c]))
            bytes += engine_page_bytes(cache->engine, pages->page[c]); /* its image */
    }
    prefix_tree_weigh(&cache->tree, node, bytes);
}

/* The tree becomes an owner of those pages of the set that the node lacks. */
static void add_pages(const Publisher *publisher, uint32_t node, const PageSet *set, uint32_t first_token)
{
    PrefixCache *cache = publisher->cache;
    PrefixNode *to = &cache->tree.nodes[node];
    PageSet added = {{PAGE_NONE, PAGE_NONE, PAGE_NONE}};
    for (uint32_t c = 0; c < publisher->classes.n; c++) {
        if (to->pages.page[c] != PAGE_NONE || set->page[c] == PAGE_NONE) continue;
        added.page[c] = set->page[c];
        if (first_token < publisher->classes.info[c].sink) to->keep |= (uint8_t)(1 << c);
    }
    uint32_t n = count_pages(&added);
    if (n == 0) return;
    engine_pages_ref(cache->engine, &added);
    if (count_pages(&to->pages) == 0) cache->stats.n_nodes++;
    for (uint32_t c = 0; c < publisher->classes.n; c++)
        if (added.page[c] != PAGE_NONE) to->pages.page[c] = added.page[c];
    cache->stats.n_pages += n;
    weigh(publisher, node);
}

static void drop_page(const Publisher *publisher, uint32_t node, uint32_t class)
{
    PrefixCache *cache = publisher->cache;
    PageSet *pages = &cache->tree.nodes[node].pages, gone = {{PAGE_NONE, PAGE_NONE, PAGE_NONE}};
    if (pages->page[class] == PAGE_NONE) return;
    gone.page[class] = pages->page[class];
    engine_pages_unref(cache->engine, &gone);
    pages->page[class] = PAGE_NONE;
    cache->stats.n_pages--;
    if (count_pages(pages) == 0) cache->stats.n_nodes--;
    weigh(publisher, node);
}

/* May pages of the run stand beside those of the node? Only if both were computed in the same way. */
static bool may_join(const Publisher *publisher, const PrefixNode *node, const PageSet *set, bool run_is_decoded)
{
    if (!node->is_decoded && !run_is_decoded) return true;
    for (uint32_t c = 0; c < publisher->classes.n; c++)
        if (node->pages.page[c] != PAGE_NONE && node->pages.page[c] == set->page[c]) return true;
    return false;
}

/* Somebody published the same tokens before. */
static void merge(const Publisher *publisher, uint32_t node, const PageSet *set, uint32_t first_token, bool decoded)
{
    PrefixNode *old = &publisher->cache->tree.nodes[node];
    if (old->is_decoded && !decoded) {
        unref_pages(publisher->cache, node);
        old->is_decoded = false;
        add_pages(publisher, node, set, first_token);
    } else if (may_join(publisher, old, set, decoded)) {
        add_pages(publisher, node, set, first_token);
    }
}

/* Does a node give all that a shorter one, with these pages, does? */
static bool replaces(const Publisher *publisher, uint32_t node, const PageSet *pages, bool decoded)
{
    const PrefixNode *longer = &publisher->cache->tree.nodes[node];
    if (longer->state != NODE_LIVE || (longer->is_decoded && !decoded)) return false;
    if (longer->n_tokens == KV_PAGE_TOKENS && !publisher->classes.in_part) return false;
    for (uint32_t c = 0; c < publisher->classes.n; c++)
        if (pages->page[c] != PAGE_NONE && longer->pages.page[c] == PAGE_NONE) return false;
    return true;
}

/* Removes the open pages of earlier runs that the new node continues. */
static void absorb_beginnings(const Publisher *publisher, uint32_t node)
{
    PrefixTree *tree = &publisher->cache->tree;
    PrefixNode *longer = &tree->nodes[node];
    for (uint32_t at; (at = longer->before) != NODE_NONE;) {
        const PrefixNode *shorter = &tree->nodes[at];
        if (shorter->state != NODE_LIVE || shorter->n_tokens >= longer->n_tokens ||
            prefix_tree_common(tree, at, longer->tokens, longer->n_tokens) < shorter->n_tokens ||
            !replaces(publisher, node, &shorter->pages, shorter->is_decoded))
            return;
        longer->keep |= shorter->keep;
        unref_pages(publisher->cache, at);
        prefix_tree_remove(tree, at);
    }
}

static uint32_t insert_page(const Publisher *publisher, const uint32_t *tokens, uint32_t n)
{
    PrefixTree *tree = &publisher->cache->tree;
    uint32_t node = take_node(publisher->cache);
    if (node == NODE_NONE) return NODE_NONE;
    memcpy(tree->nodes[node].tokens, tokens, n * sizeof *tokens);
    tree->nodes[node].n_tokens = n;
    prefix_tree_insert(tree, publisher->cursor->node, node);
    return node;
}

/* Are those pages there that every later query needs? */
static bool has_lasting_pages(const Publisher *publisher, const PageSet *set, uint32_t first_token)
{
    for (uint32_t c = 0; c < publisher->classes.n; c++) {
        const KvClassInfo *info = &publisher->classes.info[c];
        if (set->page[c] == PAGE_NONE && (info->window == PLAN_ALL || first_token < info->sink)) return false;
    }
    return true;
}

/* The next n tokens behind the cursor, one page, as a node; NODE_NONE: there is no place or no page. */
static uint32_t publish(const Publisher *publisher, uint32_t n)
{
    PrefixCache *cache = publisher->cache;
    PrefixTree *tree = &cache->tree;
    uint32_t first = publisher->cursor->n_tokens;
    const uint32_t *tokens = publisher->run->tokens + first;
    PageSet set = pages_of_run(publisher, first / KV_PAGE_TOKENS);
    if (!has_lasting_pages(publisher, &set, first)) return NODE_NONE;
    bool decoded = is_decoded(publisher, first + n);
    PrefixNear near;
    uint32_t node = prefix_tree_find(tree, publisher->cursor->node, tokens, n, &near);
    if (node == NODE_NONE && n < KV_PAGE_TOKENS && near.after != NODE_NONE &&
        prefix_tree_common(tree, near.after, tokens, n) == n && replaces(publisher, near.after, &set, decoded)) {
        node = near.after;
    } else if (node != NODE_NONE && tree->nodes[node].state == NODE_LIVE) {
        merge(publisher, node, &set, first, decoded);
    } else {
        if (node == NODE_NONE) {
            node = insert_page(publisher, tokens, n);
            if (node == NODE_NONE) return NODE_NONE;
        } else {
            prefix_tree_revive(tree, node);
        }
        tree->nodes[node].is_decoded = decoded;
        add_pages(publisher, node, &set, first);
        absorb_beginnings(publisher, node);
    }
    prefix_tree_touch(tree, node, prefix_now(cache));
    return node;
}

static bool publish_full(const Publisher *publisher)
{
    PrefixCursor *cursor = publisher->cursor;
    if (publisher->run->n_tokens - cursor->n_tokens < KV_PAGE_TOKENS) return false;
    if (cursor->n_tokens / KV_PAGE_TOKENS >= publisher->cache->max_pages) return false;
    uint32_t node = publish(publisher, KV_PAGE_TOKENS);
    if (node == NODE_NONE) return false;
    prefix_tree_pin(&publisher->cache->tree, node);
    prefix_tree_unpin(&publisher->cache->tree, cursor->node);
    cursor->node = node;
    cursor->n_tokens += KV_PAGE_TOKENS;
    return true;
}

/* ---- windowed classes: what is kept ---- */

/* The nodes of the cursor's path from page 'first' on. */
static void gather_path(PrefixCache *cache, const PrefixCursor *cursor, uint32_t first)
{
    uint32_t node = cursor->node;
    for (uint32_t page = cursor->n_tokens / KV_PAGE_TOKENS; page-- > first;) {
        cache->path[page] = node;
        node = cache->tree.nodes[node].parent;
    }
}

/* The node's page of the class, if need be from the sequence that passes by. */
static bool has_page(const Publisher *publisher, uint32_t page, uint32_t class)
{
    const PrefixNode *node = &publisher->cache->tree.nodes[publisher->cache->path[page]];
    if (node->pages.page[class] != PAGE_NONE) return true;
    if (!publisher->run) return false;
    PageSet set = pages_of_run(publisher, page);
    if (set.page[class] == PAGE_NONE ||
        !may_join(publisher, node, &set, is_decoded(publisher, (page + 1) * KV_PAGE_TOKENS)))
        return false;
    add_pages(publisher, publisher->cache->path[page], &set, page * KV_PAGE_TOKENS);
    return node->pages.page[class] != PAGE_NONE;
}

/* A checkpoint between the page boundaries 'from' and 'end', of the gathered path. */
static void keep_for(const Publisher *publisher, uint32_t from, uint32_t end)
{
    for (uint32_t c = 0; c < publisher->classes.n; c++) {
        const KvClassInfo *info = &publisher->classes.info[c];
        if (info->window == PLAN_ALL) continue;
        uint32_t first = prefix_first_needed(info, from), page = end / KV_PAGE_TOKENS;
        while (page > first && has_page(publisher, page - 1, c)) page--;
        if (page > first) continue;
        for (; page < end / KV_PAGE_TOKENS; page++)
            publisher->cache->tree.nodes[publisher->cache->path[page]].keep |= (uint8_t)(1 << c);
    }
}

static void keep_checkpoints(const Publisher *publisher, uint32_t from)
{
    const PrefixRun *run = publisher->run;
    uint32_t next = 0;
    for (uint32_t above = run->n_checkpoints; next < above;) {
        uint32_t middle = next + (above - next) / 2;
        if (run->checkpoints[middle] <= from)
            next = middle + 1;
        else
            above = middle;
    }
    for (uint32_t end = from + KV_PAGE_TOKENS; end <= publisher->cursor->n_tokens; end += KV_PAGE_TOKENS) {
        uint32_t lowest = end % PREFIX_CHECKPOINT_TOKENS == 0 ? end : UINT32_MAX;
        /* The prompt's end; a sequence that is still prefilled has not come to it. */
        if (run->n_prefilled >= end - KV_PAGE_TOKENS && run->n_prefilled < end) lowest = end - KV_PAGE_TOKENS;
        for (; next < run->n_checkpoints && run->checkpoints[next] <= end; next++) {
            uint32_t boundary = run->checkpoints[next] / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
            if (boundary < lowest) lowest = boundary;
        }
        if (lowest != UINT32_MAX) keep_for(publisher, lowest, end);
    }
    /* One in the page that follows: when that is full the pages before it may have left the windows. */
    uint32_t at = publisher->cursor->n_tokens;
    if (next < run->n_checkpoints && run->checkpoints[next] / KV_PAGE_TOKENS * KV_PAGE_TOKENS == at)
        keep_for(publisher, at, at);
}

/* Gives up what no checkpoint needs of the class's pages [first, end) of the gathered path. */
static void drop_unkept(const Publisher *publisher, uint32_t class, uint32_t first, uint32_t end)
{
    for (uint32_t page = first; page < end; page++) {
        uint32_t node = publisher->cache->path[page];
        if (!(publisher->cache->tree.nodes[node].keep >> class & 1)) drop_page(publisher, node, class);
    }
}

static uint32_t lowest_needed(const PrefixClasses *classes, uint32_t n)
{
    uint32_t lowest = UINT32_MAX;
    for (uint32_t c = 0; c < classes->n; c++) {
        uint32_t first = prefix_first_needed(&classes->info[c], n);
        if (classes->info[c].window != PLAN_ALL && first < lowest) lowest = first;
    }
    return lowest;
}

static Publisher publisher_of(PrefixCache *cache, PrefixCursor *cursor, const PrefixRun *run)
{
    return (Publisher){cache, cursor, run, prefix_classes(cache, cursor->policy)};
}

static void extend(const Publisher *publisher)
{
    PrefixCursor *cursor = publisher->cursor;
    uint32_t from = cursor->n_tokens;
    while (publish_full(publisher)) {
    }
    uint32_t lowest = lowest_needed(&publisher->classes, from);
    if (cursor->n_tokens == from || lowest == UINT32_MAX) return;
    gather_path(publisher->cache, cursor, lowest);
    keep_checkpoints(publisher, from);
    for (uint32_t c = 0; c < publisher->classes.n; c++)
        drop_unkept(publisher, c, prefix_first_needed(&publisher->classes.info[c], from),
                    prefix_first_needed(&publisher->classes.info[c], cursor->n_tokens));
}

void prefix_cache_extend(PrefixCache *cache, PrefixCursor *cursor, const PrefixRun *run)
{
    if (cursor->node == NODE_NONE) return;
    Publisher publisher = publisher_of(cache, cursor, run);
    extend(&publisher);
}

/* Nobody stands on the pinned node any more; over the limit others go first, whatever they are worth. */
static void release(PrefixCache *cache, uint32_t node)
{
    uint64_t idle = cache->tree.idle_bytes;
    prefix_tree_unpin(&cache->tree, node);
    uint64_t released = cache->tree.idle_bytes - idle;
    if (!is_over_limit(cache, 0)) return;
    prefix_tree_pin(&cache->tree, node);
    (void)!prefix_cache_make_room(cache, 0, released);
    prefix_tree_unpin(&cache->tree, node);
    (void)!prefix_cache_make_room(cache, 0, 0);
}

/*
 * The cursor's place becomes a checkpoint, as far as its pages are there, and the cursor leaves. open_page: behind it;
 * NODE_NONE: there is none.
 */
static void leave(const Publisher *publisher, uint32_t open_page)
{
    PrefixCache *cache = publisher->cache;
    PrefixCursor *cursor = publisher->cursor;
    uint32_t lowest = lowest_needed(&publisher->classes, cursor->n_tokens), end = cursor->n_tokens / KV_PAGE_TOKENS;
    if (lowest != UINT32_MAX) {
        gather_path(cache, cursor, lowest);
        keep_for(publisher, cursor->n_tokens, cursor->n_tokens);
        for (uint32_t c = 0; c < publisher->classes.n; c++)
            if (publisher->classes.info[c].window != PLAN_ALL)
                drop_unkept(publisher, c, prefix_first_needed(&publisher->classes.info[c], cursor->n_tokens), end);
    }
    if (open_page != NODE_NONE) {
        prefix_tree_pin(&cache->tree, open_page);
        prefix_tree_unpin(&cache->tree, cursor->node);
    }
    release(cache, open_page != NODE_NONE ? open_page : cursor->node);
    cursor->node = NODE_NONE;
}

void prefix_cache_finish(PrefixCache *cache, PrefixCursor *cursor, const PrefixRun *run)
{
    if (cursor->node == NODE_NONE) return;
    Publisher publisher = publisher_of(cache, cursor, run);
    extend(&publisher);
    uint32_t n_open = run->n_tokens - cursor->n_tokens, node = NODE_NONE;
    if (n_open > 0 && n_open < KV_PAGE_TOKENS) {
        node = publish(&publisher, n_open);
        for (uint32_t c = 0; node != NODE_NONE && c < publisher.classes.n; c++)
            cache->tree.nodes[node].keep |= (uint8_t)(1 << c);
    }
    leave(&publisher, node);
}

bool prefix_cursor_is_open(const PrefixCursor *cursor)
{
    return cursor->node != NODE_NONE;
}

void prefix_cache_close(PrefixCache *cache, PrefixCursor *cursor)
{
    if (cursor->node == NODE_NONE) return;
    Publisher publisher = publisher_of(cache, cursor, NULL);
    leave(&publisher, NODE_NONE);
}

PrefixCursor prefix_cache_fork(PrefixCache *cache, const PrefixCursor *cursor)
{
    if (cursor->node != NODE_NONE) prefix_tree_pin(&cache->tree, cursor->node);
    return *cursor;
}
