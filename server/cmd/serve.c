/* SPDX-License-Identifier: Apache-2.0 */
/* longwave serve: wires configuration, engine and server together. The socket is open before the model is loaded. */
#include "base/clock.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/slice.h"
#include "config/config.h"
#include "engine/select/roles.h"
#include "server/cmd/cmd.h"
#include "server/cmd/model_watch.h"
#include "server/cmd/open_device.h"
#include "server/cmd/try_model.h"
#include "server/process_stats.h"
#include "server/listen.h"
#include "server/server.h"
#include "server/service_manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { MAX_NAMES = 16, HELD_BODIES = 8, MAX_PASSES = 4, MIN_LOGIT_ROWS = 8, BLOCK_ROWS = 64 };
/* A reload may raise max_queue so far. */
enum { QUEUE_GROWTH = 4, QUEUE_LEAST = 256, QUEUE_MOST = 1 << 18 };
/* The loop works for a moment at a time, and nobody should wait for it behind threads that compute. */
enum { LOOP_SLICE_USEC = 100 };

typedef struct Serve {
    int argc;
    char **argv;
    Config config;     /* at the start */
    Config run_config; /* the same with what depends on the device */
    Device *device;
    uv_loop_t loop;
    uv_work_t load;
    Server *server;
    Engine *engine;
    ServedModel model;
    const char *names[MAX_NAMES];
    ServedPolicy policies[ROLES_MAX_POLICIES];
    AnswerStyle style;
    char alias[512], fingerprint[24];
    GgufWatch *watch; /* between loading and the begin of model_watch */
    ModelWatch model_watch;
    double load_fraction;
    Error load_error;
    bool is_loading, loaded, failed, has_socket_file;
} Serve;

/* alias may be several names, separated by commas. */
static bool split_names(Serve *serve, Error *error)
{
    const char *given = serve->config.alias ? serve->config.alias : engine_shape(serve->engine)->name;
    if (strlen(given) >= sizeof serve->alias)
        return error_set_param(error, ERR_INVALID, "alias", "alias has more than %zu bytes", sizeof serve->alias - 1);
    snprintf(serve->alias, sizeof serve->alias, "%s", given);
    char *rest = NULL;
    const char *separators = serve->config.alias ? "," : "";
    for (char *name = strtok_r(serve->alias, separators, &rest); name; name = strtok_r(NULL, separators, &rest)) {
        if (serve->model.n_names == MAX_NAMES)
            return error_set_param(error, ERR_INVALID, "alias", "alias has more than %d names", MAX_NAMES);
        serve->names[serve->model.n_names++] = name;
    }
    return serve->model.n_names || error_set_param(error, ERR_INVALID, "alias", "alias has no name in it");
}

/* Changes with the weights' origin and with this program (FNV-1a). */
static void make_fingerprint(Serve *serve, uint64_t bytes, int64_t modified)
{
    char text[512];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int n = snprintf(text, sizeof text, "%s|%llu|%lld|%s", engine_shape(serve->engine)->name, (unsigned long long)bytes,
                     (long long)modified, LW_VERSION);
    for (int i = 0; i < n && text[i]; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    snprintf(serve->fingerprint, sizeof serve->fingerprint, "fp_%016llx", (unsigned long long)hash);
}

static bool list_policies(Serve *serve, Error *error)
{
    const AttnPolicy *policy;
    uint32_t n = 0;
    for (; (policy = engine_policy(serve->engine, n)); n++) {
        if (n == ROLES_MAX_POLICIES)
            return error_set_param(error, ERR_TOO_LARGE, "roles", "more than %d attention policies",
                                   ROLES_MAX_POLICIES);
        serve->policies[n] = (ServedPolicy){policy->name, policy->roles ? policy->roles->name : NULL, policy};
    }
    serve->model.policies = (ServedPolicies){.list = serve->policies,
                                             .n = n,
                                             .fallback = engine_default_policy(serve->engine),
                                             .is_fixed = !serve->device->is_host,
                                             .has_baselines = serve->config.baselines,
                                             .trained_context = engine_shape(serve->engine)->train_context,
                                             .certified_from = engine_certified_from(serve->engine),
                                             .certified_tokens = engine_certified_tokens(serve->engine)};
    return true;
}

/* Only a warning: other users of the memory may leave, and what this engine does not touch costs nothing. */
static void compare_memory(const Engine *engine)
{
    uint64_t has = process_machine_bytes();
    uint64_t file = gguf_file_bytes(engine_gguf(engine)), kv = engine_kv_usage(engine).total_bytes;
    if (has && (file > has || kv > has - file))
        log_warn("the model file (%llu MiB) and host_memory (%llu MiB) together exceed this machine's %llu MiB",
                 (unsigned long long)(file >> 20), (unsigned long long)(kv >> 20), (unsigned long long)(has >> 20));
}

static void warn_of_four_bits(const char *kv_type)
{
    if (strstr(kv_type, "int4"))
        log_warn("kv_type '%s': four bits change what the model says, more or less by model (docs/measurements.md)",
                 kv_type);
}

static void tell_certificate(const Engine *engine)
{
    const Error *why_not = engine_certificate_error(engine);
    if (why_not) log_warn("attention is dense, the certificate beside the model is not followed: %s", why_not->text);
}

static bool describe_model(Serve *serve, Error *error)
{
    struct stat st;
    Engine *engine = serve->engine;
    int64_t modified = stat(serve->config.model, &st) ? clock_unix_seconds() : (int64_t)st.st_mtime;
    if (!split_names(serve, error) || !list_policies(serve, error)) return false;
    make_fingerprint(serve, gguf_file_bytes(engine_gguf(engine)), modified);
    serve->model.names = serve->names;
    serve->model.architecture = engine_shape(engine)->architecture;
    serve->model.fingerprint = serve->fingerprint;
    serve->model.size_bytes = gguf_file_bytes(engine_gguf(engine));
    serve->model.kv_type = serve->run_config.kv_type;
    serve->model.kv_on_gpu = engine_is_on_device(engine);
    serve->model.device = engine_device_name(engine);
    serve->model.weight_bytes = engine_memory(engine).weights;
    serve->model.buffer_bytes = engine_memory(engine).buffers;
    serve->model.memory_bytes = serve->device->is_host ? process_machine_bytes() : serve->device->total_bytes;
    serve->model.kv_page_tokens = KV_PAGE_TOKENS;
    serve->model.n_kv_pages = (uint32_t)(engine_kv_usage(engine).total_tokens / KV_PAGE_TOKENS);
    if (serve->device->is_host) compare_memory(engine);
    char text[160];
    if (open_device_cut_context(&serve->config, serve->device, engine, text, sizeof text)) log_warn("%s", text);
    warn_of_four_bits(serve->run_config.kv_type);
    tell_certificate(engine);
    serve->model.created_unix = modified;
    serve->model.context = engine_context(engine);
    serve->model.tokenizer = engine_tokenizer(engine);
    serve->model.chat_template = engine_chat_template(engine);
    if (engine_chat_template_error(engine))
        log_warn("chat template ignored: %s", engine_chat_template_error(engine)->text);
    serve->model.style = &serve->style;
    return answer_style_find(serve->model.chat_template, serve->model.tokenizer, serve->config.tool_format,
                             serve->config.reasoning_format, &serve->style, error);
}

static void on_load_progress(void *arg, double fraction)
{
    Serve *serve = arg;
    serve->load_fraction = fraction;
    server_tell_loading(serve->server, fraction);
}

/* While it is tried: weights may have to come from the disk, layer by layer. */
static void on_load_pulse(void *arg)
{
    Serve *serve = arg;
    server_tell_loading(serve->server, serve->load_fraction);
}

/* What follows once it is open. */
static bool begin_engine(Serve *serve, Error *error)
{
    return describe_model(serve, error) && gguf_watch_new(engine_gguf(serve->engine), &serve->watch, error) &&
           try_model(serve->engine, on_load_pulse, serve, error);
}

static bool open_engine(Serve *serve, Error *error)
{
    const Config *config = &serve->run_config;
    uint32_t max_batch = min_u32(config->max_batch, config->max_batch_tokens);
    uint32_t chunk = min_u32(config->prefill_chunk, config->max_batch_tokens);
    EngineParams params = {
        .model_path = serve->config.model,
        .context = serve->config.context,
        .max_sequences = max_batch + (config->audit != 0), /* an audit's own */
        .max_passes = MAX_PASSES,
        .audit_interval = config->audit,
        .max_batch_rows = chunk > max_batch ? chunk : max_batch,
        .max_logit_rows = max_batch > MIN_LOGIT_ROWS ? max_batch : MIN_LOGIT_ROWS,
        .n_threads = serve->config.threads,
        .roles = serve->config.roles,
        .attention = serve->config.attention,
        .world = 1,
        .progress = on_load_progress,
        .progress_arg = serve,
    };
    open_device_params(config, serve->device, &params);
    if (serve->device->is_host) { /* blocks of prompt rows that select go together; memory is taken where it is used */
        if (params.max_batch_rows < BLOCK_ROWS) params.max_batch_rows = BLOCK_ROWS;
        if (params.max_logit_rows < BLOCK_ROWS) params.max_logit_rows = BLOCK_ROWS;
    }
    if (!serve->device->is_host) params.kv_bytes = UINT64_MAX; /* the prefix cache has use for all of it */
    return kv_types_parse(config->kv_type, &params.kv_types, error) && engine_open(&params, &serve->engine, error);
}

static void on_load(uv_work_t *work)
{
    Serve *serve = work->data;
    Error *error = &serve->load_error, why_not;
    if (!open_device(&serve->config, &serve->run_config, &serve->device, &why_not, error)) return;
    if (why_not.code != ERR_NONE) log_info("the CPU computes: %s", why_not.text);
    bool is_open = open_engine(serve, error);
    if (!is_open && open_device_give_up(&serve->config, error, &serve->run_config, &serve->device)) {
        log_info("the CPU computes: %s", error->text);
        is_open = open_engine(serve, error);
    }
    serve->loaded = is_open && begin_engine(serve, error);
}

static uint32_t queue_capacity(uint32_t max_queue)
{
    uint32_t capacity = max_queue < QUEUE_MOST / QUEUE_GROWTH ? max_queue * QUEUE_GROWTH : QUEUE_MOST;
    return capacity > QUEUE_LEAST ? capacity : QUEUE_LEAST;
}

/* A restart finds out what the file is now. */
static void on_damage(void *arg, const Error *why)
{
    Serve *serve = arg;
    log_error("ending: %s", why->text);
    serve->failed = true;
    server_fail(serve->server, why);
}

static void on_loaded(uv_work_t *work, int status)
{
    (void)status; /* never cancelled */
    Serve *serve = work->data;
    Error *error = &serve->load_error;
    const Config *config = &serve->run_config;
    serve->is_loading = false;
    WorkerParams params = {
        .engine = serve->engine,
        .max_queue = queue_capacity(serve->config.max_queue),
        .max_queue_tokens = serve->config.max_queue_tokens,
        .max_batch = min_u32(config->max_batch, config->max_batch_tokens),
        .max_passes = MAX_PASSES,
        .prefill_chunk = min_u32(config->prefill_chunk, config->max_batch_tokens), /* its batches may have more rows */
        .max_stall_ms = serve->config.max_stall_ms,
        .max_swap_bytes = serve->config.swap_memory,
        .schedule = serve->config.schedule,
        .cache = serve->config.cache,
        .max_cache_bytes = serve->config.cache_memory,
        .session_dir = serve->config.session_dir,
    };
    if (serve->loaded && server_attach(serve->server, &serve->model, &params, error)) {
        log_info("ready: model '%s', context %u tokens, %s", serve->model.names[0], serve->model.context,
                 engine_device_name(serve->engine));
        serve->model_watch.on_damage = on_damage;
        serve->model_watch.arg = serve;
        model_watch_begin(&serve->model_watch, &serve->loop, serve->watch);
        serve->watch = NULL;
        return;
    }
    log_error("cannot serve '%s': %s", serve->config.model, error->text);
    serve->failed = true;
    uv_stop(&serve->loop);
}

/* ---- options that may change ---- */

static ServerLimits limits_of(const Config *config)
{
    return (ServerLimits){
        .max_queue = config->max_queue,
        .max_queue_tokens = config->max_queue_tokens,
        .max_output_tokens = config->max_output_tokens,
        .max_stall_ms = config->max_stall_ms,
        .request_timeout_ms = config->request_timeout_s * 1000,
        .log_prompts = config->log_prompts,
        .has_page = config->page,
    };
}

static ServerAccess access_of(const Config *config)
{
    return (ServerAccess){config->api_key_file, config->api_key, config->cors_origins, config->allowed_hosts};
}

static void warn_of_change(void *arg, const char *name, bool reloads)
{
    (void)arg;
    if (!reloads) log_warn("'%s' has changed, which takes a restart", name);
}

static void on_reload(void *arg)
{
    Serve *serve = arg;
    Config config;
    Error error;
    bool help;
    if (!cmd_load_config(CMD_SERVE, serve->argc, serve->argv, &config, &help, &error)) {
        log_error("nothing is reloaded: %s", error.text);
        return;
    }
    ServerLimits limits = limits_of(&config);
    ServerAccess access = access_of(&config);
    if (server_reload(serve->server, &limits, &access, &error)) {
        log_configure(config.log_level, config.log_format);
        config_compare(CMD_SERVE, &serve->config, &config, warn_of_change, NULL);
        log_info("reloaded: keys, limits and logging");
    } else {
        log_error("nothing is reloaded: %s", error.text);
    }
    config_done(&config);
}

/* ---- the process ---- */

static bool start_server(Serve *serve, Error *error)
{
    const Config *config = &serve->config;
    ServerParams params;
    server_defaults(&params);
    params.loop = &serve->loop;
    params.host = config->host;
    params.port = config->port;
    params.access = access_of(config);
    params.max_body_bytes = config->max_body;
    if (params.max_held_bytes < HELD_BODIES * config->max_body) params.max_held_bytes = HELD_BODIES * config->max_body;
    params.limits = limits_of(config);
    params.on_reload = on_reload;
    params.reload_arg = serve;
    params.drain_timeout_ms = config->drain_timeout_s * 1000;
    if (!service_take_socket(&params.listen_fd, error)) return false;
    if (!server_start(&params, &serve->server, error)) return false;
    serve->has_socket_file = params.listen_fd < 0;
    if (!server_watch_signals(serve->server, error)) return false;
    if (params.listen_fd >= 0)
        log_info("listening on the service manager's socket, port %u", server_port(serve->server));
    else if (server_port(serve->server))
        log_info("listening on http://%s:%u", config->host, server_port(serve->server));
    else
        log_info("listening on %s", config->host);
    return true;
}

/* A connection is a descriptor. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* the old limit serves, with fewer connections */
}

/* A load cannot be called off, may take minutes, and leaves nothing behind that counts. */
static void leave_load(const Serve *serve)
{
    log_info("ending: the model is still loading");
    if (serve->has_socket_file) listen_remove(serve->config.host);
    _exit(EXIT_SUCCESS);
}

static bool serve_run(Serve *serve, Error *error)
{
    int code = uv_loop_init(&serve->loop);
    if (code) return error_set(error, ERR_IO, "cannot make an event loop: %s", uv_strerror(code));
    raise_descriptor_limit();
    slice_set(LOOP_SLICE_USEC);
    bool ok = start_server(serve, error);
    if (ok) {
        serve->load.data = serve;
        serve->is_loading = !uv_queue_work(&serve->loop, &serve->load, on_load, on_loaded);
        uv_run(&serve->loop, UV_RUN_DEFAULT);
        if (serve->is_loading) leave_load(serve);
    }
    model_watch_stop(&serve->model_watch);
    server_free(serve->server);
    model_watch_done(&serve->model_watch);
    gguf_watch_free(serve->watch);
    engine_close(serve->engine);
    device_close(serve->device);
    uv_loop_close(&serve->loop);
    return ok;
}

int cmd_serve(int argc, char **argv)
{
    Error error;
    bool help = false;
    int status = 0;
    Serve *serve = calloc(1, sizeof *serve);
    if (!serve) {
        fputs("longwave serve: out of memory\n", stderr);
        return 1;
    }
    serve->argc = argc;
    serve->argv = argv;
    if (!cmd_load_config(CMD_SERVE, argc, argv, &serve->config, &help, &error)) {
        fprintf(stderr, "longwave serve: %s\n", error.text);
        free(serve);
        return 2;
    }
    log_configure(serve->config.log_level, serve->config.log_format);
    if (help) {
        config_print_help(CMD_SERVE, "longwave");
    } else if (!serve_run(serve, &error)) {
        fprintf(stderr, "longwave serve: %s\n", error.text);
        status = 1;
    }
    if (serve->failed) status = 1;
    config_done(&serve->config);
    free(serve);
    return status;
}
