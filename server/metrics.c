/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics.h"
#include "server/json_out.h"

#include <stdio.h>
#include <string.h>

enum { LABEL_BYTES = 256 };

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

#define SHARES                                                                                                         \
    {                                                                                                                  \
        0.0001, 0.0003, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9                 \
    }

static const HistogramInfo histograms[METRICS_HISTOGRAMS] = {
    [METRICS_TTFT] = {"vllm:time_to_first_token_seconds", "From arrival to the first token.", SECONDS},
    [METRICS_INTER_TOKEN] = {"vllm:inter_token_latency_seconds", "Between two tokens of a choice.", SECONDS},
    [METRICS_E2E] = {"vllm:e2e_request_latency_seconds", "From arrival to the last token.", SECONDS},
    [METRICS_QUEUE] = {"vllm:request_queue_time_seconds", "Waiting for the engine.", SECONDS},
    [METRICS_PREFILL] = {"vllm:request_prefill_time_seconds", "Reading the prompt.", SECONDS},
    [METRICS_DECODE] = {"vllm:request_decode_time_seconds", "Writing the answer.", SECONDS},
    [METRICS_PROMPT_TOKENS] = {"vllm:request_prompt_tokens", "Tokens of a prompt.", TOKENS},
    [METRICS_GENERATION_TOKENS] = {"vllm:request_generation_tokens", "Tokens of an answer.", TOKENS},
    [METRICS_MISSING_MASS] = {"longwave_attention_missing_mass",
                              "Share of attention that an answer's rows left out, estimated from probes.", SHARES},
    [METRICS_AUDITED_MASS] = {"longwave_attention_audited_missing_mass",
                              "The same as audited rows found it by dense attention.", SHARES},
    [METRICS_AUDITED_KL] = {"longwave_attention_audited_kl_nats",
                            "Divergence of an answer's audited rows from dense attention.", SHARES},
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

void metrics_count_outcome(Metrics *metrics, RequestOutcome outcome)
{
    metrics->outcomes[outcome]++;
}

/* ---- the page ---- */

typedef struct Page {
    JsonOut out;
    const MetricsInfo *info;
} Page;

static void head(Page *page, const char *name, const char *type, const char *help)
{
    json_rawf(&page->out, "# HELP %s ", name);
    json_raw(&page->out, help);
    json_rawf(&page->out, "\n# TYPE %s %s\n", name, type);
}

/* Prometheus knows the escapes of JSON for backslash and quote, but none for other control characters: those are
 * blanks. */
static void label_text(Page *page, const char *text)
{
    char plain[LABEL_BYTES];
    snprintf(plain, sizeof plain, "%s", text);
    for (char *at = plain; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F) *at = ' ';
    json_string(&page->out, plain);
}

/* name{model_name=...,engine="0" without the closing brace. */
static void labels(Page *page, const char *name)
{
    json_rawf(&page->out, "%s{model_name=", name);
    label_text(page, page->info->model);
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

/* One value of a name with a label of its own. */
static void labelled(Page *page, const char *name, const char *label, const char *word, double number)
{
    labels(page, name);
    json_rawf(&page->out, ",%s=\"%s\"", label, word);
    value(page, number);
}

static void write_histogram(Page *page, const HistogramInfo *info, const Histogram *histogram)
{
    char name[80], part[96];
    snprintf(name, sizeof name, "%s", info->name);
    snprintf(part, sizeof part, "%s_bucket", name);
    head(page, name, "histogram", info->help);
    uint64_t below = 0;
    for (size_t i = 0; i < METRICS_MAX_BUCKETS && info->bound[i] > 0; i++) {
        char bound[32];
        below += histogram->bucket[i];
        snprintf(bound, sizeof bound, "%g", info->bound[i]);
        labelled(page, part, "le", bound, (double)below);
    }
    labelled(page, part, "le", "+Inf", (double)histogram->count);
    snprintf(part, sizeof part, "%s_sum", name);
    labels(page, part);
    value(page, histogram->sum);
    snprintf(part, sizeof part, "%s_count", name);
    labels(page, part);
    value(page, (double)histogram->count);
}

/* ---- of the engine ---- */

typedef enum StatKind { STAT_U32, STAT_U64 } StatKind;

typedef struct StatRow {
    const char *name, *type, *help;
    StatKind kind;
    size_t offset; /* in EngineStats */
} StatRow;

#define U32(member) STAT_U32, offsetof(EngineStats, member)
#define U64(member) STAT_U64, offsetof(EngineStats, member)

static const StatRow stat_rows[] = {
    {"vllm:num_requests_running", "gauge", "Sequences that the engine computes.", U32(running)},
    {"vllm:num_requests_waiting", "gauge", "Sequences that wait for the engine.", U32(waiting)},
    {"vllm:num_preemptions_total", "counter", "Sequences that gave up their pages for others.", U64(preempted)},
    {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", U64(prefix_queried_tokens)},
    {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", U64(prefix_hit_tokens)},
    {"vllm:prompt_tokens_total", "counter", "Prompt tokens read or found.", U64(prompt_tokens)},
    {"vllm:generation_tokens_total", "counter", "Tokens written.", U64(generated_tokens)},
    {"vllm:corrupted_requests_total", "counter", "Requests with non-finite logits.", U64(non_finite)},
    {"longwave_engine_steps_total", "counter", "Finished engine steps.", U64(steps)},
    {"longwave_requests_cancelled_total", "counter", "Requests that the engine stopped early.", U64(cancelled)},
    {"longwave_requests_finished_total", "counter", "Requests that the engine finished.", U64(finished)},
    {"longwave_requests_failed_total", "counter", "Requests that failed in the engine by its own fault.", U64(failed)},
    {"longwave_requests_refused_total", "counter", "Requests that the engine could not do as they were asked for.",
     U64(refused)},
    {"longwave_kv_tokens", "gauge", "Tokens that the used KV memory could hold.", U64(kv_tokens_used)},
    {"longwave_kv_tokens_limit", "gauge", "Tokens that the KV memory can hold.", U64(kv_tokens_total)},
    {"longwave_kv_limit_bytes", "gauge", "Bytes of KV memory.", U64(kv_bytes_total)},
    {"longwave_prefix_cache_pages", "gauge", "Pages that the prefix cache owns or shares.", U32(prefix_pages)},
    {"longwave_prefix_cache_nodes", "gauge", "Nodes of the prefix cache's tree.", U32(prefix_nodes)},
    {"longwave_prefix_cache_evicted_pages_total", "counter", "Pages that the prefix cache gave up for others.",
     U64(prefix_evicted_pages)},
    {"longwave_kv_idle_bytes", "gauge", "Bytes of KV memory that only the prefix cache holds.", U64(kv_bytes_idle)},
    {"longwave_swap_bytes", "gauge", "Copies of pages of preempted sequences.", U64(swap_bytes)},
    {"longwave_swap_out_bytes_total", "counter", "Bytes of pages copied out at preemption.", U64(swapped_out_bytes)},
    {"longwave_swap_in_bytes_total", "counter", "Bytes of pages copied back.", U64(swapped_in_bytes)},
};

static double read_stat(const EngineStats *engine, const StatRow *row)
{
    const char *at = (const char *)engine + row->offset;
    return row->kind == STAT_U32 ? (double)*(const uint32_t *)at : (double)*(const uint64_t *)at;
}

static void write_pages(Page *page, const EngineStats *engine, const char *place)
{
    static const char *const kinds[STATS_KV_KINDS] = {"full", "stream", "window"};
    head(page, "longwave_kv_pages", "gauge", "Pages in use, by pool and place.");
    for (size_t i = 0; i < STATS_KV_KINDS + 1; i++) {
        labels(page, "longwave_kv_pages");
        json_rawf(&page->out, ",pool=\"%s\",place=\"%s\"", i < STATS_KV_KINDS ? kinds[i] : "image", place);
        value(page, i < STATS_KV_KINDS ? engine->kv_pages_of[i] : engine->kv_images);
    }
    head(page, "longwave_kv_bytes", "gauge", "KV memory in use, by place.");
    labelled(page, "longwave_kv_bytes", "place", place, (double)engine->kv_bytes_used);
}

static void write_phases(Page *page, const EngineStats *engine)
{
    head(page, "longwave_step_seconds_total", "counter", "Time of the engine's work, by phase.");
    labelled(page, "longwave_step_seconds_total", "phase", "prefill", (double)engine->prefill_usec / 1e6);
    labelled(page, "longwave_step_seconds_total", "phase", "decode", (double)engine->decode_usec / 1e6);
    head(page, "longwave_steps_total", "counter", "Pieces of the engine's work, by phase.");
    labelled(page, "longwave_steps_total", "phase", "prefill", (double)engine->prefill_steps);
    labelled(page, "longwave_steps_total", "phase", "decode", (double)engine->decode_steps);
    head(page, "longwave_step_rows_total", "counter", "Tokens that went through the layers, by phase.");
    labelled(page, "longwave_step_rows_total", "phase", "prefill", (double)engine->prefill_rows);
    labelled(page, "longwave_step_rows_total", "phase", "decode", (double)engine->decode_rows);
    single(page, "longwave_digested_rows_total", "counter",
           "Decoded rows of which a device has told what sampling needs, without their logits.",
           (double)engine->digested_rows);
}

static void write_infos(Page *page)
{
    const MetricsInfo *info = page->info;
    head(page, "vllm:cache_config_info", "gauge", "The KV memory: tokens of a block, and how many there are.");
    labels(page, "vllm:cache_config_info");
    json_rawf(&page->out, ",block_size=\"%u\",num_gpu_blocks=\"%u\",cache_dtype=", info->page_tokens, info->n_pages);
    label_text(page, info->kv_type);
    value(page, 1);
    head(page, "vllm:lora_requests_info", "gauge", "Adapters in use: there are none.");
    labels(page, "vllm:lora_requests_info");
    json_raw(&page->out, ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"");
    value(page, (double)info->unix_seconds);
}

/* Where the engine computes. A GPU's pages are taken at the start, a host's as they are used. */
static void write_memory(Page *page, const EngineStats *engine)
{
    const MetricsInfo *info = page->info;
    const char *place = info->kv_on_gpu ? "gpu" : "host";
    const struct {
        const char *use;
        uint64_t bytes;
    } rows[] = {{"weights", info->weight_bytes},
                {"buffers", info->buffer_bytes},
                {"kv", info->kv_on_gpu ? engine->kv_bytes_total : engine->kv_bytes_used}};
    head(page, "longwave_memory_bytes", "gauge", "Memory of the place that computes, by use.");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        labels(page, "longwave_memory_bytes");
        json_rawf(&page->out, ",use=\"%s\",place=\"%s\"", rows[i].use, place);
        value(page, (double)rows[i].bytes);
    }
    head(page, "longwave_memory_size_bytes", "gauge", "Memory that there is in that place.");
    labelled(page, "longwave_memory_size_bytes", "place", place, (double)info->memory_bytes);
}

static void write_engine(Page *page, const EngineStats *engine, uint64_t now_usec)
{
    double idle = engine->last_step_usec && now_usec > engine->last_step_usec
                      ? (double)(now_usec - engine->last_step_usec) / 1e6
                      : 0;
    for (size_t i = 0; i < sizeof stat_rows / sizeof *stat_rows; i++)
        single(page, stat_rows[i].name, stat_rows[i].type, stat_rows[i].help, read_stat(engine, &stat_rows[i]));
    single(page, "vllm:kv_cache_usage_perc", "gauge", "Part of the KV memory in use, 0 to 1.",
           engine_stats_kv_usage(engine));
    single(page, "longwave_engine_idle_seconds", "gauge", "Since the last finished engine step.", idle);
    write_pages(page, engine, page->info->kv_on_gpu ? "gpu" : "host");
    write_phases(page, engine);
    write_memory(page, engine);
    write_infos(page);
}

/* ---- of the server ---- */

/* Under the names that every program has, which are without labels. */
static void write_process(Page *page)
{
    const ProcessStats *process = &page->info->process;
    const struct {
        const char *name, *type, *help;
        double number;
    } rows[] = {
        {"process_cpu_seconds_total", "counter", "Time of all threads.", process->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "Memory in use, mapped files too.", (double)process->resident_bytes},
        {"process_open_fds", "gauge", "Open descriptors.", (double)process->open_fds},
        {"process_max_fds", "gauge", "Descriptors that may be open.", (double)process->max_fds},
        {"process_start_time_seconds", "gauge", "When the server began.", (double)page->info->start_unix},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        head(page, rows[i].name, rows[i].type, rows[i].help);
        json_rawf(&page->out, "%s %.15g\n", rows[i].name, rows[i].number);
    }
    single(page, "longwave_heap_bytes", "gauge", "Memory allocated and not freed; the allocator keeps more.",
           (double)process->heap_bytes);
    head(page, "longwave_build_info", "gauge", "The version, and what computes.");
    labels(page, "longwave_build_info");
    json_raw(&page->out, ",version=\"" LW_VERSION "\",device=");
    label_text(page, page->info->device);
    value(page, 1);
}

/* Several kinds share a code: one line each code. */
static void write_rejected(Page *page, const Metrics *metrics)
{
    head(page, "longwave_requests_rejected_total", "counter", "Errors that clients were told, in streams too.");
    for (int kind = 1; kind < HTTP_ERR_COUNT; kind++) {
        const char *code = http_error_row(kind)->code;
        double n = 0;
        bool is_told = !code;
        for (int other = 1; other < HTTP_ERR_COUNT && code; other++) {
            if (strcmp(http_error_row(other)->code, code)) continue;
            is_told |= other < kind;
            n += (double)metrics->rejected[other];
        }
        if (!is_told) labelled(page, "longwave_requests_rejected_total", "reason", code, n);
    }
}

static void write_server(Page *page, const Metrics *metrics)
{
    static const char *const aborts[METRICS_ABORTS] = {
        [METRICS_GONE] = "client_gone",  [METRICS_ABORT] = "abort",     [METRICS_TIMEOUT] = "timeout",
        [METRICS_SHUTDOWN] = "shutdown", [METRICS_REFUSED] = "refused", [METRICS_FAILURE] = "failure"};
    static const char *const outcomes[OUTCOMES] = {
        [OUTCOME_DONE] = "done",       [OUTCOME_BAD_REQUEST] = "bad_request", [OUTCOME_REFUSED] = "refused",
        [OUTCOME_TIMEOUT] = "timeout", [OUTCOME_CANCELLED] = "cancelled",     [OUTCOME_FAILURE] = "failure"};
    head(page, "longwave_generation_requests_total", "counter",
         "Requests for chats and completions that are over, each once, by outcome.");
    for (size_t i = 0; i < OUTCOMES; i++)
        labelled(page, "longwave_generation_requests_total", "outcome", outcomes[i], (double)metrics->outcomes[i]);
    head(page, "vllm:request_success_total", "counter", "Finished choices.");
    labelled(page, "vllm:request_success_total", "finished_reason", "stop",
             (double)(metrics->finished[FINISH_STOP] + metrics->finished[FINISH_TOOL_CALLS]));
    labelled(page, "vllm:request_success_total", "finished_reason", "length",
             (double)(metrics->finished[FINISH_LENGTH] + metrics->finished[FINISH_GRAMMAR]));
    single(page, "longwave_tool_calls_total", "counter", "Calls of tools in finished choices.",
           (double)metrics->tool_calls);
    head(page, "longwave_requests_aborted_total", "counter", "Requests that did not come to their end, by reason.");
    for (size_t i = 0; i < METRICS_ABORTS; i++)
        labelled(page, "longwave_requests_aborted_total", "reason", aborts[i], (double)metrics->aborted[i]);
    write_rejected(page, metrics);
    head(page, "longwave_http_responses_total", "counter", "Answers by HTTP status.");
    for (unsigned i = 0; i < METRICS_MAX_STATUS; i++) {
        char code[16];
        if (!metrics->responses[i]) continue;
        snprintf(code, sizeof code, "%u", i);
        labelled(page, "longwave_http_responses_total", "code", code, (double)metrics->responses[i]);
    }
    single(page, "longwave_generations_open", "gauge", "Generation requests not yet answered.",
           metrics->open_generations);
    single(page, "longwave_requests_preparing", "gauge", "Requests whose body is read, tokenized or compiled.",
           page->info->n_preparing);
    single(page, "longwave_log_lines_lost_total", "counter", "Lines of the log that could not be written.",
           (double)page->info->log_lines_lost);
    single(page, "longwave_unknown_fields_total", "counter", "Request fields that are unknown and were ignored.",
           (double)metrics->unknown_fields);
    single(page, "longwave_grammar_compiles_total", "counter", "Grammars and schemas compiled, or tried.",
           (double)metrics->compiles);
    single(page, "longwave_grammar_compiles_waiting", "gauge", "Requests that wait for their turn to compile.",
           metrics->waiting_to_compile);
}

static void write_attention(Page *page, const AttentionStats *attention)
{
    const struct {
        const char *name, *help;
        uint64_t n;
    } rows[] = {
        {"longwave_attention_queries_total", "Queries of rows of answers, over layers and heads.",
         attention->n_queries},
        {"longwave_attention_keys_seen_total", "Keys that they saw.", attention->n_tokens},
        {"longwave_attention_keys_total", "Keys that they could have seen.", attention->n_context},
        {"longwave_attention_selections_total", "Lists of keys that were made anew, in part or in full.",
         attention->n_selections},
        {"longwave_attention_read_bytes_total", "Keys, values and bounds that rows of answers read.",
         attention->kv_bytes + attention->select_bytes},
        {"longwave_attention_context_bytes_total", "What dense attention would have read.", attention->context_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        single(page, rows[i].name, "counter", rows[i].help, (double)rows[i].n);
    head(page, "longwave_attention_stage_refreshes_total", "counter",
         "Lists for which this stage of their selection was run.");
    for (int i = 0; i < SELECT_MAX_STAGES; i++) {
        char stage[12];
        snprintf(stage, sizeof stage, "%d", i);
        labelled(page, "longwave_attention_stage_refreshes_total", "stage", stage, (double)attention->n_refreshes[i]);
    }
}

typedef struct AccountRow {
    const char *name, *type, *help;
    size_t offset; /* in Account, of an uint64_t */
} AccountRow;

static const AccountRow account_rows[] = {
    {"longwave_key_requests_total", "counter", "Requests that a key was charged for.", offsetof(Account, n_requests)},
    {"longwave_key_limited_total", "counter", "Requests over a limit of their key.", offsetof(Account, n_limited)},
    {"longwave_key_requests_open", "gauge", "Requests of a key that are under way.", offsetof(Account, n_open)},
    {"longwave_key_prompt_tokens_total", "counter", "Prompt tokens of a key.", offsetof(Account, n_prompt_tokens)},
    {"longwave_key_generation_tokens_total", "counter", "Tokens written for a key.",
     offsetof(Account, n_generated_tokens)},
};

/* One line for each name of the key file, which bounds them. */
static void write_accounts(Page *page)
{
    const Auth *auth = page->info->auth;
    const Account *account;
    for (size_t i = 0; auth && auth_account(auth, 0) && i < sizeof account_rows / sizeof *account_rows; i++) {
        const AccountRow *row = &account_rows[i];
        head(page, row->name, row->type, row->help);
        for (size_t k = 0; (account = auth_account(auth, k)); k++)
            labelled(page, row->name, "key", account->name,
                     (double)*(const uint64_t *)(const void *)((const char *)account + row->offset));
    }
}

bool metrics_write(const Metrics *metrics, const MetricsInfo *info, uint64_t now_usec, Buffer *out, Error *error)
{
    Page page = {.info = info};
    json_begin(&page.out, out);
    write_engine(&page, &metrics->engine, now_usec);
    write_process(&page);
    write_server(&page, metrics);
    write_attention(&page, &metrics->attention);
    write_accounts(&page);
    for (size_t i = 0; i < METRICS_HISTOGRAMS; i++) write_histogram(&page, &histograms[i], &metrics->histogram[i]);
    return json_end(&page.out, error);
}
