/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/report.h"
#include "server/json_out.h"

#include <inttypes.h>
#include <string.h>

enum { N_TIMES = 5 };

typedef struct Times {
    const char *key, *title;
    SampleSummary found;
} Times;

static void summarize(LoadReport *report, Times times[static N_TIMES])
{
    times[0] = (Times){"first_token_ms", "first token", samples_summarize(&report->first_token)};
    times[1] = (Times){"gap_ms", "between tokens", samples_summarize(&report->gap)};
    times[2] = (Times){"per_token_ms", "mean per token", samples_summarize(&report->per_token)};
    times[3] = (Times){"answer_ms", "whole answer", samples_summarize(&report->whole)};
    times[4] = (Times){"send_delay_ms", "late in sending", samples_summarize(&report->send_delay)};
}

static double per_second(const LoadReport *report, uint64_t n)
{
    return report->seconds > 0 ? (double)n / report->seconds : 0;
}

static void write_times(JsonOut *json, const Times *times)
{
    const SampleSummary *found = &times->found;
    json_rawf(json, ",\"%s\":{\"n\":%" PRIu64 ",\"mean\":%.3f,\"min\":%.3f,", times->key, found->n, found->mean / 1e3,
              found->min / 1e3);
    json_rawf(json, "\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}", found->p50 / 1e3, found->p90 / 1e3,
              found->p99 / 1e3, found->max / 1e3);
}

static void write_head(JsonOut *json, const ReportHead *head, const LoadParams *params)
{
    const WorkloadParams *workload = &params->workload->params;
    json_raw(json, "{\"server\":");
    json_string(json, head->server);
    json_raw(json, ",\"model\":");
    json_string(json, workload->model);
    json_rawf(json, ",\"endpoint\":\"%s\",\"workload\":\"%s\",\"replay\":", workload->is_chat ? "chat" : "completions",
              head->workload);
    if (head->replay)
        json_string(json, head->replay);
    else
        json_raw(json, "null");
    json_rawf(json, ",\"loop\":\"%s\",\"clients\":%u,\"rate\":%g,\"seed\":%" PRIu64,
              params->rate > 0 || workload->replay ? "open" : "closed", params->n_clients, params->rate,
              workload->seed);
}

static void write_counts(JsonOut *json, const LoadReport *report)
{
    json_rawf(json, ",\"seconds\":%.3f,\"dialogues\":%u,\"peak_streams\":%u,\"requests\":{\"sent\":%" PRIu64,
              report->seconds, report->n_dialogues, report->peak_streams, report->n_sent);
    json_rawf(json,
              ",\"answered\":%" PRIu64 ",\"rejected\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"timed_out\":%" PRIu64
              ",\"without_usage\":%" PRIu64 ",\"resent\":%" PRIu64 "}",
              report->n_answered, report->n_rejected, report->n_failed, report->n_timed_out, report->n_without_usage,
              report->n_resent);
    json_rawf(json,
              ",\"tokens\":{\"prompt\":%" PRIu64 ",\"cached\":%" PRIu64 ",\"answer\":%" PRIu64
              "},\"per_second\":{\"requests\":%.3f,\"prompt_tokens\":%.3f,\"answer_tokens\":%.3f}",
              report->prompt_tokens, report->cached_tokens, report->answer_tokens,
              per_second(report, report->n_answered), per_second(report, report->prompt_tokens),
              per_second(report, report->answer_tokens));
}

bool report_write_json(const ReportHead *head, const LoadParams *params, LoadReport *report, Buffer *out, Error *error)
{
    Times times[N_TIMES];
    JsonOut json;
    summarize(report, times);
    json_begin(&json, out);
    write_head(&json, head, params);
    write_counts(&json, report);
    for (int i = 0; i < N_TIMES; i++) write_times(&json, &times[i]);
    json_raw(&json, ",\"errors\":[");
    for (uint32_t i = 0; i < report->n_errors; i++) {
        json_raw(&json, i ? ",{\"text\":" : "{\"text\":");
        json_string(&json, report->errors[i].error.text);
        json_rawf(&json, ",\"count\":%" PRIu64 "}", report->errors[i].count);
    }
    json_raw(&json, "]}\n");
    return json_end(&json, error);
}

static bool print_head(const ReportHead *head, const LoadParams *params, Buffer *out, Error *error)
{
    const WorkloadParams *workload = &params->workload->params;
    if (!buffer_printf(out, error, "%s, ", head->server) ||
        !buffer_append_clean(out, workload->model, strlen(workload->model), error) ||
        !buffer_printf(out, error, ", %s %s: ", workload->replay ? "replay" : "workload",
                       workload->replay ? head->replay : head->workload))
        return false;
    if (workload->replay) return buffer_append_text(out, "as it was recorded\n", error);
    if (params->rate > 0) return buffer_printf(out, error, "%g arrivals a second\n", params->rate);
    return buffer_printf(out, error, "%u clients\n", params->n_clients);
}

static bool print_counts(const LoadReport *report, Buffer *out, Error *error)
{
    return buffer_printf(out, error,
                         "%" PRIu64 " requests: %" PRIu64 " answered, %" PRIu64 " rejected, %" PRIu64
                         " failed, %" PRIu64 " timed out; %.2f s, at most %u at once\n",
                         report->n_sent, report->n_answered, report->n_rejected, report->n_failed, report->n_timed_out,
                         report->seconds, report->peak_streams) &&
           buffer_printf(out, error,
                         "tokens: %" PRIu64 " of prompts, %" PRIu64 " of them cached; %" PRIu64 " of answers\n",
                         report->prompt_tokens, report->cached_tokens, report->answer_tokens) &&
           buffer_printf(out, error, "a second: %.2f requests, %.1f tokens of prompts, %.1f of answers\n",
                         per_second(report, report->n_answered), per_second(report, report->prompt_tokens),
                         per_second(report, report->answer_tokens)) &&
           (!report->n_without_usage ||
            buffer_printf(out, error, "%" PRIu64 " answers came without usage: their events are counted as tokens\n",
                          report->n_without_usage)) &&
           (!report->n_resent ||
            buffer_printf(out, error, "%" PRIu64 " requests went out again: their connection, which had idled, broke\n",
                          report->n_resent));
}

static bool print_error(const LoadError *row, bool is_first, Buffer *out, Error *error)
{
    const char *text = row->error.text;
    return buffer_printf(out, error, "%s%" PRIu64 " times: ", is_first ? "\n" : "", row->count) &&
           buffer_append_clean(out, text, strlen(text), error) && buffer_append_text(out, "\n", error);
}

bool report_write_text(const ReportHead *head, const LoadParams *params, LoadReport *report, Buffer *out, Error *error)
{
    Times times[N_TIMES];
    summarize(report, times);
    bool ok = print_head(head, params, out, error) && print_counts(report, out, error) &&
              buffer_printf(out, error, "\n%-16s %9s %9s %9s %9s %9s %9s %9s\n", "milliseconds", "n", "mean", "min",
                            "p50", "p90", "p99", "max");
    for (int i = 0; ok && i < N_TIMES; i++) {
        const SampleSummary *found = &times[i].found;
        ok = buffer_printf(out, error, "%-16s %9" PRIu64 " %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", times[i].title,
                           found->n, found->mean / 1e3, found->min / 1e3, found->p50 / 1e3, found->p90 / 1e3,
                           found->p99 / 1e3, found->max / 1e3);
    }
    for (uint32_t i = 0; ok && i < report->n_errors; i++) ok = print_error(&report->errors[i], i == 0, out, error);
    return ok;
}
