/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, gauges and histograms of the server, and their Prometheus text. Names are longwave_..., and under vllm:...
 * what routers and dashboards look for without being told. Loop thread only.
 */
#pragma once
#include "base/buffer.h"
#include "scheduler/messages.h"
#include "server/auth.h"
#include "server/http_error.h"
#include "server/process_stats.h"

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
    METRICS_MISSING_MASS, /* of attention, estimated; and as audits found it */
    METRICS_AUDITED_MASS,
    METRICS_AUDITED_KL,
    METRICS_HISTOGRAMS
} MetricsHistogram;

typedef struct Histogram {
    uint64_t bucket[METRICS_MAX_BUCKETS + 1]; /* the last one: beyond every bound */
    uint64_t count;
    double sum;
} Histogram;

/* Why a request that was taken did not come to its end. */
typedef enum MetricsAbort {
    METRICS_GONE,     /* the client left */
    METRICS_ABORT,    /* /v1/abort */
    METRICS_TIMEOUT,  /* its time was over */
    METRICS_SHUTDOWN, /* the server stopped */
    METRICS_REFUSED,  /* it could not be done as it was asked for, or there was no room */
    METRICS_FAILURE,  /* of the engine or the server */
    METRICS_ABORTS
} MetricsAbort;

typedef struct Metrics {
    uint64_t responses[METRICS_MAX_STATUS]; /* by HTTP status */
    uint64_t rejected[HTTP_ERR_COUNT];      /* told to clients, by ErrorCode or HttpErrorKind */
    uint64_t outcomes[OUTCOMES];            /* of generation requests */
    uint64_t finished[FINISH_REASONS];      /* choices, by FinishReason */
    uint64_t aborted[METRICS_ABORTS];
    uint64_t tool_calls; /* in finished choices */
    uint64_t unknown_fields;
    uint64_t compiles; /* grammars that were compiled, or tried to the end */
    uint32_t waiting_to_compile;
    uint32_t open_generations;
    Histogram histogram[METRICS_HISTOGRAMS];
    AttentionStats attention; /* of the decoded rows of all that is done */
    EngineStats engine;
} Metrics;

/* What others know. */
typedef struct MetricsInfo {
    uint64_t unix_seconds;                /* now */
    uint64_t start_unix;                  /* when the server began */
    uint32_t n_preparing;                 /* jobs in uv's pool, or waiting to compile */
    uint64_t log_lines_lost;              /* log_lost */
    const char *model, *kv_type, *device; /* label values */
    bool kv_on_gpu;
    uint64_t weight_bytes, buffer_bytes; /* of the engine, where it computes */
    uint64_t memory_bytes;               /* that there is in that place */
    ProcessStats process;
    uint32_t page_tokens, n_pages;
    const Auth *auth; /* whose accounts are told of; NULL: none */
} MetricsInfo;

void metrics_observe(Metrics *metrics, MetricsHistogram which, double value);
void metrics_count_status(Metrics *metrics, unsigned status);
void metrics_count_rejected(Metrics *metrics, int kind);
/* Of a generation request that is over, streamed or not: once. */
void metrics_count_outcome(Metrics *metrics, RequestOutcome outcome);
/* now_usec: monotonic. */
LW_CHECK bool metrics_write(const Metrics *metrics, const MetricsInfo *info, uint64_t now_usec, Buffer *out,
                            Error *error);
