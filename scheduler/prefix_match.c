/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_cache_impl.h"

#include <string.h>

/* Siblings that are looked at for the tail of a prompt, per page boundary: what others keep must not cost us time. */
enum { MAX_CANDIDATES = 64 };

/* What one call looks for, and how far the exact pages went. */
typedef struct Match {
    PrefixCache *cache;
    PrefixClasses classes;
    bool refuses_decoded;
    const uint32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t root;
    uint32_t n_live; /* pages with a live node: their nodes are cache->path */
    uint32_t n_all;  /* pages with a node, ghosts at the end */
    uint32_t last;   /* the node of page n_all - 1, or the root */
} Match;

/* Children of one node by how much of the tail they share, the most first. */
typedef struct Neighbours {
    const Match *match;
    const uint32_t *tail; /* [n_tail] */
    uint32_t n_tail, before, after, n_left;
    uint32_t common_before, common_after;
} Neighbours;

static uint32_t common_of(const Neighbours *n, uint32_t node)
{
    return node == NODE_NONE ? 0 : prefix_tree_common(&n->match->cache->tree, node, n->tail, n->n_tail);
}

static bool is_refused(const Match *match, const PrefixNode *node)
{
    return match->refuses_decoded && node->is_decoded;
}

static Neighbours neighbours_of(const Match *match, uint32_t parent, uint32_t first)
{
    PrefixNear near;
    Neighbours n = {.match = match, .tail = match->tokens + first, .n_left = MAX_CANDIDATES};
    n.n_tail = match->n_tokens - first < KV_PAGE_TOKENS ? match->n_tokens - first : KV_PAGE_TOKENS;
    (void)prefix_tree_find(&match->cache->tree, parent, n.tail, n.n_tail, &near);
    n.before = near.before;
    n.after = near.after;
    n.common_before = common_of(&n, n.before);
    n.common_after = common_of(&n, n.after);
    return n;
}

/* The next one that shares at least a token and is not refused, or NODE_NONE. */
static uint32_t next_neighbour(Neighbours *n, uint32_t *ret_common)
{
    const PrefixNode *nodes = n->match->cache->tree.nodes;
    while ((n->common_before || n->common_after) && n->n_left-- > 0) {
        uint32_t node;
        if (n->common_after >= n->common_before) {
            node = n->after;
            *ret_common = n->common_after;
            n->after = nodes[node].after;
            n->common_after = common_of(n, n->after);
        } else {
            node = n->before;
            *ret_common = n->common_before;
            n->before = nodes[node].before;
            n->common_before = common_of(n, n->before);
        }
        if (!is_refused(n->match, &nodes[node])) return node;
    }
    return NODE_NONE;
}

/* ---- exact pages ---- */

static void pass_page(const Match *match, const PrefixNode *node, uint32_t page, const uint32_t *first,
                      uint32_t *ret_first)
{
    for (uint32_t c = 0; c < match->classes.n; c++)
        ret_first[c] = node->pages.page[c] == PAGE_NONE ? page + 1 : first[c];
}

static void walk(Match *match)
{
    PrefixCache *cache = match->cache;
    uint32_t node = match->root, n_pages = match->n_tokens / KV_PAGE_TOKENS;
    memset(cache->first[0], 0, sizeof cache->first[0]);
    for (uint32_t page = 0; page < n_pages; page++) {
        node = prefix_tree_find(&cache->tree, node, match->tokens + page * KV_PAGE_TOKENS, KV_PAGE_TOKENS, NULL);
        if (node == NODE_NONE || is_refused(match, &cache->tree.nodes[node])) return;
        match->last = node;
        match->n_all = page + 1;
        if (cache->tree.nodes[node].state == NODE_GHOST) continue;
        match->n_live = page + 1;
        cache->path[page] = node;
        pass_page(match, &cache->tree.nodes[node], page, cache->first[page], cache->first[page + 1]);
    }
}

/* ---- the longest usable prefix ---- */

/* Are all pages there that a query at n needs? first: where the unbroken pages before it begin, per class. */
static bool is_usable(const Match *match, const uint32_t *first, uint32_t n)
{
    for (uint32_t c = 0; c < match->classes.n; c++)
        if (first[c] > prefix_first_needed(&match->classes.info[c], n)) return false;
    return true;
}

static bool may_take_part(const Match *match, const PrefixNode *node)
{
    return !match->classes.in_blocks && (match->classes.in_part || node->n_tokens < KV_PAGE_TOKENS);
}

/* The page from which the tail behind 'depth' full pages is taken, NODE_NONE: none; *ret_common: how many tokens. */
static uint32_t find_tail(const Match *match, uint32_t depth, uint32_t *ret_common)
{
    PrefixCache *cache = match->cache;
    *ret_common = 0;
    if (match->classes.in_blocks) return NODE_NONE;
    Neighbours neighbours = neighbours_of(match, depth ? cache->path[depth - 1] : match->root, depth * KV_PAGE_TOKENS);
    for (uint32_t node; (node = next_neighbour(&neighbours, ret_common)) != NODE_NONE;) {
        const PrefixNode *candidate = &cache->tree.nodes[node];
        /* A whole page is part of the path, and was looked at with it. */
        if (candidate->state != NODE_LIVE || *ret_common == KV_PAGE_TOKENS || !may_take_part(match, candidate))
            continue;
        uint32_t first[KV_MAX_CLASSES];
        pass_page(match, candidate, depth, cache->first[depth], first);
        if (is_usable(match, first, depth * KV_PAGE_TOKENS + *ret_common)) return node;
    }
    *ret_common = 0;
    return NODE_NONE;
}

static uint32_t find_longest(const Match *match, uint32_t *ret_depth, uint32_t *ret_tail)
{
    for (uint32_t depth = match->n_live;; depth--) {
        uint32_t common, tail = find_tail(match, depth, &common);
        if (tail == NODE_NONE && depth > 0 && !is_usable(match, match->cache->first[depth], depth * KV_PAGE_TOKENS))
            continue;
        *ret_depth = depth;
        *ret_tail = tail;
        return depth * KV_PAGE_TOKENS + common;
    }
}

/* ---- what stood in the way ---- */

static bool is_known(const Match *match, uint32_t node)
{
    return node != NODE_NONE && !is_refused(match, &match->cache->tree.nodes[node]);
}

/* How many tokens the tree knows, usable or not, and whether somebody goes on from there. */
static uint32_t find_known(const Match *match, bool *ret_goes_on)
{
    const PrefixTree *tree = &match->cache->tree;
    Neighbours neighbours = neighbours_of(match, match->last, match->n_all * KV_PAGE_TOKENS);
    uint32_t common, best = 0;
    *ret_goes_on = false;
    for (uint32_t node; (node = next_neighbour(&neighbours, &common)) != NODE_NONE && common >= best;) {
        best = common;
        *ret_goes_on |= tree->nodes[node].n_tokens > common;
    }
    if (best == 0) *ret_goes_on = is_known(match, neighbours.before) || is_known(match, neighbours.after);
    return match->n_all * KV_PAGE_TOKENS + best;
}

/* Something is known beyond the n tokens that can be used, in the last page: why not more? */
static PrefixEnd explain_tail(const Match *match, uint32_t n, uint32_t n_known)
{
    const PrefixTree *tree = &match->cache->tree;
    Neighbours neighbours = neighbours_of(match, match->last, match->n_all * KV_PAGE_TOKENS);
    uint32_t common;
    for (uint32_t node; (node = next_neighbour(&neighbours, &common)) != NODE_NONE;) {
        if (match->n_all * KV_PAGE_TOKENS + common <= n) break;
        if (!may_take_part(match, &tree->nodes[node])) continue;
        return tree->nodes[node].state == NODE_GHOST ? PREFIX_EVICTED : PREFIX_WINDOW;
    }
    return n_known == match->n_tokens ? PREFIX_WHOLE : PREFIX_DIFFERS;
}

static PrefixEnd explain(const Match *match, uint32_t n, uint32_t *ret_known)
{
    bool goes_on;
    *ret_known = find_known(match, &goes_on);
    if (n == match->n_tokens) return PREFIX_WHOLE;
    if (n / KV_PAGE_TOKENS < match->n_live) return PREFIX_WINDOW;
    if (n / KV_PAGE_TOKENS < match->n_all) return PREFIX_EVICTED;
    if (n < *ret_known) return explain_tail(match, n, *ret_known);
    return goes_on ? PREFIX_DIFFERS : PREFIX_NEW;
}

/* ---- the answer ---- */

/* Sets of what a query at n needs; the rest of windowed classes stays here. */
static void fill_sets(const Match *match, uint32_t depth, uint32_t tail, uint32_t n)
{
    PrefixCache *cache = match->cache;
    if (tail != NODE_NONE) cache->path[depth] = tail;
    for (uint32_t page = 0; page * KV_PAGE_TOKENS < n; page++) {
        PageSet *set = &cache->sets[page];
        *set = cache->tree.nodes[cache->path[page]].pages;
        for (uint32_t c = 0; c < match->classes.n; c++)
            if (!kv_class_needs(&match->classes.info[c], n, (uint64_t)page * KV_PAGE_TOKENS)) set->page[c] = PAGE_NONE;
    }
}

static uint32_t count_prefilled(const Match *match, uint32_t n)
{
    for (uint32_t page = 0; page * KV_PAGE_TOKENS < n; page++)
        if (match->cache->tree.nodes[match->cache->path[page]].is_decoded) return page * KV_PAGE_TOKENS;
    return UINT32_MAX;
}

static void touch(const Match *match, uint32_t n)
{
    double now = prefix_now(match->cache);
    prefix_tree_touch(&match->cache->tree, match->root, now);
    for (uint32_t page = 0; page * KV_PAGE_TOKENS < n; page++)
        prefix_tree_touch(&match->cache->tree, match->cache->path[page], now);
}

void prefix_cache_open(PrefixCache *cache, const PrefixKey *key, const uint32_t *tokens, uint32_t n_tokens,
                       PrefixCursor *ret_cursor, const PageSet **ret_sets, uint32_t *ret_n, PrefixEnd *ret_end)
{
    *ret_cursor = (PrefixCursor){.node = NODE_NONE, .policy = key->policy, .n_prefilled = UINT32_MAX};
    *ret_sets = cache->sets;
    *ret_n = 0;
    *ret_end = PREFIX_NEW;
    if (n_tokens > cache->max_pages * KV_PAGE_TOKENS) n_tokens = cache->max_pages * KV_PAGE_TOKENS;
    cache->stats.looked_up_tokens += n_tokens;
    Match match = {.cache = cache,
                   .classes = prefix_classes(cache, key->policy),
                   .tokens = tokens,
                   .n_tokens = n_tokens,
                   .root = prefix_namespace(cache, key)};
    if (match.root == NODE_NONE) return;
    match.last = match.root;
    match.refuses_decoded = cache->exact && match.classes.tells_decode;
    walk(&match);
    uint32_t depth, tail, n = find_longest(&match, &depth, &tail);
    *ret_end = explain(&match, n, &ret_cursor->n_known);
    fill_sets(&match, depth, tail, n);
    touch(&match, n);
    ret_cursor->node = depth ? cache->path[depth - 1] : match.root;
    ret_cursor->n_tokens = depth * KV_PAGE_TOKENS;
    ret_cursor->n_prefilled = count_prefilled(&match, n);
    prefix_tree_pin(&cache->tree, ret_cursor->node);
    *ret_n = n;
}
