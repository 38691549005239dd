/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/model_select.h"

#include "engine/eval/counts.h"
#include "engine/eval/list_check.h"
#include "engine/select/select_stages.h"
#include "tests/gpu/model_pair.h"
#include "tests/support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONTEXT = 512,
    N_SEQS = 5,
    DENSE_SEQ = 3,
    ROWS = 256,
    SMALL = 13,
    N_STEPS = 24,
    TOKENS = 512,
    LAYERS_MOST = 64,
    HEADS_MOST = 16
};

static const double NEAR = 6;
static uint8_t streams[LAYERS_MOST * HEADS_MOST];

/* Budgets so small that a few hundred tokens have something to choose from. */
static AttnPolicy pages_of(const HeadRoles *roles, uint32_t refresh)
{
    AttnPolicy policy = {.name = "few pages", .roles = roles};
    if (roles) policy.sink = policy.recent_prefill = policy.recent_decode = KV_PAGE_TOKENS;
    policy.selection = (Selection){.planner = "pages",
                                   .stages = {{SCAN_BOX, KV_PAGE_TOKENS, PLAN_ALL, refresh}},
                                   .n_stages = 1,
                                   .sink = 64,
                                   .recent = 64,
                                   .budget = 320,
                                   .bypass = 320,
                                   .prefill_from = PLAN_ALL,
                                   .row_stride = 1};
    return policy;
}

/* Whose scores take fewer channels of keys that are far away, too. */
static AttnPolicy windowed_pages(void)
{
    AttnPolicy policy = pages_of(NULL, 4);
    policy.name = "windows of few pages";
    policy.wavelength = (Wavelength){.k_prefill = 0.5, .k_decode = 0.25};
    return policy;
}

/* Tokens that each sequence begins with: from below the bypass to far beyond. */
static const uint32_t before[N_SEQS] = {440, 300, 330, 64, 319};

static void open_seqs(Engine *engine, PolicyId policy, const uint32_t *tokens, SeqId *seqs)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i] = model_seq_of(engine, i == DENSE_SEQ ? 0 : policy);
        for (uint32_t done = 0; done < before[i]; done += ROWS)
            model_feed(engine, seqs[i], ROWS_PREFILL, tokens + i + done,
                       before[i] - done < ROWS ? before[i] - done : ROWS, SMALL, NULL);
    }
}

static void close_seqs(Engine *engine, const SeqId *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) engine_seq_close(engine, seqs[i]);
}

static void decode(Engine *engine, PolicyId policy, const uint32_t *tokens, float *logits, AttentionStats *ret_stats)
{
    SeqId seqs[N_SEQS];
    size_t n_vocab = engine_shape(engine)->n_vocab;
    open_seqs(engine, policy, tokens, seqs);
    for (uint32_t step = 0; step < N_STEPS; step++)
        model_step(engine, seqs, tokens + step * 7, N_SEQS, logits + step * N_SEQS * n_vocab);
    for (uint32_t i = 0; i < N_SEQS; i++) ret_stats[i] = engine_seq_attention(engine, seqs[i], ROWS_DECODE);
    close_seqs(engine, seqs, N_SEQS);
}

/* The row of a step in one of the sequences: does it leave anything out? */
static bool row_selects(uint32_t step, uint32_t seq)
{
    const AttnPolicy policy = pages_of(NULL, 1);
    return seq != DENSE_SEQ && select_applies(&policy.selection, ROWS_DECODE, before[seq] + step);
}

/*
 * Where two pages are as good, either may be read: most rows that select are near, and those few are of the same text
 * still. Rows that read all there is have no such excuse.
 */
static void compare_most(const char *what, const float *want, const float *got, uint32_t n_vocab, double limit)
{
    uint32_t n_near[2] = {0}, n[2] = {0};
    double sum[2] = {0};
    for (uint32_t i = 0; i < N_SEQS * N_STEPS; i++) {
        Distance distance = model_distance(want + (size_t)i * n_vocab, got + (size_t)i * n_vocab, 1, n_vocab);
        bool is_near = distance.mean <= NEAR * limit && distance.largest <= NEAR * NEAR * limit;
        bool selects = row_selects(i / N_SEQS, i % N_SEQS);
        n[selects]++;
        n_near[selects] += is_near;
        if (is_near) sum[selects] += distance.mean;
    }
    printf("%-52s %u of %u selecting rows near, their mean %.6f; %u of %u others, %.6f\n", what, n_near[1], n[1],
           sum[1] / (n_near[1] ? n_near[1] : 1), n_near[0], n[0], sum[0] / (n_near[0] ? n_near[0] : 1));
    device_report(n[1] >= 2 * N_STEPS && n_near[1] * 10 >= n[1] * 9 && sum[1] / n[1] <= limit,
                  "%s: %u of %u rows that select are near, by %g in the mean", what, n_near[1], n[1], sum[1] / n[1]);
    device_report(n[0] && n_near[0] == n[0] && sum[0] / n[0] <= limit,
                  "%s: %u of %u rows that do not select are near, by %g in the mean", what, n_near[0], n[0],
                  sum[0] / n[0]);
}

/* has_bands: which keys of a list they cut is known to the device alone, so that the host counts more bytes. */
static void try_decode(const Pair *pair, PolicyId policy, bool has_bands, const char *name, const uint32_t *tokens,
                       double limit)
{
    float *want = model_logits(pair->cpu, N_SEQS * N_STEPS), *got = model_logits(pair->cpu, N_SEQS * N_STEPS);
    AttentionStats a[N_SEQS], b[N_SEQS];
    char what[128];
    decode(pair->cpu, policy, tokens, want, a);
    decode(pair->gpu, policy, tokens, got, b);
    snprintf(what, sizeof what, "%s, policy %u, selected", name, policy);
    compare_most(what, want, got, engine_shape(pair->cpu)->n_vocab, limit);
    for (uint32_t i = 0; i < N_SEQS; i++)
        device_report(a[i].n_selections == b[i].n_selections && a[i].n_queries == b[i].n_queries &&
                          a[i].n_tokens == b[i].n_tokens &&
                          (has_bands ? a[i].kv_bytes <= b[i].kv_bytes : a[i].kv_bytes == b[i].kv_bytes) &&
                          a[i].n_refreshes[0] == b[i].n_refreshes[0],
                      "%s, policy %u: sequence %u counts %llu selections and %llu tokens, not %llu and %llu", name,
                      policy, i, (unsigned long long)b[i].n_selections, (unsigned long long)b[i].n_tokens,
                      (unsigned long long)a[i].n_selections, (unsigned long long)a[i].n_tokens);
    device_report(a[0].n_selections > 0 && a[DENSE_SEQ].n_selections == 0, "%s: something is selected", name);
    free(want);
    free(got);
}

/* What comes back from swapping: the pages in a sequence of its own, and behind them what its lists were. */
static bool bring_back(Engine *engine, PolicyId policy, SeqId from, SeqId *ret_seq, Error *error)
{
    enum { MOST_PAGES = CONTEXT / KV_PAGE_TOKENS };
    PageSet sets[MOST_PAGES];
    uint32_t n_tokens = engine_seq_tokens(engine, from);
    for (uint32_t i = 0; i * KV_PAGE_TOKENS < n_tokens; i++) engine_seq_page(engine, from, i, &sets[i]);
    void *state = malloc(engine_seq_state_bytes(engine, from));
    if (!state) exit(1);
    engine_seq_state_read(engine, from, state);
    *ret_seq = model_seq_of(engine, policy);
    bool ok = engine_seq_adopt(engine, *ret_seq, sets, n_tokens, error);
    if (ok) engine_seq_state_write(engine, *ret_seq, state);
    free(state);
    return ok;
}

/* Rows in one pass, and rows of a fork and of one that was swapped, are those of steps. */
static void try_ways(Engine *engine, PolicyId policy, const char *name, const uint32_t *tokens)
{
    enum { FIRST = 6, MORE = 9, WAYS = 4 };
    Error error = {0};
    size_t n_vocab = engine_shape(engine)->n_vocab;
    float *of[WAYS];
    SeqId seqs[WAYS];
    for (uint32_t way = 0; way < WAYS; way++) of[way] = model_logits(engine, MORE);
    for (uint32_t way = 0; way < WAYS; way++) {
        if (way < 2) {
            seqs[way] = model_seq_of(engine, policy);
            model_feed(engine, seqs[way], ROWS_PREFILL, tokens, ROWS, 0, NULL);
            model_feed(engine, seqs[way], ROWS_PREFILL, tokens + ROWS, 150, 0, NULL);
            model_feed(engine, seqs[way], ROWS_DECODE, tokens, FIRST, way == 0 ? 1 : 4, NULL);
        } else {
            bool ok = way == 2 ? engine_seq_fork(engine, seqs[0], &seqs[way], &error)
                               : bring_back(engine, policy, seqs[0], &seqs[way], &error);
            device_report(ok, "%s: way %u: %s", name, way, error.text);
        }
    }
    for (uint32_t way = 0; way < WAYS; way++)
        model_feed(engine, seqs[way], ROWS_DECODE, tokens + FIRST, MORE, way == 1 ? 0 : 1, of[way]);
    for (uint32_t way = 1; way < WAYS; way++) {
        Distance distance = model_distance(of[0], of[way], MORE, (uint32_t)n_vocab);
        device_report(distance.largest < 0.02, "%s, way %u: %g from the steps", name, way, distance.largest);
    }
    AttentionStats a = engine_seq_attention(engine, seqs[0], ROWS_DECODE);
    for (uint32_t way = 1; way < WAYS; way++) {
        AttentionStats b = engine_seq_attention(engine, seqs[way], ROWS_DECODE);
        device_report(a.n_selections == b.n_selections && a.n_tokens == b.n_tokens,
                      "%s, way %u: %llu selections and %llu tokens, not %llu and %llu", name, way,
                      (unsigned long long)b.n_selections, (unsigned long long)b.n_tokens,
                      (unsigned long long)a.n_selections, (unsigned long long)a.n_tokens);
    }
    close_seqs(engine, seqs, WAYS);
    for (uint32_t way = 0; way < WAYS; way++) free(of[way]);
}

typedef struct BothLooks {
    ListCheck *lists;
    CountTrace counting;
} BothLooks;

static void look_twice(void *arg, const LayerTrace *trace)
{
    BothLooks *looks = arg;
    list_check_look(looks->lists, trace);
    counts_look(&looks->counting, trace);
}

/* Lists that steps have left are the reference's; who looks sees what the engine counts. */
static void try_looking(Engine *engine, PolicyId policy, const char *name, const uint32_t *tokens)
{
    Error error = {0};
    BothLooks looks = {.counting.shape = engine_shape(engine)};
    ListCounts counts = {0};
    SeqId base = model_seq_of(engine, policy), run = 0, again = 0;
    model_feed(engine, base, ROWS_PREFILL, tokens, ROWS, 0, NULL);
    model_feed(engine, base, ROWS_PREFILL, tokens + ROWS, 150, 0, NULL);
    bool good = engine_seq_fork(engine, base, &run, &error) && engine_seq_fork(engine, base, &again, &error) &&
                list_check_new(engine, &again, 1, &looks.lists, &error);
    device_report(good, "%s: forks: %s", name, error.text);
    if (!good) exit(1);
    float *logits = model_logits(engine, 1);
    for (uint32_t i = 0; i < N_STEPS; i++) model_step(engine, &run, tokens + i, 1, logits);
    engine_set_trace(engine, look_twice, &looks);
    for (uint32_t i = 0; i < N_STEPS; i++) model_step(engine, &again, tokens + i, 1, logits);
    engine_set_trace(engine, NULL, NULL);
    good = list_check_end(looks.lists, &run, &counts, &error);
    device_report(good, "%s, policy %u: lists: %s", name, policy, error.text);
    printf("%-52s %u lists, %u equal, %u pages as near\n", name, counts.n_lists, counts.n_equal, counts.n_near);
    uint64_t counted = engine_seq_attention(engine, again, ROWS_DECODE).kv_bytes;
    uint64_t windows = engine_shape(engine)->window_tokens;
    const uint64_t seen = looks.counting.counts.kv_bytes;
    device_report(seen == counted || (windows && seen > counted), "%s, policy %u: %llu bytes are seen, %llu counted",
                  name, policy, (unsigned long long)seen, (unsigned long long)counted);
    free(logits);
    list_check_free(looks.lists);
    const SeqId seqs[] = {base, run, again};
    close_seqs(engine, seqs, 3);
}

static void try_tiny(Device *device, const char *name, const char *const *settings, KvType type, double limit)
{
    static const HeadRoles roles = {.name = "half", .streams = streams};
    const AttnPolicy policies[] = {
        {.name = "dense"},   {.name = "half", .roles = &roles, .sink = 64, .recent_prefill = 64, .recent_decode = 64},
        pages_of(NULL, 1),   pages_of(NULL, 4),
        pages_of(&roles, 4), windowed_pages()};
    enum { N_POLICIES = sizeof policies / sizeof *policies };
    TinyModel model = tiny_model_default();
    char path[256];
    Error error = {0};
    uint32_t tokens[TOKENS];
    bool good = true;
    for (; *settings; settings++) good = good && tiny_model_set(&model, *settings);
    good = good && tiny_model_temp(&model, path, sizeof path, &error);
    device_report(good, "%s: %s", name, error.text);
    if (!good) return;
    const PairParams params = {path, type, false, CONTEXT, N_SEQS + 1, ROWS, policies, N_POLICIES};
    Pair pair = pair_open(device, &params, true);
    model_text(pair.cpu, 5, tokens, TOKENS);
    for (PolicyId policy = 2; policy < N_POLICIES; policy++) {
        const bool has_bands = policies[policy].wavelength.k_decode > 0;
        try_decode(&pair, policy, has_bands, name, tokens, limit);
        try_ways(pair.gpu, policy, name, tokens);
        try_looking(pair.gpu, policy, name, tokens);
    }
    pair_close(&pair);
    unlink(path);
}

void try_selection(Device *device)
{
    static const char *const plain[] = {"head_dim=64", "embd=256", "ff=256", NULL};
    static const char *const wide[] = {"head_dim=128", "heads=8", "embd=256", "ff=512", NULL};
    static const char *const normed[] = {"head_dim=64", "embd=256", "ff=256", "arch=qwen3", NULL};
    static const char *const windows[] = {"head_dim=64", "embd=256", "ff=256", "arch=gemma2", "window=48", NULL};
    const uint32_t n_kv_heads = tiny_model_default().n_kv_heads;
    for (uint32_t i = 0; i < sizeof streams; i++) streams[i] = i % n_kv_heads == 0;
    try_tiny(device, "llama, bf16 keys", plain, KV_BF16, 0.004);
    try_tiny(device, "llama, heads of 128, f16 keys", wide, KV_F16, 0.004);
    try_tiny(device, "qwen3, int8 keys", normed, KV_INT8, 0.01);
    memset(streams, 0, sizeof streams);
    try_tiny(device, "gemma2, windows", windows, KV_BF16, 0.004);
}

/* ---- text ---- */

enum { PROMPT = 420, WRITTEN = 40, TEXT_ROWS = 480 };
static const double TIE = 0.05; /* the two best that are so close may be taken either way round */
static const char sentence[] = "The lighthouse keeper wrote down the weather, the ships that passed and what he had "
                               "eaten, and then he climbed the stairs to light the lamp. ";

static uint32_t encode(const Engine *engine, uint32_t *tokens)
{
    Error error;
    char text[sizeof sentence * 24] = "";
    TokenList list = {0};
    for (int i = 0; i < 20; i++) strcat(text, sentence);
    const TokEncode in = {text, strlen(text), NULL, 0, true};
    bool good = tok_encode(engine_tokenizer(engine), &in, &list, &error) && list.n >= PROMPT;
    device_report(good, "the prompt is %zu tokens", list.n);
    for (uint32_t i = 0; good && i < PROMPT; i++) tokens[i] = list.ids[i];
    token_list_done(&list);
    return good ? PROMPT : 0;
}

static uint32_t best_of(const float *logits, uint32_t n_vocab, double *ret_margin)
{
    uint32_t best = 0;
    double second = -INFINITY;
    for (uint32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (i != best) second = fmax(second, (double)logits[i]);
    *ret_margin = (double)logits[best] - second;
    return best;
}

void try_selected_text(Device *device, const char *path)
{
    static uint32_t tokens[PROMPT + WRITTEN];
    const AttnPolicy policies[] = {{.name = "dense"}, pages_of(NULL, 4)};
    const PairParams params = {path, KV_BF16, false, TEXT_ROWS, 2, TEXT_ROWS, policies, 2, true};
    Pair pair = pair_open(device, &params, true);
    uint32_t n_vocab = engine_shape(pair.cpu)->n_vocab, n_other = 0;
    float *want = model_logits(pair.cpu, TEXT_ROWS), *got = model_logits(pair.cpu, TEXT_ROWS);
    SeqId a = model_seq_of(pair.cpu, 1), b = model_seq_of(pair.gpu, 1);
    if (encode(pair.cpu, tokens)) {
        model_feed(pair.cpu, a, ROWS_PREFILL, tokens, PROMPT, 0, want);
        model_feed(pair.gpu, b, ROWS_PREFILL, tokens, PROMPT, 0, got);
        memcpy(want, want + (size_t)(PROMPT - 1) * n_vocab, n_vocab * sizeof *want);
        memcpy(got, got + (size_t)(PROMPT - 1) * n_vocab, n_vocab * sizeof *got);
        for (uint32_t i = 0; i < WRITTEN; i++) {
            double margin, other;
            uint32_t token = best_of(want, n_vocab, &margin);
            bool is_same = best_of(got, n_vocab, &other) == token;
            n_other += !is_same;
            device_report(is_same || margin < TIE, "selected text: token %u differs, %g ahead", i, margin);
            model_feed(pair.cpu, a, ROWS_DECODE, &token, 1, 0, want);
            model_feed(pair.gpu, b, ROWS_DECODE, &token, 1, 0, got);
        }
        printf("selected text: %u of %d tokens at ties\n", n_other, WRITTEN);
        device_report(engine_seq_attention(pair.gpu, b, ROWS_DECODE).n_selections > 0, "selected text: selects");
    }
    free(want);
    free(got);
    pair_close(&pair);
}
