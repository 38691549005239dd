/* SPDX-License-Identifier: Apache-2.0 */
#include "server/status_line.h"
#include "base/log.h"

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void status_line_write(StatusLine *line, const EngineStats *stats, uint64_t now_usec)
{
    const EngineStats *last = &line->last;
    double seconds = (double)(now_usec - line->last_usec) / 1e6;
    bool is_busy = stats->running || stats->waiting || stats->steps != last->steps;
    if (is_busy && seconds > 0) {
        LogField fields[] = {
            {"running", LOG_WHOLE, .whole = stats->running},
            {"waiting", LOG_WHOLE, .whole = stats->waiting},
            {"prompt_tokens_per_second", LOG_REAL,
             .real = (double)(stats->prompt_tokens - last->prompt_tokens) / seconds},
            {"generated_tokens_per_second", LOG_REAL,
             .real = (double)(stats->generated_tokens - last->generated_tokens) / seconds},
            {"kv_pages", LOG_WHOLE, .whole = stats->kv_pages_used},
            {"kv_usage", LOG_REAL, .real = engine_stats_kv_usage(stats)},
            {"cache_hit_rate", LOG_REAL,
             .real = share(stats->prefix_hit_tokens - last->prefix_hit_tokens,
                           stats->prefix_queried_tokens - last->prefix_queried_tokens)},
            {"preemptions", LOG_WHOLE, .whole = stats->preempted - last->preempted},
        };
        log_fields(LOG_INFO, 0, "status", fields, sizeof fields / sizeof *fields);
    }
    line->last = *stats;
    line->last_usec = now_usec;
}
