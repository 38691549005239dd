/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

static const MetricsInfo info = {.model = "a\"b\\c",
                                 .kv_type = "f16",
                                 .device = "cuda:0 (\"GPU\")",
                                 .page_tokens = 64,
                                 .n_pages = 1000,
                                 .weight_bytes = 70,
                                 .buffer_bytes = 9,
                                 .memory_bytes = 1000,
                                 .start_unix = 1700000000,
                                 .process = {.cpu_seconds = 1.5,
                                             .resident_bytes = 4096,
                                             .heap_bytes = 2048,
                                             .open_fds = 7,
                                             .max_fds = 99}};

static void expect_line(const char *page, const char *line)
{
    cr_expect(strstr(page, line) != NULL, "no line '%s' in:\n%s", line, page);
}

/* The name of a model is whatever its file says. */
Test(metrics, labels_have_no_escapes_that_prometheus_does_not_know)
{
    char name[300] = "a\tb\x07\x7F\r\n\"c\\\xC3\xA9\xFF";
    MetricsInfo odd = info;
    Metrics *metrics = calloc(1, sizeof *metrics);
    Buffer page;
    Error error;
    cr_assert(metrics != NULL);
    odd.model = name;
    buffer_init(&page, 1 << 20);
    cr_assert(metrics_write(metrics, &odd, 1, &page, &error));
    expect_line(page.data,
                "\nvllm:num_requests_waiting{model_name=\"a b    \\\"c\\\\\xC3\xA9\uFFFD\",engine=\"0\"} 0\n");
    memset(name, 'x', sizeof name - 1);
    buffer_clear(&page);
    cr_assert(metrics_write(metrics, &odd, 1, &page, &error));
    cr_expect(strstr(page.data, "xx\",engine=\"0\"} 0\n") != NULL);
    buffer_done(&page);
    free(metrics);
}

Test(metrics, page_has_counters_gauges_and_histograms)
{
    Metrics *metrics = calloc(1, sizeof *metrics);
    Buffer page;
    Error error;
    cr_assert(metrics != NULL);
    metrics_count_status(metrics, 200);
    metrics_count_status(metrics, 200);
    metrics_count_status(metrics, 404);
    metrics_count_status(metrics, 99999);
    metrics_observe(metrics, METRICS_TTFT, 0.02);
    metrics_observe(metrics, METRICS_TTFT, 0.025);
    metrics_observe(metrics, METRICS_TTFT, 1e9);
    metrics->finished[FINISH_LENGTH] = 3;
    metrics->aborted[METRICS_TIMEOUT] = 9;
    metrics_count_rejected(metrics, ERR_BUSY);
    metrics_count_rejected(metrics, ERR_IO);
    metrics_count_rejected(metrics, ERR_INTERNAL);
    metrics_count_rejected(metrics, 12345);
    metrics->engine = (EngineStats){.running = 1,
                                    .waiting = 2,
                                    .generated_tokens = 77,
                                    .kv_bytes_used = 8,
                                    .kv_bytes_idle = 3,
                                    .kv_bytes_total = 10,
                                    .kv_pages_of = {3, 0, 4},
                                    .kv_images = 2,
                                    .preempted = 6,
                                    .prefill_usec = 1500000,
                                    .last_step_usec = 1000000};
    buffer_init(&page, 1 << 20);
    cr_assert(metrics_write(metrics, &info, 3500000, &page, &error));
    expect_line(page.data, "\nvllm:num_requests_waiting{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 2\n");
    expect_line(page.data, "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 0.5\n");
    expect_line(page.data, "longwave_engine_idle_seconds{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 2.5\n");
    expect_line(page.data, "engine=\"0\",pool=\"window\",place=\"host\"} 4\n");
    expect_line(page.data, "engine=\"0\",pool=\"image\",place=\"host\"} 2\n");
    expect_line(page.data, "engine=\"0\",block_size=\"64\",num_gpu_blocks=\"1000\",cache_dtype=\"f16\"} 1\n");
    expect_line(page.data, "vllm:num_preemptions_total{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 6\n");
    expect_line(page.data, "engine=\"0\",phase=\"prefill\"} 1.5\n");
    expect_line(page.data, "engine=\"0\",reason=\"timeout\"} 9\n");
    expect_line(page.data, "engine=\"0\",reason=\"queue_full\"} 1\n");
    expect_line(page.data, "engine=\"0\",reason=\"internal_error\"} 3\n");
    cr_expect_null(strstr(strstr(page.data, "reason=\"internal_error\"") + 1, "reason=\"internal_error\""));
    expect_line(page.data, "engine=\"0\",code=\"200\"} 2\n");
    expect_line(page.data, "engine=\"0\",code=\"404\"} 1\n");
    expect_line(page.data, "engine=\"0\",finished_reason=\"length\"} 3\n");
    expect_line(page.data,
                "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\\\\c\",engine=\"0\",le=\"0.01\"} 0\n");
    expect_line(page.data, "engine=\"0\",le=\"0.025\"} 2\n");
    expect_line(page.data, "engine=\"0\",le=\"600\"} 2\n");
    expect_line(page.data, "engine=\"0\",le=\"+Inf\"} 3\n");
    expect_line(page.data, "vllm:time_to_first_token_seconds_count{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 3\n");
    buffer_done(&page);
    free(metrics);
}

Test(metrics, what_the_cache_holds_and_what_attention_saw_are_told)
{
    Metrics *metrics = calloc(1, sizeof *metrics);
    const MetricsInfo plain = {.model = "m", .kv_type = "f16", .device = "cpu", .kv_on_gpu = true};
    Buffer page;
    Error error;
    cr_assert(metrics != NULL);
    metrics->engine =
        (EngineStats){.kv_bytes_used = 8, .kv_bytes_idle = 3, .kv_bytes_total = 10, .prefix_evicted_pages = 21};
    metrics->attention =
        (AttentionStats){.n_queries = 31, .n_tokens = 310, .n_selections = 4, .n_refreshes = {1, 2, 4}};
    buffer_init(&page, 1 << 20);
    cr_assert(metrics_write(metrics, &plain, 1, &page, &error));
    expect_line(page.data, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.5\n");
    expect_line(page.data, "longwave_kv_bytes{model_name=\"m\",engine=\"0\",place=\"gpu\"} 8\n");
    expect_line(page.data, "longwave_memory_bytes{model_name=\"m\",engine=\"0\",use=\"kv\",place=\"gpu\"} 10\n");
    expect_line(page.data, "longwave_kv_idle_bytes{model_name=\"m\",engine=\"0\"} 3\n");
    expect_line(page.data, "longwave_prefix_cache_evicted_pages_total{model_name=\"m\",engine=\"0\"} 21\n");
    expect_line(page.data, "longwave_attention_queries_total{model_name=\"m\",engine=\"0\"} 31\n");
    expect_line(page.data, "longwave_attention_keys_seen_total{model_name=\"m\",engine=\"0\"} 310\n");
    expect_line(page.data, "longwave_attention_selections_total{model_name=\"m\",engine=\"0\"} 4\n");
    expect_line(page.data, "longwave_attention_stage_refreshes_total{model_name=\"m\",engine=\"0\",stage=\"1\"} 2\n");
    buffer_done(&page);
    free(metrics);
}

Test(metrics, the_process_and_its_memory_are_told)
{
    Metrics *metrics = calloc(1, sizeof *metrics);
    Buffer page;
    Error error;
    cr_assert(metrics != NULL);
    metrics->engine = (EngineStats){.kv_bytes_used = 8, .kv_bytes_total = 10};
    buffer_init(&page, 1 << 20);
    cr_assert(metrics_write(metrics, &info, 1, &page, &error));
    expect_line(page.data, "engine=\"0\",use=\"weights\",place=\"host\"} 70\n");
    expect_line(page.data, "engine=\"0\",use=\"buffers\",place=\"host\"} 9\n");
    expect_line(page.data, "engine=\"0\",use=\"kv\",place=\"host\"} 8\n");
    expect_line(page.data, "\nlongwave_memory_size_bytes{");
    expect_line(page.data, "engine=\"0\",place=\"host\"} 1000\n");
    expect_line(page.data, ",version=\"" LW_VERSION "\",device=\"cuda:0 (\\\"GPU\\\")\"} 1\n");
    expect_line(page.data, "\nprocess_cpu_seconds_total 1.5\n");
    expect_line(page.data, "\nprocess_resident_memory_bytes 4096\n");
    expect_line(page.data, "\nlongwave_heap_bytes{");
    expect_line(page.data, "engine=\"0\"} 2048\n");
    expect_line(page.data, "\nprocess_open_fds 7\n");
    expect_line(page.data, "\nprocess_start_time_seconds 1700000000\n");
    buffer_done(&page);
    free(metrics);
}

Test(metrics, a_page_that_does_not_fit_is_an_error)
{
    Metrics *metrics = calloc(1, sizeof *metrics);
    Buffer page;
    Error error;
    cr_assert(metrics != NULL);
    buffer_init(&page, 100);
    cr_expect_not(metrics_write(metrics, &info, 0, &page, &error));
    buffer_done(&page);
    free(metrics);
}
