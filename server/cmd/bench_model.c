/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/bench.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/eval/ask.h"
#include "engine/eval/policy_spec.h"
#include "engine/model/synthetic.h"
#include "engine/select/select_stages.h"
#include "server/cmd/bench_batch.h"
#include "server/cmd/open_model.h"
#include "server/cmd/progress.h"
#include "server/json_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEED = 1,
    FILL_SEED = 2,
    COPY_RUNS = 9,
    COPY_BYTES = 1 << 30,
    WARM_UP_TOKENS = 2,
    MAX_POLICIES = 16,
    MIN_BLOCK = 16 << 20,
    MAX_BLOCK = 512 << 20
};

typedef struct ModelBench {
    const Config *config;
    Engine *engine;
    SeqId seq;        /* closes with the engine */
    Engine *products; /* the same model without all but its matrix products; NULL without batches, and on a device */
    KernelTable products_row;
    uint32_t *tokens;      /* [engine_context] */
    double *rates;         /* [repetitions] tokens a second */
    uint64_t weight_bytes; /* that one decode step reads */
    double ceiling;        /* bytes a microsecond */
    uint32_t n_threads;
    uint64_t block_bytes;              /* that the ceiling was measured over */
    PolicySpec policies[MAX_POLICIES]; /* that decode */
    PolicyId ids[MAX_POLICIES];
    bool reads_own_way[MAX_POLICIES]; /* prompts, which none before it reads like this */
    uint32_t n_policies;
    BenchSpread prefill_rates[MAX_POLICIES][CONFIG_LIST_MAX], decode_rates[MAX_POLICIES][CONFIG_LIST_MAX];
    BenchSpread batch_rates[MAX_POLICIES][CONFIG_LIST_MAX], products_rates[CONFIG_LIST_MAX];
    Samples steps; /* of the figure that is measured */
    SampleSummary decode_steps[MAX_POLICIES][CONFIG_LIST_MAX], batch_steps[MAX_POLICIES][CONFIG_LIST_MAX];
    ListCounts lists;
    KvTypes kv_types;
    double fraction_done;
    Progress progress;
} ModelBench;

static bool read_policies(ModelBench *bench, Error *error)
{
    for (const char *list = bench->config->policies; list; bench->n_policies++) {
        if (bench->n_policies == MAX_POLICIES)
            return error_set_param(error, ERR_TOO_LARGE, "policies", "--policies: more than %d", MAX_POLICIES);
        PolicySpec *spec = &bench->policies[bench->n_policies];
        if (!policy_spec_next(&list, spec, error)) return false;
        spec->policy.name = spec->text;
    }
    return true;
}

static bool take_roles(const Engine *engine, PolicySpec *spec, Error *error)
{
    const AttnPolicy *policy = NULL;
    for (PolicyId id = 0; spec->roles[0] && (policy = engine_policy(engine, id)); id++)
        if (policy->roles && !strcmp(policy->roles->name, spec->roles)) break;
    return policy_spec_take_roles(spec, policy, policy ? 1 : 0, error);
}

static bool reads_own_way(const ModelBench *bench, uint32_t policy)
{
    for (uint32_t i = 0; i < policy; i++)
        if (ask_reads_alike(bench->engine, bench->ids[i], bench->ids[policy], engine_context(bench->engine)))
            return false;
    return true;
}

static bool open_policies(ModelBench *bench, Error *error)
{
    for (uint32_t i = 0; i < bench->n_policies; i++) {
        PolicySpec *spec = &bench->policies[i];
        if (!take_roles(bench->engine, spec, error)) return false;
        if (!engine_policy_intern(bench->engine, &spec->policy, &bench->ids[i], error))
            return error_prefix(error, "policy '%s'", spec->text);
        bench->reads_own_way[i] = reads_own_way(bench, i);
    }
    return true;
}

static bool check_context(const ModelBench *bench, Error *error)
{
    uint64_t room = engine_context(bench->engine);
    for (uint32_t i = 0; i < bench->config->prefill.n; i++)
        if (bench->config->prefill.at[i] > room)
            return error_set_param(error, ERR_CONTEXT_LENGTH, "prefill",
                                   "--prefill: %u tokens exceed the context of %u", bench->config->prefill.at[i],
                                   (uint32_t)room);
    for (uint32_t i = 0; i < bench->config->depth.n; i++)
        if (bench->config->depth.at[i] + (uint64_t)bench->config->decode > room)
            return error_set_param(error, ERR_CONTEXT_LENGTH, "depth",
                                   "--depth: %u and %u decoded tokens exceed the context of %u",
                                   bench->config->depth.at[i], bench->config->decode, (uint32_t)room);
    return true;
}

/* Best of several copies within the device's memory; what is read and what is written both count. */
static bool measure_device(ModelBench *bench, Device *device, Error *error)
{
    void *from = device->ops->alloc(device, COPY_BYTES), *to = device->ops->alloc(device, COPY_BYTES);
    bool ok = from && to && device_sync(device);
    bench->block_bytes = COPY_BYTES;
    for (int i = 0; ok && i < COPY_RUNS; i++) {
        uint64_t begin_usec = clock_now_usec();
        ok = device_copy(device, to, from, COPY_BYTES) && device_sync(device);
        double rate = 2.0 * COPY_BYTES / ((double)(clock_now_usec() - begin_usec) + 1e-3);
        if (rate > bench->ceiling) bench->ceiling = rate;
    }
    device->ops->free(device, from, COPY_BYTES);
    device->ops->free(device, to, COPY_BYTES);
    return ok || error_set(error, ERR_NO_MEMORY, "no device memory for two blocks of %d MiB", COPY_BYTES >> 20);
}

/* A block as large as the weights, so that the caches help the ceiling as much as they help the model. */
static bool measure_ceiling(ModelBench *bench, Error *error)
{
    uint64_t n = bench->weight_bytes / 64 * 64;
    bench->block_bytes = n < MIN_BLOCK ? MIN_BLOCK : n > MAX_BLOCK ? MAX_BLOCK : n;
    uint8_t *block = aligned_alloc(64, bench->block_bytes);
    if (!block)
        return error_set(error, ERR_NO_MEMORY, "no memory for a block of %zu bytes", (size_t)bench->block_bytes);
    memset(block, 0x11, bench->block_bytes);
    ThreadPool *pool;
    bool ok = threads_new(bench->n_threads, &pool, error);
    if (ok) {
        bench->ceiling = bench_read_ceiling(pool, block, bench->block_bytes);
        threads_free(pool);
    }
    free(block);
    return ok;
}

static uint64_t decode_weight_bytes(const Engine *engine)
{
    const Gguf *gguf = engine_gguf(engine);
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        bool is_embedding = tensor->name.n == 17 && !memcmp(tensor->name.data, "token_embd.weight", 17);
        if (!is_embedding || engine_shape(engine)->tied_output) n_bytes += tensor->n_bytes;
    }
    return n_bytes;
}

static bool fill(Synthetic *synthetic, uint32_t n_threads, Error *error)
{
    ThreadPool *pool;
    if (!threads_new(n_threads, &pool, error)) return false;
    bool ok = synthetic_fill(synthetic, SEED, pool, error);
    threads_free(pool);
    return ok;
}

/* Tokens of the longest sequence that will be timed. */
static uint64_t longest_run(const Config *config)
{
    uint64_t n = config->batch.n ? config->decode : 1;
    for (uint32_t i = 0; i < config->prefill.n; i++)
        if (config->prefill.at[i] > n) n = config->prefill.at[i];
    for (uint32_t i = 0; i < config->depth.n; i++)
        if (config->depth.at[i] + (uint64_t)config->decode > n) n = config->depth.at[i] + (uint64_t)config->decode;
    return n;
}

/*
 * Without --ctx no more than is timed, since a whole context of the model may not fit host_memory; more than the model
 * was trained for only beside a policy that goes there.
 */
static bool choose_context(const Config *config, const char *path, uint32_t *ret_context, Error *error)
{
    Gguf *gguf;
    const ModelFamily *family;
    ModelShape shape;
    *ret_context = config->context;
    if (config->context) return true;
    if (!gguf_open(path, &gguf, error)) return false;
    bool ok = family_find(gguf, &family, error) && family_read_shape(family, gguf, &shape, error);
    gguf_close(gguf);
    uint64_t n = longest_run(config);
    if (ok && (n < shape.train_context || policy_specs_moving_preset(config->policies))) *ret_context = (uint32_t)n;
    return ok;
}

/* The second engine shares the file's pages with the first one; batches are what it is for. */
static bool open_path(ModelBench *bench, const BenchPlan *plan, const char *path, Error *error)
{
    uint32_t n_sequences = 1;
    Config config = *plan->config;
    SeqId unused;
    for (uint32_t i = 0; i < config.batch.n; i++)
        if (config.batch.at[i] > n_sequences) n_sequences = config.batch.at[i];
    if (!choose_context(plan->config, path, &config.context, error) ||
        !open_model(&config, path, plan->device, plan->row, n_sequences, &bench->progress, &bench->engine, &bench->seq,
                    error))
        return false;
    if (config.batch.n == 0 || !plan->row) return true;
    bench->products_row = bench_products_alone(plan->row);
    return open_model(&config, path, plan->device, &bench->products_row, n_sequences, &bench->progress,
                      &bench->products, &unused, error);
}

/* Nobody trained it: it goes as far as is timed. */
static bool open_synthetic(ModelBench *bench, const BenchPlan *plan, Error *error)
{
    Synthetic *synthetic = NULL;
    ModelShape shape = *plan->shape;
    uint64_t wanted = longest_run(plan->config);
    if (plan->config->context > wanted) wanted = plan->config->context;
    if (wanted > shape.train_context) shape.train_context = (uint32_t)wanted;
    bool ok = synthetic_new(&shape, plan->type, &synthetic, error) && fill(synthetic, bench->n_threads, error) &&
              open_path(bench, plan, synthetic_path(synthetic), error);
    synthetic_free(synthetic);
    return ok;
}

static bool open_engine(ModelBench *bench, const BenchPlan *plan, Error *error)
{
    if (plan->shape ? !open_synthetic(bench, plan, error) : !open_path(bench, plan, plan->config->model, error))
        return false;
    bench->weight_bytes = decode_weight_bytes(bench->engine);
    return kv_types_parse(bench->config->kv_type, &bench->kv_types, error);
}

/*
 * Speed does not depend on which tokens they are, so any will do; not all the same, since rows of a table are cached.
 */
static bool make_tokens(ModelBench *bench, Error *error)
{
    uint32_t n = engine_context(bench->engine), n_vocab = engine_shape(bench->engine)->n_vocab;
    for (uint32_t i = 0; i < bench->config->batch.n; i++)
        if (bench->config->batch.at[i] + bench->config->decode > n)
            n = bench->config->batch.at[i] + bench->config->decode;
    bench->tokens = malloc(n * sizeof *bench->tokens);
    bench->rates = malloc(bench->config->repetitions * sizeof *bench->rates);
    if (!bench->tokens || !bench->rates) return error_set(error, ERR_NO_MEMORY, "no memory for %u tokens", n);
    for (uint32_t i = 0; i < n; i++) bench->tokens[i] = (uint32_t)(i * 2654435761ull % n_vocab);
    return true;
}

bool bench_run_until(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t end, RowKind kind, Samples *steps,
                     Error *error)
{
    const DigestAsk greedy = {.is_wanted = true};
    uint32_t chunk = kind == ROWS_DECODE ? 1 : engine_max_batch_rows(engine);
    for (uint32_t at; (at = engine_seq_tokens(engine, seq)) < end;) {
        uint32_t n = end - at < chunk ? end - at : chunk;
        const BatchSpan span = {seq, 0, n, at, at + n == end || kind == ROWS_DECODE ? LOGITS_LAST : LOGITS_NONE, kind};
        const Batch batch = {tokens + at, n, &span, 1, kind == ROWS_DECODE ? &greedy : NULL};
        float *logits;
        uint64_t begin_usec = clock_now_usec();
        if (!engine_forward(engine, &batch, &logits, error) || !bench_add_step(steps, begin_usec, error)) return false;
    }
    return true;
}

/* A run of its own behind the sequence's tokens. check: its lists are compared, which is not timed. */
static bool time_run(ModelBench *bench, uint32_t end, RowKind kind, bool check, double *ret_usec, Error *error)
{
    SeqId seq = 0;
    if (!engine_seq_fork(bench->engine, bench->seq, &seq, error)) return false;
    uint64_t begin_usec = clock_now_usec();
    bool ok = bench_run_until(bench->engine, seq, bench->tokens, end, kind, &bench->steps, error);
    uint64_t usec = clock_now_usec() - begin_usec;
    const BenchAgain again = {.engine = bench->engine, .bases = &bench->seq, .seqs = &seq, .n = 1};
    uint32_t n = end - engine_seq_tokens(bench->engine, bench->seq);
    ok = ok && (!check || bench_check_lists(&again, bench->tokens + end - n, n, &bench->lists, error));
    engine_seq_close(bench->engine, seq);
    *ret_usec = (double)(usec ? usec : 1);
    return ok;
}

/* Of a device: the CPU's are the reference. */
static bool makes_lists(const ModelBench *bench, uint32_t policy, uint32_t depth)
{
    const Selection *selection = &bench->policies[policy].policy.selection;
    return engine_is_on_device(bench->engine) && select_applies(selection, ROWS_DECODE, depth);
}

/* Times positions [begin, end), each time in a new sequence that shares what is before them. */
static bool time_steps(ModelBench *bench, uint32_t begin, uint32_t end, RowKind kind, bool check,
                       BenchSpread *ret_rates, Error *error)
{
    uint32_t n = bench->config->repetitions;
    uint32_t n_kinds = (bench->config->prefill.n + bench->config->depth.n) * bench->n_policies;
    double usec;
    uint32_t warm_end = kind == ROWS_DECODE && end - begin > WARM_UP_TOKENS ? begin + WARM_UP_TOKENS : end;
    if (!time_run(bench, warm_end, kind, false, &usec, error)) return false;
    samples_clear(&bench->steps);
    for (uint32_t i = 0; i < n; i++) {
        if (!time_run(bench, end, kind, check && i == n - 1, &usec, error)) return false;
        bench->rates[i] = (end - begin) * 1e6 / usec;
        bench->fraction_done += 1.0 / n / n_kinds;
        progress_update(&bench->progress, bench->fraction_done);
    }
    *ret_rates = bench_spread(bench->rates, n);
    return true;
}

static uint32_t batch_depth(const ModelBench *bench)
{
    return bench->config->depth.n ? bench->config->depth.at[0] : 0;
}

/* The products do not depend on the policy. */
static bool measure_batches(ModelBench *bench, uint32_t policy, Error *error)
{
    const Config *config = bench->config;
    for (uint32_t i = 0; i < config->batch.n; i++) {
        BatchBench batch = {.engine = bench->engine,
                            .policy = bench->ids[policy],
                            .tokens = bench->tokens,
                            .n_sequences = config->batch.at[i],
                            .depth = batch_depth(bench),
                            .steps = &bench->steps,
                            .n_steps = config->decode,
                            .n_repetitions = config->repetitions};
        if (makes_lists(bench, policy, batch.depth)) batch.lists = &bench->lists;
        if (!bench_batch(&batch, &bench->batch_rates[policy][i], error)) return false;
        bench->batch_steps[policy][i] = samples_summarize(&bench->steps);
        if (!bench->products || policy) continue;
        batch.engine = bench->products;
        batch.policy = 0;
        if (!bench_batch(&batch, &bench->products_rates[i], error)) return false;
    }
    return true;
}

/* A sequence of the policy that holds as many tokens. */
static bool renew(ModelBench *bench, uint32_t policy, uint32_t depth, Error *error)
{
    engine_seq_close(bench->engine, bench->seq);
    return engine_seq_new(bench->engine, bench->ids[policy], &bench->seq, error) &&
           engine_seq_fill(bench->engine, bench->seq, depth, FILL_SEED, error);
}

static bool measure_prefill(ModelBench *bench, uint32_t policy, Error *error)
{
    const Config *config = bench->config;
    bool ok = true;
    for (uint32_t i = 0; ok && i < config->prefill.n && bench->reads_own_way[policy]; i++)
        ok = renew(bench, policy, 0, error) &&
             time_steps(bench, 0, config->prefill.at[i], ROWS_PREFILL, false, &bench->prefill_rates[policy][i], error);
    return ok;
}

static bool measure_decode(ModelBench *bench, uint32_t policy, Error *error)
{
    const Config *config = bench->config;
    bool ok = true;
    for (uint32_t i = 0; ok && i < config->depth.n; i++) {
        uint32_t depth = config->depth.at[i];
        ok = renew(bench, policy, depth, error) &&
             time_steps(bench, depth, depth + config->decode, ROWS_DECODE, makes_lists(bench, policy, depth),
                        &bench->decode_rates[policy][i], error);
        bench->decode_steps[policy][i] = samples_summarize(&bench->steps);
    }
    return ok;
}

static bool measure(ModelBench *bench, Error *error)
{
    bool ok = true;
    progress_begin(&bench->progress, "timing");
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = measure_prefill(bench, p, error);
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = measure_decode(bench, p, error);
    ok = ok && (!bench->config->batch.n || renew(bench, 0, 0, error)); /* what it holds they need */
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = measure_batches(bench, p, error);
    progress_end(&bench->progress);
    return ok;
}

/* What the token in the middle of the run has to read. */
static double decode_bytes(const ModelBench *bench, uint32_t i)
{
    uint64_t n_tokens = bench->config->depth.at[i] + (uint64_t)(bench->config->decode + 1) / 2;
    return (double)(bench->weight_bytes + kv_tokens_bytes(engine_shape(bench->engine), &bench->kv_types, n_tokens));
}

static bool is_dense(const PolicySpec *spec)
{
    return !strcmp(spec->text, "dense");
}

/* Of a dense step: what others read depends on what they find. */
static double floor_percent(const ModelBench *bench, uint32_t policy, uint32_t i)
{
    return 100 * bench->decode_rates[policy][i].median * decode_bytes(bench, i) / (bench->ceiling * 1e6);
}

static void write_rates(JsonOut *json, BenchSpread rates)
{
    json_rawf(json, "\"tokens_per_second\":{\"median\":%.3f,\"min\":%.3f,\"max\":%.3f}", rates.median, rates.min,
              rates.max);
}

static void write_steps(JsonOut *json, const SampleSummary *steps)
{
    json_rawf(json, ",\"step_ms\":{\"n\":%" PRIu64 ",\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f}", steps->n,
              steps->p50 / 1e3, steps->p99 / 1e3, steps->max / 1e3);
}

static void write_decode(const ModelBench *bench, uint32_t policy, JsonOut *json)
{
    const Config *config = bench->config;
    for (uint32_t i = 0; i < config->depth.n; i++) {
        json_raw(json, policy || i ? ",{\"policy\":" : "{\"policy\":");
        json_string(json, bench->policies[policy].text);
        json_rawf(json, ",\"depth\":%u,\"tokens\":%u,", config->depth.at[i], config->decode);
        write_rates(json, bench->decode_rates[policy][i]);
        write_steps(json, &bench->decode_steps[policy][i]);
        if (is_dense(&bench->policies[policy]))
            json_rawf(json, ",\"bytes_per_token\":%.0f,\"floor_percent\":%.2f", decode_bytes(bench, i),
                      floor_percent(bench, policy, i));
        json_raw(json, "}");
    }
}

static void write_prefill(const ModelBench *bench, uint32_t policy, JsonOut *json)
{
    for (uint32_t i = 0; i < bench->config->prefill.n && bench->reads_own_way[policy]; i++) {
        json_raw(json, policy || i ? ",{\"policy\":" : "{\"policy\":");
        json_string(json, bench->policies[policy].text);
        json_rawf(json, ",\"tokens\":%u,", bench->config->prefill.at[i]);
        write_rates(json, bench->prefill_rates[policy][i]);
        json_raw(json, "}");
    }
}

static void write_batches(const ModelBench *bench, uint32_t policy, JsonOut *json)
{
    const Config *config = bench->config;
    for (uint32_t i = 0; i < config->batch.n; i++) {
        json_raw(json, policy || i ? ",{\"policy\":" : "{\"policy\":");
        json_string(json, bench->policies[policy].text);
        json_rawf(json, ",\"sequences\":%u,\"depth\":%u,\"tokens\":%u,", config->batch.at[i], batch_depth(bench),
                  config->decode);
        write_rates(json, bench->batch_rates[policy][i]);
        write_steps(json, &bench->batch_steps[policy][i]);
        if (bench->products) json_rawf(json, ",\"ideal_tokens_per_second\":%.3f", bench->products_rates[i].median);
        json_raw(json, "}");
    }
}

static bool write_json(const ModelBench *bench, Buffer *out, Error *error)
{
    const Config *config = bench->config;
    JsonOut json;
    json_begin(&json, out);
    json_raw(&json, "{\"model\":");
    json_string(&json, engine_shape(bench->engine)->name);
    json_raw(&json, ",\"device\":");
    json_string(&json, engine_device_name(bench->engine));
    json_rawf(&json, ",\"threads\":%u,\"kv_type\":\"%s\",\"prefill_chunk\":%u,\"repetitions\":%u", bench->n_threads,
              config->kv_type, config->prefill_chunk, config->repetitions);
    json_rawf(&json, ",\"weight_bytes\":%llu,\"read_ceiling\":{\"bytes\":%llu,\"gb_per_second\":%.3f},\"prefill\":[",
              (unsigned long long)bench->weight_bytes, (unsigned long long)bench->block_bytes, bench->ceiling / 1e3);
    for (uint32_t p = 0; p < bench->n_policies; p++) write_prefill(bench, p, &json);
    json_raw(&json, "],\"decode\":[");
    for (uint32_t p = 0; p < bench->n_policies; p++) write_decode(bench, p, &json);
    json_raw(&json, "],\"batches\":[");
    for (uint32_t p = 0; p < bench->n_policies; p++) write_batches(bench, p, &json);
    json_raw(&json, "]");
    if (bench->lists.n_lists)
        json_rawf(&json, ",\"lists\":{\"compared\":%u,\"equal\":%u,\"near_pages\":%u}", bench->lists.n_lists,
                  bench->lists.n_equal, bench->lists.n_near);
    json_raw(&json, "}\n");
    return json_end(&json, error);
}

static bool print_decode(const ModelBench *bench, uint32_t policy, Buffer *out, Error *error)
{
    const Config *config = bench->config;
    const char *name = bench->policies[policy].text;
    bool ok = true;
    for (uint32_t i = 0; ok && i < config->depth.n; i++) {
        BenchSpread rates = bench->decode_rates[policy][i];
        ok = buffer_printf(out, error, "decode of %-5u at %-9u %10.1f %10.1f %10.1f", config->decode,
                           config->depth.at[i], rates.median, rates.min, rates.max) &&
             (is_dense(&bench->policies[policy])
                  ? buffer_printf(out, error, "   %.1f %% of the bytes-bound floor\n", floor_percent(bench, policy, i))
                  : buffer_printf(out, error, "   %s\n", name));
    }
    return ok;
}

/* Whose figures stand in the line, where it is not plain. */
static bool end_line(const ModelBench *bench, uint32_t policy, Buffer *out, Error *error)
{
    const PolicySpec *spec = &bench->policies[policy];
    return is_dense(spec) ? buffer_append_text(out, "\n", error) : buffer_printf(out, error, "   %s\n", spec->text);
}

static bool print_prefill(const ModelBench *bench, uint32_t policy, Buffer *out, Error *error)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < bench->config->prefill.n && bench->reads_own_way[policy]; i++) {
        BenchSpread rates = bench->prefill_rates[policy][i];
        ok = buffer_printf(out, error, "prefill of %-17u %10.1f %10.1f %10.1f", bench->config->prefill.at[i],
                           rates.median, rates.min, rates.max) &&
             end_line(bench, policy, out, error);
    }
    return ok;
}

static bool print_batches(const ModelBench *bench, uint32_t policy, Buffer *out, Error *error)
{
    const Config *config = bench->config;
    bool ok = true;
    for (uint32_t i = 0; ok && i < config->batch.n; i++) {
        BenchSpread rates = bench->batch_rates[policy][i];
        ok = buffer_printf(out, error, "%-5u together at %-10u %10.1f %10.1f %10.1f", config->batch.at[i],
                           batch_depth(bench), rates.median, rates.min, rates.max) &&
             (!bench->products || buffer_printf(out, error, "   %.1f %% of the products alone",
                                                100 * rates.median / bench->products_rates[i].median)) &&
             end_line(bench, policy, out, error);
    }
    return ok;
}

static bool write_text(const ModelBench *bench, Buffer *out, Error *error)
{
    const Config *config = bench->config;
    bool ok =
        buffer_printf(out, error, "%s, %.1f MB of weights a step; %s, %u threads, KV %s, %u repetitions\n",
                      engine_shape(bench->engine)->name, (double)bench->weight_bytes / 1e6,
                      engine_device_name(bench->engine), bench->n_threads, config->kv_type, config->repetitions) &&
        buffer_printf(out, error, "reading %.0f MiB: %.2f GB/s\n\n%-28s %10s %10s %10s\n",
                      (double)bench->block_bytes / (1 << 20), bench->ceiling / 1e3, "tokens a second", "median", "min",
                      "max");
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = print_prefill(bench, p, out, error);
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = print_decode(bench, p, out, error);
    for (uint32_t p = 0; ok && p < bench->n_policies; p++) ok = print_batches(bench, p, out, error);
    if (ok && bench->lists.n_lists)
        ok = buffer_printf(out, error,
                           "lists of the timed runs: %u compared with the CPU's, %u equal, %u pages as near\n",
                           bench->lists.n_lists, bench->lists.n_equal, bench->lists.n_near);
    return ok;
}

bool bench_model(const BenchPlan *plan, Buffer *out, Error *error)
{
    const Config *config = plan->config;
    ModelBench bench = {.config = config, .n_threads = config->threads ? config->threads : threads_available()};
    bool ok = read_policies(&bench, error) && open_engine(&bench, plan, error) && open_policies(&bench, error) &&
              check_context(&bench, error) && make_tokens(&bench, error) &&
              (plan->row ? measure_ceiling(&bench, error) : measure_device(&bench, plan->device, error)) &&
              measure(&bench, error) &&
              (config->json ? write_json(&bench, out, error) : write_text(&bench, out, error));
    samples_done(&bench.steps);
    free(bench.rates);
    free(bench.tokens);
    engine_close(bench.products);
    engine_close(bench.engine);
    return ok;
}
