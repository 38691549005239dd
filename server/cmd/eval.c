/* SPDX-License-Identifier: Apache-2.0 */
/* longwave eval: policies against the model's own dense run, as tables, one JSON object or a page. */
#include "engine/eval/eval.h"

#include "engine/eval/files.h"
#include "engine/eval/policy_spec.h"
#include "server/cmd/cmd.h"
#include "server/cmd/progress.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20, MAX_REPORT_BYTES = 256 << 20, LOGIT_ROWS = 320, BATCH_ROWS = 1024 };

static bool open_engine(const Config *config, Progress *progress, Engine **ret_engine, Error *error)
{
    RopeOverride rope;
    KvTypes kv_types;
    uint32_t context = 0;
    for (uint32_t i = 0; i < config->lengths.n; i++)
        if (config->lengths.at[i] > context) context = config->lengths.at[i];
    if (!kv_types_parse(config->kv_type, &kv_types, error) ||
        (config->rope && !rope_override_parse(config->rope, &rope, error)))
        return false;
    const EngineParams params = {.model_path = config->model,
                                 .context = context,
                                 .kv_bytes = config->host_memory,
                                 .max_sequences = config->max_batch + 64,
                                 .roles = config->roles,
                                 .attention = policy_specs_moving_preset(config->policies),
                                 .rope = config->rope ? &rope : NULL,
                                 .max_batch_rows = BATCH_ROWS,
                                 .max_logit_rows = LOGIT_ROWS,
                                 .n_threads = config->threads,
                                 .kv_types = kv_types,
                                 .world = 1,
                                 .progress = progress_update,
                                 .progress_arg = progress};
    progress_begin(progress, "loading");
    bool ok = engine_open(&params, ret_engine, error);
    progress_end(progress);
    return ok;
}

static bool make(const Config *config, Engine *engine, const Buffer *text, Progress *progress, Eval **ret_eval,
                 Error *error)
{
    const EvalParams params = {.engine = engine,
                               .policies = config->policies,
                               .tasks = config->tasks,
                               .lengths = config->lengths.at,
                               .n_lengths = config->lengths.n,
                               .n_questions = config->questions,
                               .per_haystack = config->per_haystack,
                               .first_haystack = config->first_haystack,
                               .n_depths = config->depths,
                               .max_open = config->max_batch,
                               .n_positions = config->positions,
                               .n_rows = config->rows,
                               .recall_stride = config->recall_stride,
                               .is_raw = config->raw,
                               .question_rows = config->question_rows == QUESTIONS_DECODED ? ROWS_DECODE : ROWS_PREFILL,
                               .seed = config->seed,
                               .kv_type = config->kv_type,
                               .rope = config->rope,
                               .text = config->text ? text->data : NULL,
                               .n_text_bytes = text->n,
                               .results_path = config->resume,
                               .trace_dir = config->trace,
                               .progress = progress_update,
                               .progress_arg = progress};
    return eval_new(&params, ret_eval, error);
}

static bool write_stdout(const Buffer *out, Error *error)
{
    if (fwrite(out->data, 1, out->n, stdout) != out->n || fflush(stdout))
        return error_set(error, ERR_IO, "cannot write the report");
    return true;
}

static bool print_json(const Report *report, Buffer *out, Error *error)
{
    cJSON *object;
    if (!report_json(report, &object, error)) return false;
    char *text = cJSON_Print(object);
    bool ok =
        text ? buffer_printf(out, error, "%s\n", text) : error_set(error, ERR_NO_MEMORY, "no memory for the report");
    cJSON_free(text);
    cJSON_Delete(object);
    return ok && write_stdout(out, error);
}

static bool print_report(const Config *config, const Report *report, Error *error)
{
    Buffer out;
    buffer_init(&out, MAX_REPORT_BYTES);
    bool ok = true;
    if (config->html) {
        ok = report_html(report, &out, error) && file_replace(config->html, out.data, out.n, error);
        buffer_clear(&out);
    }
    if (ok && config->json)
        ok = print_json(report, &out, error);
    else if (ok && (ok = report_text(report, &out, error)) && out.n)
        ok = write_stdout(&out, error);
    buffer_done(&out);
    return ok;
}

static bool certify(const Config *config, const Eval *eval, Error *error)
{
    const char *policy;
    if (!config->certify) return true;
    if (!eval_certify(eval, config->model, &policy, error)) return false;
    fprintf(stderr, "certified: %s\n", policy);
    return true;
}

static bool measure(const Config *config, Eval *eval, Progress *progress, Error *error)
{
    progress_begin(progress, "eval");
    bool ok = eval_measure(eval, error);
    progress_end(progress);
    return ok && print_report(config, eval_report(eval), error) && certify(config, eval, error);
}

/* The exit status: what was asked for is wrong, or could not be done. */
static int evaluate(const Config *config, Error *error)
{
    Engine *engine = NULL;
    Eval *eval = NULL;
    Progress progress;
    Buffer text;
    buffer_init(&text, MAX_TEXT_BYTES);
    int status = 1;
    if ((!config->text || file_read(config->text, &text, error)) && open_engine(config, &progress, &engine, error)) {
        status = 2;
        if (make(config, engine, &text, &progress, &eval, error))
            status = measure(config, eval, &progress, error) ? 0 : 1;
    }
    eval_free(eval);
    engine_close(engine);
    buffer_done(&text);
    return status;
}

int cmd_eval(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_EVAL, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave eval: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help)
        config_print_help(CMD_EVAL, "longwave");
    else if ((status = evaluate(&config, &error)))
        fprintf(stderr, "longwave eval: %s\n", error.text);
    config_done(&config);
    return status;
}
