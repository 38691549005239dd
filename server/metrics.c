/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics.h"
#include "server/json_out.h"

#include <stdio.h>
#include <string.h>

typedef struct HistogramInfo {
    const char *name, *help;
    double bound[METRICS_MAX_BUCKETS]; /* rising; 0 ends the list */
} HistogramInfo;

#define SECONDS                                                                                                        \
    {                                                                                                                  \
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600                                 \
    }
#define TOKENS                                                                                                         \
    {                                                                                                                  \
        1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576                \
    }

static const HistogramInfo histograms[METRICS_HISTOGRAMS] = {
    [METRICS_TTFT] = {"time_to_first_token_seconds", "From arrival to the first token.", SECONDS},
    [METRICS_INTER_TOKEN] = {"inter_token_latency_seconds", "Between two tokens of a choice.", SECONDS},
    [METRICS_E2E] = {"e2e_request_latency_seconds", "From arrival to the last token.", SECONDS},
    [METRICS_QUEUE] = {"request_queue_time_seconds", "Waiting for the engine.", SECONDS},
    [METRICS_PREFILL] = {"request_prefill_time_seconds", "Reading the prompt.", SECONDS},
    [METRICS_DECODE] = {"request_decode_time_seconds", "Writing the answer.", SECONDS},
    [METRICS_PROMPT_TOKENS] = {"request_prompt_tokens", "Tokens of a prompt.", TOKENS},
    [METRICS_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens of an answer.", TOKENS},
};

void metrics_observe(Metrics *metrics, MetricsHistogram which, double value)
{
    Histogram *histogram = &metrics->histogram[which];
    size_t i = 0;
    while (i < METRICS_MAX_BUCKETS && histograms[which].bound[i] > 0 && value > histograms[which].bound[i]) i++;
    histogram->bucket[i]++;
    histogram->count++;
    histogram->sum += value;
}

void metrics_count_status(Metrics *metrics, unsigned status)
{
    if (status < METRICS_MAX_STATUS) metrics->responses[status]++;
}

void metrics_count_rejected(Metrics *metrics, int kind)
{
    metrics->rejected[kind > 0 && kind < HTTP_ERR_COUNT ? kind : ERR_INTERNAL]++;
}

/* Prometheus escapes backslash, quote and line end in label values, as JSON does. */
typedef struct Page {
    JsonOut out;
    const char *model;
} Page;

static void head(Page *page, const char *name, const char *type, const char *help)
{
    json_rawf(&page->out, "# HELP %s ", name);
    json_raw(&page->out, help);
    json_rawf(&page->out, "\n# TYPE %s %s\n", name, type);
}

/* name{model_name=...,engine="0" without the closing brace. */
static void labels(Page *page, const char *name)
{
    json_rawf(&page->out, "%s{model_name=", name);
    json_string(&page->out, page->model);
    json_raw(&page->out, ",engine=\"0\"");
}

static void value(Page *page, double number)
{
    json_rawf(&page->out, "} %.15g\n", number);
}

static void single(Page *page, const char *name, const char *type, const char *help, double number)
{
    head(page, name, type, help);
    labels(page, name);
    value(page, number);
}

static void write_histogram(Page *page, const HistogramInfo *info, const Histogram *histogram)
{
    char name[80], bucket_name[96];
    snprintf(name, sizeof name, "vllm:%s", info->name);
    snprintf(bucket_name, sizeof bucket_name, "%s_bucket", name);
    head(page, name, "histogram", info->help);
    uint64_t below = 0;
    for (size_t i = 0; i < METRICS_MAX_BUCKETS && info->bound[i] > 0; i++) {
        below += histogram->bucket[i];
        labels(page, bucket_name);
        json_rawf(&page->out, ",le=\"%g\"", info->bound[i]);
        value(page, (double)below);
    }
    labels(page, bucket_name);
    json_raw(&page->out, ",le=\"+Inf\"");
    value(page, (double)histogram->count);
    snprintf(bucket_name, sizeof bucket_name, "%s_sum", name);
    labels(page, bucket_name);
    value(page, histogram->sum);
    snprintf(bucket_name, sizeof bucket_name, "%s_count", name);
    labels(page, bucket_name);
    value(page, (double)histogram->count);
}

static void write_engine(Page *page, const EngineStats *engine, uint64_t now_usec)
{
    double usage = engine->kv_tokens_total ? (double)engine->kv_tokens_used / engine->kv_tokens_total : 0;
    double idle = engine->last_step_usec && now_usec > engine->last_step_usec
                      ? (double)(now_usec - engine->last_step_usec) / 1e6
                      : 0;
    single(page, "vllm:num_requests_running", "gauge", "Requests that the engine computes.", engine->running);
    single(page, "vllm:num_requests_waiting", "gauge", "Requests that wait for the engine.", engine->waiting);
    single(page, "vllm:kv_cache_usage_perc", "gauge", "Part of the KV cache in use, 0 to 1.", usage);
    single(page, "vllm:prompt_tokens_total", "counter", "Prompt tokens read.", (double)engine->prompt_tokens);
    single(page, "vllm:generation_tokens_total", "counter", "Tokens written.", (double)engine->generated_tokens);
    single(page, "vllm:corrupted_requests_total", "counter", "Requests with non-finite logits.",
           (double)engine->non_finite);
    single(page, "longwave_engine_steps_total", "counter", "Finished engine steps.", (double)engine->steps);
    single(page, "longwave_engine_idle_seconds", "gauge", "Since the last finished engine step.", idle);
    single(page, "longwave_kv_tokens", "gauge", "Tokens that the KV cache holds.", engine->kv_tokens_used);
    single(page, "longwave_kv_tokens_limit", "gauge", "Tokens that the KV cache can hold.", engine->kv_tokens_total);
    single(page, "longwave_requests_cancelled_total", "counter", "Requests that the engine stopped early.",
           (double)engine->cancelled);
    single(page, "longwave_requests_finished_total", "counter", "Requests that the engine finished.",
           (double)engine->finished);
    single(page, "longwave_requests_failed_total", "counter", "Requests that failed in the engine.",
           (double)engine->failed);
}

static void write_server(Page *page, const Metrics *metrics)
{
    static const char *const reasons[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
    head(page, "vllm:request_success_total", "counter", "Finished choices.");
    for (size_t i = 0; i < 2; i++) {
        labels(page, "vllm:request_success_total");
        json_rawf(&page->out, ",finished_reason=\"%s\"", reasons[i]);
        value(page, (double)metrics->finished[i]);
    }
    head(page, "longwave_http_responses_total", "counter", "Answers by HTTP status.");
    for (unsigned i = 0; i < METRICS_MAX_STATUS; i++) {
        if (!metrics->responses[i]) continue;
        labels(page, "longwave_http_responses_total");
        json_rawf(&page->out, ",code=\"%u\"", i);
        value(page, (double)metrics->responses[i]);
    }
    single(page, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.",
           (double)metrics->prompt_tokens);
    single(page, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", (double)metrics->cached_tokens);
    single(page, "longwave_generations_open", "gauge", "Generation requests not yet answered.",
           metrics->open_generations);
    single(page, "longwave_clients_gone_total", "counter", "Clients that left before their answer was complete.",
           (double)metrics->client_gone);
    single(page, "longwave_requests_aborted_total", "counter", "Requests ended through /v1/abort.",
           (double)metrics->aborted);
    single(page, "longwave_unknown_fields_total", "counter", "Request fields that are unknown and were ignored.",
           (double)metrics->unknown_fields);
}

bool metrics_write(const Metrics *metrics, const char *model, uint64_t now_usec, Buffer *out, Error *error)
{
    Page page = {.model = model};
    json_begin(&page.out, out);
    write_engine(&page, &metrics->engine, now_usec);
    write_server(&page, metrics);
    for (size_t i = 0; i < METRICS_HISTOGRAMS; i++) write_histogram(&page, &histograms[i], &metrics->histogram[i]);
    return json_end(&page.out, error);
}
