/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/model_bands.h"

#include "tests/gpu/model_pair.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 512, PROMPT = 450, DECODED = 30, TOKENS = PROMPT + DECODED, CHUNK = 151, N_POLICIES = 4 };

static uint8_t streams[64 * 16];

/* Windows so short that a few hundred tokens meet most bands. */
static AttnPolicy windows_of(const char *name, const HeadRoles *roles, double k)
{
    AttnPolicy policy = {.name = name, .roles = roles, .wavelength = {.k_prefill = k, .k_decode = k / 2}};
    if (roles) policy.sink = policy.recent_prefill = policy.recent_decode = KV_PAGE_TOKENS;
    return policy;
}

/* Of all rows: a prompt in chunks that no page ends with, then one by one beside a dense sequence. */
static void run(Engine *engine, PolicyId policy, const uint32_t *tokens, float *logits)
{
    const size_t n_vocab = engine_shape(engine)->n_vocab;
    const SeqId seqs[] = {model_seq_of(engine, policy), model_seq(engine)};
    float *both = model_logits(engine, 2);
    model_feed(engine, seqs[0], ROWS_PREFILL, tokens, PROMPT, CHUNK, logits);
    model_feed(engine, seqs[1], ROWS_PREFILL, tokens, CHUNK, 0, NULL);
    for (uint32_t i = 0; i < DECODED; i++) {
        const uint32_t step[] = {tokens[PROMPT + i], tokens[CHUNK + i]};
        model_step(engine, seqs, step, 1 + i % 2, both);
        for (size_t v = 0; v < n_vocab; v++) logits[(PROMPT + i) * n_vocab + v] = both[v];
    }
    free(both);
    for (int i = 0; i < 2; i++) engine_seq_close(engine, seqs[i]);
}

static void try_policy(const Pair *pair, const AttnPolicy *policy, PolicyId id, const char *name,
                       const uint32_t *tokens, const float *dense, double limit)
{
    const uint32_t n_vocab = engine_shape(pair->cpu)->n_vocab;
    float *want = model_logits(pair->cpu, TOKENS), *got = model_logits(pair->gpu, TOKENS);
    char what[160];
    run(pair->cpu, id, tokens, want);
    run(pair->gpu, id, tokens, got);
    snprintf(what, sizeof what, "%s, %s", name, policy->name);
    model_compare(what, want, got, TOKENS, n_vocab, limit);
    double apart = model_distance(dense, want, TOKENS, n_vocab).mean;
    device_report(apart > 3 * limit, "%s: %g apart from dense, which says nothing", what, apart);
    free(want);
    free(got);
}

static void try_tiny(Device *device, const char *name, const char *const *settings, KvType type, double limit)
{
    static const HeadRoles roles = {.name = "half", .streams = streams};
    const AttnPolicy policies[N_POLICIES] = {{.name = "dense"},
                                             windows_of("windows", NULL, 0.5),
                                             windows_of("short windows", NULL, 0.1),
                                             windows_of("windows and roles", &roles, 0.5)};
    TinyModel model = tiny_model_default();
    char path[256];
    Error error = {0};
    uint32_t tokens[TOKENS];
    bool good = true;
    for (; *settings; settings++) good = good && tiny_model_set(&model, *settings);
    good = good && tiny_model_temp(&model, path, sizeof path, &error);
    device_report(good, "%s: %s", name, error.text);
    if (!good) return;
    const PairParams params = {path, type, false, CONTEXT, 3, CHUNK, policies, N_POLICIES};
    Pair pair = pair_open(device, &params, true);
    model_text(pair.cpu, 7, tokens, TOKENS);
    float *dense = model_logits(pair.cpu, TOKENS);
    run(pair.cpu, 0, tokens, dense);
    for (PolicyId id = 1; id < N_POLICIES; id++) try_policy(&pair, &policies[id], id, name, tokens, dense, limit);
    free(dense);
    pair_close(&pair);
    unlink(path);
}

void try_bands(Device *device)
{
    static const char *const plain[] = {"head_dim=64", "embd=256", "ff=256", NULL};
    static const char *const wide[] = {"head_dim=128", "heads=8", "embd=256", "ff=512", NULL};
    static const char *const normed[] = {"head_dim=64", "embd=256", "ff=256", "arch=qwen3", NULL};
    static const char *const windows[] = {"head_dim=64", "embd=256", "ff=256", "arch=gemma2", "window=48", NULL};
    const uint32_t n_kv_heads = tiny_model_default().n_kv_heads;
    for (uint32_t i = 0; i < sizeof streams; i++) streams[i] = i % n_kv_heads == 0;
    try_tiny(device, "llama, bf16 keys", plain, KV_BF16, 0.004);
    try_tiny(device, "llama, heads of 128, f16 keys", wide, KV_F16, 0.004);
    try_tiny(device, "llama, f8 keys", plain, KV_F8, 0.01);
    try_tiny(device, "llama, int4 keys", plain, KV_INT4, 0.01);
    try_tiny(device, "qwen3, int8 keys", normed, KV_INT8, 0.01);
    memset(streams, 0, sizeof streams);                           /* layers with a window have no roles */
    try_tiny(device, "gemma2, windows", windows, KV_F16, 0.0001); /* whose few layers without a window change little */
}
