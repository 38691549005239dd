/* SPDX-License-Identifier: Apache-2.0 */
/* Counters, gauges and histograms of the server, and their Prometheus text. Loop thread only. */
#pragma once
#include "base/buffer.h"
#include "scheduler/messages.h"
#include "server/http_error.h"

enum { METRICS_MAX_BUCKETS = 16, METRICS_MAX_STATUS = 600 };

typedef enum MetricsHistogram {
    METRICS_TTFT,
    METRICS_INTER_TOKEN,
    METRICS_E2E,
    METRICS_QUEUE,
    METRICS_PREFILL,
    METRICS_DECODE,
    METRICS_PROMPT_TOKENS,
    METRICS_GENERATION_TOKENS,
    METRICS_HISTOGRAMS
} MetricsHistogram;

typedef struct Histogram {
    uint64_t bucket[METRICS_MAX_BUCKETS + 1]; /* the last one: beyond every bound */
    uint64_t count;
    double sum;
} Histogram;

typedef struct Metrics {
    uint64_t responses[METRICS_MAX_STATUS]; /* by HTTP status */
    uint64_t rejected[HTTP_ERR_COUNT];      /* answers by ErrorCode or HttpErrorKind */
    uint64_t finished[2];                   /* choices, by FinishReason */
    uint64_t aborted, client_gone;
    uint64_t unknown_fields;
    uint64_t prompt_tokens, cached_tokens;
    uint32_t open_generations;
    Histogram histogram[METRICS_HISTOGRAMS];
    EngineStats engine;
} Metrics;

void metrics_observe(Metrics *metrics, MetricsHistogram which, double value);
void metrics_count_status(Metrics *metrics, unsigned status);
void metrics_count_rejected(Metrics *metrics, int kind);
/* model: label value. now_usec: monotonic. */
LW_CHECK bool metrics_write(const Metrics *metrics, const char *model, uint64_t now_usec, Buffer *out, Error *error);
