/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/calibrate_impl.h"

#include "base/clock.h"
#include "base/threads.h"
#include "engine/eval/gates.h"
#include "engine/select/roles.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAVE_USEC = 1000000,
    SPARE_SEQUENCES = 8,
    MIN_TAIL_TOKENS = 64, /* a prompt beyond what every head sees: less would rank nothing */
    BATCH_ROWS = 1024,
    DEVICE_BATCH_ROWS = 8192,
    LOGIT_ROWS = 320,
};

/* ---- engines ---- */

bool calibrate_open(Calibrate *calibrate, bool is_with_roles, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    EngineParams params = *p->engine;
    PolicySpec longest;
    AttnPolicy policies[2] = {{.name = "dense"}, {.name = "dense", .roles = &calibrate->roles}};
    policies[1].sink = p->sink;
    policies[1].recent_decode = p->recent;
    policies[1].recent_prefill = p->recent_prefill;
    calibrate->roles = (HeadRoles){.name = CALIBRATE_ROLES, .streams = calibrate->found.streams};
    params.context = p->length;
    for (uint32_t i = 0; calibrate->n_specs && i < p->n_lengths; i++)
        if (p->lengths[i] > params.context) params.context = p->lengths[i];
    params.max_sequences = p->per_haystack + p->max_open + SPARE_SEQUENCES;
    bool is_host = !params.device || params.device->is_host;
    params.max_batch_rows = is_host ? BATCH_ROWS : DEVICE_BATCH_ROWS;
    if (is_with_roles && !is_host) params.attention = policy_specs_longest(p->policies, &longest);
    params.max_logit_rows = LOGIT_ROWS;
    params.policies = policies;
    params.n_policies = is_with_roles ? 2 : 1;
    return engine_open(&params, &calibrate->engine, error);
}

void calibrate_close(Calibrate *calibrate)
{
    engine_close(calibrate->engine);
    calibrate->engine = NULL;
}

/* ---- what was asked for ---- */

/* Calls add with each of the list's entries. */
static bool split_list(const char *list, bool (*add)(Calibrate *calibrate, const char *text, size_t n, Error *error),
                       Calibrate *calibrate, Error *error)
{
    for (const char *at = list; at;) {
        size_t n = strcspn(at, ",");
        if (!add(calibrate, at, n, error)) return false;
        at = at[n] ? at + n + 1 : NULL;
    }
    return true;
}

static bool add_task(Calibrate *calibrate, const char *text, size_t n, Error *error)
{
    TaskSpec *task = &calibrate->tasks[calibrate->n_tasks];
    if (calibrate->n_tasks == CALIBRATE_MAX_TASKS)
        return error_set_param(error, ERR_INVALID, "tasks", "more than %d tasks", CALIBRATE_MAX_TASKS);
    if (!task_parse(text, n, task, error)) return false;
    for (uint32_t i = 0; i < calibrate->n_tasks; i++)
        if (!strcmp(calibrate->tasks[i].text, task->text))
            return error_set_param(error, ERR_INVALID, "tasks", "'%s' comes twice", task->text);
    calibrate->n_tasks++;
    return true;
}

static bool add_spec(Calibrate *calibrate, const char *text, size_t n, Error *error)
{
    PolicySpec *spec = &calibrate->specs[calibrate->n_specs];
    if (calibrate->n_specs == CALIBRATE_MAX_POLICIES)
        return error_set_param(error, ERR_INVALID, "policies", "more than %d policies", CALIBRATE_MAX_POLICIES);
    if (!policy_spec_parse(text, n, spec, error)) return false;
    if (!strcmp(spec->text, "dense")) return true; /* what the others are compared with */
    if (spec->roles[0] && strcmp(spec->roles, CALIBRATE_ROLES) != 0)
        return error_set_param(error, ERR_INVALID, "policies", "'%s': the only roles are '%s'", spec->text,
                               CALIBRATE_ROLES);
    for (uint32_t i = 0; i < calibrate->n_specs; i++)
        if (!strcmp(calibrate->specs[i].text, spec->text))
            return error_set_param(error, ERR_INVALID, "policies", "'%s' comes twice", spec->text);
    calibrate->n_specs++;
    return true;
}

static bool check_tokens(const char *name, uint32_t tokens, uint32_t least, Error *error)
{
    if (tokens % KV_PAGE_TOKENS == 0 && tokens >= least) return true;
    return error_set_param(error, ERR_INVALID, name, "'%s' is %u tokens; it has to be a multiple of %d, at least %u",
                           name, tokens, KV_PAGE_TOKENS, least);
}

static bool check_params(const CalibrateParams *p, Error *error)
{
    if (!check_tokens("sink", p->sink, 0, error) || !check_tokens("recent", p->recent, KV_PAGE_TOKENS, error) ||
        !check_tokens("recent_prefill", p->recent_prefill, p->recent, error))
        return false;
    uint64_t seen = (uint64_t)p->sink + p->recent + MIN_TAIL_TOKENS;
    if (p->length < seen)
        return error_set_param(error, ERR_INVALID, "length",
                               "length: prompts of %u tokens show nothing of heads that see %" PRIu64, p->length,
                               seen - MIN_TAIL_TOKENS);
    return true;
}

static uint64_t hash_text(const char *text, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) hash = rng_mix(hash ^ (uint8_t)text[i]);
    return hash;
}

/* What two runs must have in common for one to go on where the other ended. */
static cJSON *make_method(const CalibrateParams *p, bool is_raw, bool is_on_device)
{
    char seed[24], gates[24];
    cJSON *method = cJSON_CreateObject();
    snprintf(seed, sizeof seed, "%" PRIu64, p->seed);
    snprintf(gates, sizeof gates, "%016" PRIx64, p->gates ? hash_text(p->gates, p->n_gates_bytes) : 0);
    bool ok =
        method && cJSON_AddStringToObject(method, "ranked_by", p->gates ? "gates" : "loss of answers") &&
        (!p->gates || cJSON_AddStringToObject(method, "gates", gates)) &&
        cJSON_AddStringToObject(method, "kv_type", p->kv_type) &&
        (!is_on_device || cJSON_AddStringToObject(method, "device", "gpu")) &&
        cJSON_AddStringToObject(method, "tasks", p->tasks) && cJSON_AddNumberToObject(method, "length", p->length) &&
        cJSON_AddNumberToObject(method, "prompts", p->n_prompts) &&
        cJSON_AddNumberToObject(method, "per_haystack", p->per_haystack) &&
        cJSON_AddStringToObject(method, "seed", seed) &&
        cJSON_AddStringToObject(method, "template", is_raw ? "plain" : "chat") &&
        cJSON_AddNumberToObject(method, "sink", p->sink) && cJSON_AddNumberToObject(method, "recent", p->recent) &&
        cJSON_AddNumberToObject(method, "recent_prefill", p->recent_prefill);
    if (ok) return method;
    cJSON_Delete(method);
    return NULL;
}

static bool read_gates(Calibrate *calibrate, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    Calibration *found = &calibrate->found;
    if (!p->gates) return true;
    found->gates = malloc((size_t)found->n_layers * found->n_kv_heads * sizeof *found->gates);
    if (!found->gates) return error_set(error, ERR_NO_MEMORY, "no memory for the gates");
    return gates_parse(p->gates, p->n_gates_bytes, found->n_layers, found->n_kv_heads, found->gates, error);
}

static bool open_found(Calibrate *calibrate, bool is_raw, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    Calibration *found = &calibrate->found;
    const ModelShape *shape = engine_shape(calibrate->engine);
    cJSON *method = make_method(p, is_raw, engine_is_on_device(calibrate->engine));
    if (!method) return error_set(error, ERR_NO_MEMORY, "no memory for the calibration");
    if (!calibration_init(found, shape->n_layers, shape->n_kv_heads, p->n_prompts * calibrate->n_tasks, method, error))
        return false;
    found->model = engine_model_fingerprint(calibrate->engine);
    found->sparsity = p->sparsity;
    found->machine = calibrate->machine;
    found->sink = p->sink;
    found->recent = p->recent;
    found->recent_prefill = p->recent_prefill;
    for (uint32_t i = 0; i < shape->n_layers * shape->n_kv_heads; i++)
        found->is_ranked[i] = !shape_layer_window(shape, i / shape->n_kv_heads);
    return read_gates(calibrate, error) && file_check_replace(p->output, error) &&
           file_lock(p->output, &calibrate->lock, error) && calibration_load(p->output, found, error);
}

static bool prepare(Calibrate *calibrate, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    if (!check_params(p, error) || !split_list(p->tasks, add_task, calibrate, error) ||
        !split_list(p->policies, add_spec, calibrate, error) || !calibrate_open(calibrate, false, error))
        return false;
    const Engine *engine = calibrate->engine;
    const ChatTemplate *chat = p->is_raw ? NULL : engine_chat_template(engine);
    snprintf(calibrate->machine, sizeof calibrate->machine, "%s, %u threads", engine_device_name(engine),
             p->engine->n_threads ? p->engine->n_threads : threads_available());
    return prompt_frame_init(engine_tokenizer(engine), chat, &calibrate->frame, error) &&
           open_found(calibrate, !chat, error);
}

bool calibrate_new(const CalibrateParams *params, Calibrate **ret_calibrate, Error *error)
{
    Calibrate *calibrate = calloc(1, sizeof *calibrate);
    if (!calibrate) return error_set(error, ERR_NO_MEMORY, "no memory to begin with");
    calibrate->params = *params;
    calibrate->lock = FILE_UNLOCKED;
    if (!prepare(calibrate, error)) {
        calibrate_free(calibrate);
        return false;
    }
    *ret_calibrate = calibrate;
    return true;
}

void calibrate_free(Calibrate *calibrate)
{
    if (!calibrate) return;
    calibrate_close(calibrate);
    prompt_frame_done(&calibrate->frame);
    calibration_done(&calibrate->found);
    file_unlock(&calibrate->lock);
    free(calibrate);
}

/* ---- the work ---- */

bool calibrate_step(Calibrate *calibrate, double work, Error *error)
{
    const CalibrateParams *p = &calibrate->params;
    uint64_t now_usec = clock_now_usec();
    calibrate->done += work;
    if (p->progress) p->progress(p->progress_arg, calibrate->done / calibrate->whole);
    if (now_usec - calibrate->saved_usec < SAVE_USEC) return true;
    calibrate->saved_usec = now_usec;
    return calibration_save(&calibrate->found, p->output, error);
}

static double due_work(const Calibrate *calibrate)
{
    const Calibration *found = &calibrate->found;
    const CalibrateParams *p = &calibrate->params;
    double work = 2.0 * PROMPT_WORK * found->n_prompts;
    for (uint32_t head = 0; head < found->n_layers * found->n_kv_heads && !found->gates; head++)
        for (uint32_t i = 0; i < found->n_prompts; i++)
            work += found->is_ranked[head] && isnan(found->losses[(size_t)head * found->n_prompts + i]);
    return work + (double)PROMPT_WORK * found->n_prompts * p->n_lengths * calibrate->n_specs;
}

static bool choose(Calibrate *calibrate, Error *error)
{
    Calibration *found = &calibrate->found;
    uint32_t n = found->n_layers * found->n_kv_heads;
    double *scores = malloc(n * sizeof *scores);
    if (!scores) return error_set(error, ERR_NO_MEMORY, "no memory for the scores of %u heads", n);
    calibration_scores(found, scores);
    bool ok = heads_choose(scores, n, found->sparsity, found->streams, error);
    free(scores);
    return ok;
}

static bool run_all(Calibrate *calibrate, Error *error)
{
    if (!calibrate->found.gates && !calibrate_rank(calibrate, error)) return false;
    if (!choose(calibrate, error)) return false;
    calibrate_close(calibrate);
    if (!calibrate_open(calibrate, true, error) || !calibrate_check(calibrate, error) ||
        !calibrate_crossover(calibrate, error))
        return false;
    calibrate->found.is_complete = true;
    return true;
}

bool calibrate_run(Calibrate *calibrate, Error *error)
{
    Error of_saving;
    calibrate->whole = due_work(calibrate);
    /* What cannot be written at the end is better known at the beginning. */
    bool ok = calibration_save(&calibrate->found, calibrate->params.output, error) && run_all(calibrate, error);
    if (!calibration_save(&calibrate->found, calibrate->params.output, &of_saving) && ok) {
        *error = of_saving;
        ok = false;
    }
    return ok;
}

const Calibration *calibrate_found(const Calibrate *calibrate)
{
    return &calibrate->found;
}
