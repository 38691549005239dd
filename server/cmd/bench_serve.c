/* SPDX-License-Identifier: Apache-2.0 */
/* longwave bench serve: what clients of a running server feel under load. */
#include "server/cmd/cmd.h"
#include "server/cmd/progress.h"
#include "server/load/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

enum { DEFAULT_REQUESTS = 100, CLOSED_LOOP_CLIENTS = 16, MAX_REPORT_BYTES = 1 << 20, MAX_NAME_BYTES = 4096 };

#define MIN_RATE 1e-6 /* dialogues a second */

static const char *const workload_names[] = {
    [WORKLOAD_RANDOM] = "random", [WORKLOAD_PREFIX] = "prefix", [WORKLOAD_AGENT] = "agent"};

static bool read_lengths(const char *flag, const char *text, uint32_t min, uint32_t max, Lengths *ret_lengths,
                         Error *error)
{
    return lengths_parse(text, min, max, ret_lengths, error) || error_prefix(error, "%s", flag);
}

static bool read_workload(const Config *config, WorkloadParams *params, Error *error)
{
    *params = (WorkloadParams){.kind = config->workload,
                               .n_prefixes = config->prefixes,
                               .is_chat = config->endpoint == ENDPOINT_CHAT,
                               .ignores_eos = config->ignore_eos,
                               .seed = config->seed};
    if (config->replay && config->rate > 0)
        return error_set(error, ERR_INVALID, "--replay has its own times: --rate does not go with it");
    if (config->rate > 0 && config->rate < MIN_RATE)
        return error_set_param(error, ERR_INVALID, "rate", "--rate must be 0 or at least %g", MIN_RATE);
    /* A run of the same requests would find them in the server's cache. */
    uint32_t random;
    if (!config->has_seed && getrandom(&random, sizeof random, 0) != sizeof random)
        return error_set(error, ERR_IO, "the system gives no random numbers");
    if (!config->has_seed) params->seed = random;
    return read_lengths("--prompt-tokens", config->prompt_tokens, 1, REPLAY_MAX_TOKENS, &params->prompt, error) &&
           read_lengths("--answer-tokens", config->answer_tokens, 1, REPLAY_MAX_TOKENS, &params->answer, error) &&
           read_lengths("--prefix-tokens", config->prefix_tokens, 1, REPLAY_MAX_TOKENS, &params->prefix, error) &&
           read_lengths("--tool-tokens", config->tool_tokens, 1, REPLAY_MAX_TOKENS, &params->tool, error) &&
           read_lengths("--turns", config->turns, 1, 10000, &params->turns, error) &&
           read_lengths("--think-ms", config->think_ms, 0, 3600 * 1000, &params->think_ms, error);
}

/* As the Host header and messages have it. */
static void server_text(const Config *config, char *text, size_t room)
{
    bool is_unix = !strncmp(config->host, "unix:", 5), is_v6 = !is_unix && strchr(config->host, ':');
    if (is_unix)
        snprintf(text, room, "%s", config->host);
    else
        snprintf(text, room, "%s%s%s:%u", is_v6 ? "[" : "", config->host, is_v6 ? "]" : "", config->port);
}

static uint64_t request_limit(const Config *config)
{
    if (config->requests) return config->requests;
    return config->duration_s || config->replay ? UINT64_MAX : DEFAULT_REQUESTS;
}

static bool write_report(const Config *config, const ReportHead *head, const LoadParams *params, LoadReport *report,
                         Error *error)
{
    Buffer out;
    buffer_init(&out, MAX_REPORT_BYTES);
    bool ok = config->json ? report_write_json(head, params, report, &out, error)
                           : report_write_text(head, params, report, &out, error);
    if (ok && (fwrite(out.data, 1, out.n, stdout) != out.n || fflush(stdout)))
        ok = error_set(error, ERR_IO, "cannot write the report");
    buffer_done(&out);
    return ok;
}

/* What failed is in the report; that something did is an error too. */
static bool check_outcome(const LoadReport *report, Error *error)
{
    uint64_t n_bad = report->n_failed + report->n_timed_out;
    if (n_bad == 0 && report->n_answered) return true;
    if (report->n_sent == 0)
        return error_set(error, ERR_INVALID, "nothing was sent: the first request is due too late");
    return error_set(error, ERR_IO, "of %llu requests %llu failed, %llu took too long, %llu were rejected",
                     (unsigned long long)report->n_sent, (unsigned long long)report->n_failed,
                     (unsigned long long)report->n_timed_out, (unsigned long long)report->n_rejected);
}

static uint32_t count_clients(const Config *config)
{
    if (config->clients) return config->clients;
    return config->rate > 0 || config->replay ? LOAD_MAX_CLIENTS : CLOSED_LOOP_CLIENTS;
}

static bool run(const Config *config, const WorkloadParams *workload_params, LinkPeer *peer, const char *server,
                Error *error)
{
    Workload *workload;
    LoadReport report;
    Progress progress;
    if (!workload_new(workload_params, &workload, error)) return false;
    const LoadParams params = {.peer = peer,
                               .workload = workload,
                               .host = server,
                               .api_key = config->api_key,
                               .n_clients = count_clients(config),
                               .rate = config->rate,
                               .n_requests = request_limit(config),
                               .duration_usec =
                                   config->duration_s ? config->duration_s * UINT64_C(1000000) : UINT64_MAX,
                               .timeout_usec = config->request_timeout_s * UINT64_C(1000000),
                               .progress = progress_update,
                               .progress_arg = &progress};
    const ReportHead head = {server, workload_names[config->workload], config->replay};
    progress_begin(&progress, "asking");
    bool ok = load_run(&params, &report, error);
    progress_end(&progress);
    if (ok) {
        ok = write_report(config, &head, &params, &report, error) && check_outcome(&report, error);
        load_report_done(&report);
    }
    workload_free(workload);
    return ok;
}

/* A socket for each stream. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static bool find_server(const Config *config, uv_loop_t *loop, LinkPeer *peer, const char *server, Buffer *name,
                        Error *error)
{
    if (!link_peer_find(peer, loop, config->host, config->port, error)) return false;
    const uint64_t timeout_usec = config->request_timeout_s * UINT64_C(1000000);
    if (!config->alias) return load_find_model(peer, server, config->api_key, timeout_usec, name, error);
    const char *first = config->alias + strspn(config->alias, ",");
    return *first ? buffer_append(name, first, strcspn(first, ","), error)
                  : error_set_param(error, ERR_INVALID, "alias", "--alias has no name in it");
}

static bool bench_serve(const Config *config, WorkloadParams *params, Error *error)
{
    uv_loop_t loop;
    char server[512];
    Buffer name;
    LinkPeer *peer = calloc(1, sizeof *peer);
    if (!peer || uv_loop_init(&loop)) {
        free(peer);
        return error_set(error, ERR_NO_MEMORY, "no memory for connections");
    }
    buffer_init(&name, MAX_NAME_BYTES);
    server_text(config, server, sizeof server);
    raise_file_limit();
    signal(SIGPIPE, SIG_IGN);
    bool ok = find_server(config, &loop, peer, server, &name, error);
    params->model = name.data;
    ok = ok && run(config, params, peer, server, error);
    buffer_done(&name);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    free(peer);
    return ok;
}

static int start(const Config *config, Error *error)
{
    WorkloadParams params;
    Replay replay = {0};
    if (!read_workload(config, &params, error)) return 2;
    if (config->replay && !replay_load(config->replay, &replay, error)) return 2;
    if (config->replay) params.replay = &replay;
    bool ok = bench_serve(config, &params, error);
    replay_done(&replay);
    return ok ? 0 : 1;
}

/* Its text may be a server's. */
static void print_error(const Error *error)
{
    Buffer text;
    Error ignored;
    buffer_init(&text, MAX_REPORT_BYTES);
    bool ok = buffer_append_clean(&text, error->text, strlen(error->text), &ignored);
    fprintf(stderr, "longwave bench serve: %s\n", ok && text.n ? text.data : "no memory");
    buffer_done(&text);
}

int cmd_bench_serve(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_BENCH_SERVE, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave bench serve: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help)
        config_print_help(CMD_BENCH_SERVE, "longwave");
    else if ((status = start(&config, &error)))
        print_error(&error);
    config_done(&config);
    return status;
}
