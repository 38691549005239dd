/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/eval.h"

#include "base/clock.h"
#include "engine/eval/certify.h"
#include "engine/eval/files.h"
#include "engine/eval/policy_spec.h"
#include "engine/eval/words.h"
#include "engine/select/policy_check.h"
#include "engine/select/presets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_POLICIES = 48,
    MAX_TASKS = 32,
    ARENA_BLOCK = 65536,
    MAX_TEXT_BYTES = 256 << 20,
    SAVE_USEC = 5000000,
};

struct Eval {
    EvalParams params;
    Arena arena; /* of names and the summary */
    PolicySpec specs[MAX_POLICIES];
    EvalPolicy policies[MAX_POLICIES];
    bool is_interned[MAX_POLICIES];
    TaskSpec tasks[MAX_TASKS];
    uint32_t n_policies, n_tasks;
    PromptFrame frame;
    TokenList text;
    FileLock lock;         /* of the results' file */
    Crossovers crossovers; /* of params.calibration */
    Results results;
    SummaryRules rules;
    Summary summary;
    Report report;
    double done, whole; /* of the work, for the bar */
    uint64_t saved_usec;
};

/* Calls add with each of the list's entries. */
static bool split_list(const char *list, bool (*add)(Eval *eval, const char *text, size_t n, Error *error), Eval *eval,
                       Error *error)
{
    for (const char *at = list, *end; at; at = *end ? end + 1 : NULL) {
        end = strchr(at, ',');
        if (!end) end = at + strlen(at);
        if (!add(eval, at, (size_t)(end - at), error)) return false;
    }
    return true;
}

static bool add_task(Eval *eval, const char *text, size_t n, Error *error)
{
    if (eval->n_tasks == MAX_TASKS)
        return error_set_param(error, ERR_INVALID, "tasks", "more than %d tasks", MAX_TASKS);
    if (!task_parse(text, n, &eval->tasks[eval->n_tasks], error)) return false;
    for (uint32_t i = 0; i < eval->n_tasks; i++)
        if (!strcmp(eval->tasks[i].text, eval->tasks[eval->n_tasks].text))
            return error_set_param(error, ERR_INVALID, "tasks", "'%.*s' comes twice", (int)n, text);
    eval->n_tasks++;
    return true;
}

/* The engine was opened with a policy for each file of roles. */
static const AttnPolicy *find_roles(const Engine *engine, const char *name)
{
    const AttnPolicy *policy;
    for (PolicyId id = 0; (policy = engine_policy(engine, id)); id++)
        if (policy->roles && !strcmp(policy->roles->name, name)) return policy;
    return NULL;
}

static bool take_roles(const Eval *eval, PolicySpec *spec, Error *error)
{
    const AttnPolicy *from = find_roles(eval->params.engine, spec->roles);
    return policy_spec_take_roles(spec, from, from ? 1 : 0, error);
}

static bool add_policy(Eval *eval, const char *text, size_t n, Error *error)
{
    uint32_t i = eval->n_policies;
    PolicySpec *spec = &eval->specs[i];
    const char *rope = eval->params.rope;
    if (i == MAX_POLICIES)
        return error_set_param(error, ERR_INVALID, "policies", "more than %d policies", MAX_POLICIES);
    if (!policy_spec_parse(text, n, spec, error) || !take_roles(eval, spec, error)) return false;
    char *name = arena_alloc(&eval->arena, RESULTS_MAX_NAME), roles[24] = "";
    if (!name) return error_set(error, ERR_NO_MEMORY, "no memory for the policies");
    if (spec->roles[0]) snprintf(roles, sizeof roles, "#%016" PRIx64, spec->policy.roles->hash);
    int length = snprintf(name, RESULTS_MAX_NAME, "%s%s%s%s", spec->text, roles, rope ? "@" : "", rope ? rope : "");
    if (length >= RESULTS_MAX_NAME) return error_set_param(error, ERR_INVALID, "policies", "a name is too long");
    for (uint32_t j = 0; j < i; j++)
        if (!strcmp(eval->specs[j].text, spec->text)) {
            if (j == 0) return true; /* dense is always there */
            return error_set_param(error, ERR_INVALID, "policies", "'%s' comes twice", spec->text);
        }
    spec->policy.name = spec->text;
    eval->policies[i] = (EvalPolicy){name, 0};
    if (i > 0) {
        if (!policy_check(&spec->policy, error) ||
            !engine_policy_intern(eval->params.engine, &spec->policy, &eval->policies[i].id, error))
            return error_prefix(error, "policy '%s'", spec->text);
        eval->is_interned[i] = true;
    }
    eval->n_policies++;
    return true;
}

static bool make_text(Eval *eval, uint32_t n_tokens, Error *error)
{
    const EvalParams *p = &eval->params;
    Buffer text;
    Rng rng = rng_for(p->seed, UINT64_MAX);
    uint32_t longest = tok_max_piece_bytes(engine_tokenizer(p->engine));
    buffer_init(&text, MAX_TEXT_BYTES);
    bool ok = true;
    /* A token is at most so many bytes; much less text will do, and tok_encode takes it all. */
    size_t enough = (size_t)n_tokens * (longest < 16 ? longest : 16);
    if (p->text)
        ok = buffer_append(&text, p->text, p->n_text_bytes, error);
    else
        while (ok && text.n < enough) ok = words_prose(&rng, &text, error);
    for (size_t i = 0; ok && i < eval->frame.before.n && p->is_raw; i++)
        ok = token_list_push(&eval->text, eval->frame.before.ids[i], error);
    ok = ok && tok_encode(engine_tokenizer(p->engine), &(TokEncode){.text = text.data ? text.data : "", .n = text.n},
                          &eval->text, error);
    buffer_done(&text);
    if (ok && eval->text.n > n_tokens) eval->text.n = n_tokens;
    return ok;
}

static uint32_t longest_length(const EvalParams *params)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < params->n_lengths; i++)
        if (params->lengths[i] > longest) longest = params->lengths[i];
    return longest;
}

/* Of what rows are of, however much of it is used. One made from the seed is told by that. */
static uint64_t text_hash(const EvalParams *params)
{
    uint64_t hash = params->n_text_bytes;
    for (size_t i = 0; params->text && i < params->n_text_bytes; i++) hash = rng_mix(hash ^ (uint8_t)params->text[i]);
    return hash;
}

/* A number as long as one holds it. */
static bool add_seed(cJSON *identity, uint64_t seed)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    return seed < UINT64_C(1) << 53 ? cJSON_AddNumberToObject(identity, "seed", (double)seed) != NULL
                                    : cJSON_AddStringToObject(identity, "seed", text) != NULL;
}

/* What two measurements must have in common to be compared. Policies and tasks are in the keys. */
static cJSON *make_identity(const Eval *eval, Error *error)
{
    const EvalParams *p = &eval->params;
    cJSON *identity = cJSON_CreateObject();
    char model[32], text[32];
    snprintf(model, sizeof model, "%016" PRIx64, engine_model_fingerprint(p->engine));
    snprintf(text, sizeof text, "%016" PRIx64, text_hash(p));
    bool ok =
        identity && cJSON_AddStringToObject(identity, "model", model) &&
        cJSON_AddStringToObject(identity, "kv_type", p->kv_type) &&
        (!engine_is_on_device(p->engine) || cJSON_AddStringToObject(identity, "device", "gpu")) &&
        add_seed(identity, p->seed) && cJSON_AddNumberToObject(identity, "per_haystack", p->per_haystack) &&
        cJSON_AddStringToObject(identity, "prompts", p->is_raw ? "plain" : "chat") &&
        cJSON_AddStringToObject(identity, "question_rows", p->question_rows == ROWS_DECODE ? "decode" : "prefill") &&
        cJSON_AddNumberToObject(identity, "rows", p->n_rows) && cJSON_AddStringToObject(identity, "text", text);
    if (ok) return identity;
    cJSON_Delete(identity);
    error_set(error, ERR_NO_MEMORY, "no memory for the results");
    return NULL;
}

static bool open_results(Eval *eval, Error *error)
{
    const char *path = eval->params.results_path;
    if (path && !file_lock(path, &eval->lock, error)) return false;
    cJSON *identity = make_identity(eval, error);
    if (!identity) return false;
    bool ok = eval->params.results_path ? results_load(eval->params.results_path, identity, &eval->results, error)
                                        : results_new(identity, &eval->results, error);
    cJSON_Delete(identity);
    return ok;
}

static bool read_calibration(Eval *eval, Error *error)
{
    const EvalParams *p = &eval->params;
    const RolesModel model = {engine_shape(p->engine), engine_model_fingerprint(p->engine)};
    if (!p->calibration ||
        crossovers_parse(p->calibration, p->n_calibration_bytes, &model, &eval->arena, &eval->crossovers, error))
        return true;
    snprintf(error->param, sizeof error->param, "calibration");
    return false;
}

static bool open_frame(Eval *eval, Error *error)
{
    Engine *engine = eval->params.engine;
    const ChatTemplate *chat = engine_chat_template(engine);
    if (!eval->params.is_raw && !chat) eval->params.is_raw = true;
    return prompt_frame_init(engine_tokenizer(engine), eval->params.is_raw ? NULL : chat, &eval->frame, error);
}

static bool prepare(Eval *eval, Error *error)
{
    const EvalParams *p = &eval->params;
    uint32_t longest = longest_length(p);
    if (longest > engine_context(p->engine))
        return error_set_param(error, ERR_INVALID, "lengths", "%u tokens are more than the context of %u", longest,
                               engine_context(p->engine));
    if (p->trace_dir && (!p->recall_stride || !p->n_positions))
        return error_set_param(error, ERR_INVALID, "trace",
                               "trace: is of rows whose lists are examined: recall_stride and positions are 0");
    if (!open_frame(eval, error) || !make_text(eval, longest, error)) return false;
    if (p->n_positions && eval->text.n < 2 * (size_t)p->n_rows)
        return error_set_param(error, ERR_INVALID, "text", "text: has %zu tokens, too few for %u rows", eval->text.n,
                               p->n_rows);
    if (!add_policy(eval, "dense", strlen("dense"), error) || !split_list(p->policies, add_policy, eval, error))
        return false;
    return (!p->tasks || split_list(p->tasks, add_task, eval, error)) && read_calibration(eval, error) &&
           open_results(eval, error);
}

bool eval_new(const EvalParams *params, Eval **ret_eval, Error *error)
{
    Eval *eval = calloc(1, sizeof *eval);
    if (!eval) return error_set(error, ERR_NO_MEMORY, "no memory to begin with");
    eval->params = *params;
    eval->lock = FILE_UNLOCKED;
    eval->rules = (SummaryRules){.n_depths = params->n_depths,
                                 .least_dense = 0.6,
                                 .max_mean = CERTIFICATE_MAX_MEAN_LOSS,
                                 .max_worst = CERTIFICATE_MAX_WORST_LOSS};
    arena_init(&eval->arena, ARENA_BLOCK, SIZE_MAX);
    if (!prepare(eval, error)) {
        eval_free(eval);
        return false;
    }
    *ret_eval = eval;
    return true;
}

void eval_free(Eval *eval)
{
    if (!eval) return;
    for (uint32_t i = 0; i < eval->n_policies; i++)
        if (eval->is_interned[i]) engine_policy_release(eval->params.engine, eval->policies[i].id);
    prompt_frame_done(&eval->frame);
    token_list_done(&eval->text);
    results_done(&eval->results);
    crossovers_done(&eval->crossovers);
    file_unlock(&eval->lock);
    arena_done(&eval->arena);
    free(eval);
}

static bool save(const Eval *eval, Error *error)
{
    return !eval->params.results_path || results_save(&eval->results, eval->params.results_path, error);
}

static bool saved(void *arg, double fraction, Error *error)
{
    Eval *eval = arg;
    uint64_t now_usec = clock_now_usec();
    if (eval->params.progress) eval->params.progress(eval->params.progress_arg, (eval->done + fraction) / eval->whole);
    if (now_usec - eval->saved_usec < SAVE_USEC) return true;
    eval->saved_usec = now_usec;
    return save(eval, error);
}

static EvalRun run_of(Eval *eval)
{
    const EvalParams *p = &eval->params;
    return (EvalRun){.engine = p->engine,
                     .results = &eval->results,
                     .policies = eval->policies,
                     .n_policies = eval->n_policies,
                     .frame = &eval->frame,
                     .tasks = eval->tasks,
                     .n_tasks = eval->n_tasks,
                     .lengths = p->lengths,
                     .n_lengths = p->n_lengths,
                     .n_questions = p->n_questions,
                     .per_haystack = p->per_haystack,
                     .first_haystack = p->first_haystack,
                     .max_open = p->max_open,
                     .question_rows = p->question_rows,
                     .seed = p->seed,
                     .text = eval->text.ids,
                     .n_text = (uint32_t)eval->text.n,
                     .n_positions = p->n_positions,
                     .n_rows = p->n_rows,
                     .recall_stride = p->recall_stride,
                     .trace_dir = p->trace_dir,
                     .saved = saved,
                     .saved_arg = eval};
}

bool eval_measure(Eval *eval, Error *error)
{
    const EvalRun run = run_of(eval);
    bool has_answers = run.n_questions && run.n_tasks, has_rows = run.n_positions && run.n_policies > 1;
    eval->whole = has_answers + has_rows;
    bool ok = !has_rows || eval_run_rows(&run, error);
    eval->done = has_rows;
    ok = ok && (!has_answers || eval_run_answers(&run, error));
    Error of_saving;
    if (!save(eval, &of_saving) && ok) {
        *error = of_saving;
        ok = false;
    }
    ok = ok && summary_make(&eval->results, "dense", &eval->rules, &eval->arena, &eval->summary, error);
    eval->report = (Report){&eval->results, &eval->summary, &eval->rules, engine_shape(eval->params.engine)->name};
    return ok;
}

const Report *eval_report(const Eval *eval)
{
    return &eval->report;
}

static bool certify_one(const Eval *eval, uint32_t i, Certificate *ret_certificate, Error *error)
{
    const EvalParams *p = &eval->params;
    const CertifyParams params = {.summary = &eval->summary,
                                  .rules = &eval->rules,
                                  .name = eval->policies[i].name,
                                  .spec = &eval->specs[i],
                                  .crossovers = p->calibration ? &eval->crossovers : NULL,
                                  .kv_type = p->kv_type,
                                  .model = engine_model_fingerprint(p->engine)};
    return certify(&params, ret_certificate, error);
}

bool eval_certify(const Eval *eval, const char *model_path, const char **ret_policy, Error *error)
{
    Certificate best = {.kv_share = 1}, one;
    Error why_not = {.text = "there is none to judge"};
    const char *name = NULL;
    if (eval->params.rope)
        return error_set(error, ERR_UNSUPPORTED, "a certificate is of the model's own positions, without --rope");
    for (uint32_t i = 1; i < eval->n_policies; i++) {
        if (!certify_one(eval, i, &one, &why_not) || one.kv_share >= best.kv_share) continue;
        best = one;
        name = eval->specs[i].text;
    }
    if (!name) return error_set(error, ERR_NOT_FOUND, "no policy can be certified: %s", why_not.text);
    if (!certificate_save(model_path, &best, error)) return false;
    *ret_policy = name;
    return true;
}
