/* SPDX-License-Identifier: Apache-2.0 */
/* longwave eval: policies against the model's own dense run, as tables, one JSON object or a page. */
#include "engine/eval/eval.h"
#include "engine/eval/calibration.h"
#include "engine/eval/certificate.h"

#include "engine/eval/files.h"
#include "engine/eval/policy_spec.h"
#include "server/cmd/cmd.h"
#include "server/cmd/open_device.h"
#include "server/cmd/progress.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_PATH_BYTES = 4096,
    MAX_TEXT_BYTES = 64 << 20,
    MAX_REPORT_BYTES = 256 << 20,
    LOGIT_ROWS = 320,
    BATCH_ROWS = 1024
};

/* What computes, and the options with its defaults. */
typedef struct Machine {
    const Config *given;
    Config config;
    Device *device;
    Engine *engine;
} Machine;

/* What the engine has to be opened with for the policies: see open_model.c. */
static const char *attention_of(const Machine *machine, PolicySpec *longest)
{
    const char *policies = machine->config.policies;
    return machine->device->is_host ? policy_specs_moving_preset(policies) : policy_specs_longest(policies, longest);
}

static bool open_engine(Machine *machine, Progress *progress, Error *error)
{
    RopeOverride rope;
    KvTypes kv_types;
    PolicySpec longest;
    const Config *config = &machine->config;
    uint32_t context = 0;
    for (uint32_t i = 0; i < config->lengths.n; i++)
        if (config->lengths.at[i] > context) context = config->lengths.at[i];
    if (!kv_types_parse(config->kv_type, &kv_types, error) ||
        (config->rope && !rope_override_parse(config->rope, &rope, error)))
        return false;
    EngineParams params = {.model_path = config->model,
                           .context = context,
                           .max_sequences = config->max_batch + 64,
                           .roles = config->roles,
                           .attention = attention_of(machine, &longest),
                           .rope = config->rope ? &rope : NULL,
                           .max_batch_rows = machine->device->is_host ? BATCH_ROWS : config->prefill_chunk,
                           .max_logit_rows = LOGIT_ROWS,
                           .n_threads = config->threads,
                           .kv_types = kv_types,
                           .world = 1,
                           .progress = progress_update,
                           .progress_arg = progress};
    open_device_params(config, machine->device, &params);
    progress_begin(progress, "loading");
    bool ok = engine_open(&params, &machine->engine, error);
    progress_end(progress);
    return ok;
}

static bool has_probes(const char *policies)
{
    PolicySpec spec;
    Error error; /* of what is no policy eval_new tells */
    while (policies && policy_spec_next(&policies, &spec, &error))
        if (spec.policy.selection.n_probes) return true;
    return false;
}

static bool open_machine(Machine *machine, Progress *progress, Error *error)
{
    Error why_not;
    const Config *given = machine->given;
    if (!open_device(given, &machine->config, &machine->device, &why_not, error) ||
        !open_device_policies(given, given->policies, &machine->config, &machine->device, &why_not, error))
        return false;
    if (why_not.code != ERR_NONE) fprintf(stderr, "longwave eval: the CPU computes: %s\n", why_not.text);
    if (!open_engine(machine, progress, error) &&
        !(open_device_give_up(given, error, &machine->config, &machine->device) &&
          open_engine(machine, progress, error)))
        return false;
    if (!machine->device->is_host && given->positions && has_probes(given->policies))
        fprintf(stderr, "longwave eval: a GPU estimates no missing mass, so no estimates are compared\n");
    return true;
}

static void close_machine(Machine *machine)
{
    engine_close(machine->engine);
    device_close(machine->device);
}

/* What is read before anything runs. */
typedef struct Inputs {
    Buffer text, calibration;
} Inputs;

static bool read_input(const char *option, const char *path, Buffer *out, Error *error)
{
    return !path || file_read(path, out, error) || error_prefix(error, "%s", option);
}

/* The file's bytes, also of an empty one; NULL: none was asked for. */
static const char *bytes_of(const char *path, const Buffer *input)
{
    return path ? input->data ? input->data : "" : NULL;
}

static bool make(const Config *config, Engine *engine, const Inputs *inputs, Progress *progress, Eval **ret_eval,
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
                               .text = bytes_of(config->text, &inputs->text),
                               .n_text_bytes = inputs->text.n,
                               .calibration = bytes_of(config->calibration, &inputs->calibration),
                               .n_calibration_bytes = inputs->calibration.n,
                               .results_path = config->resume,
                               .trace_dir = config->trace,
                               .progress = progress_update,
                               .progress_arg = progress};
    if (eval_new(&params, ret_eval, error)) return true;
    if (config->calibration && !strcmp(error->param, "calibration")) error_prefix(error, "%s", config->calibration);
    return false;
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
    if (config->json)
        ok = print_json(report, &out, error);
    else
        ok = report_text(report, &out, error) && (!out.n || write_stdout(&out, error));
    buffer_done(&out);
    return ok;
}

static bool write_page(const Config *config, const Report *report, Error *error)
{
    Buffer out;
    if (!config->html) return true;
    buffer_init(&out, MAX_REPORT_BYTES);
    bool ok = report_html(report, &out, error) && file_replace(config->html, out.data, out.n, error);
    buffer_done(&out);
    return ok || error_prefix(error, "--html");
}

/* What cannot be written at the end is better known at the beginning. */
static bool check_outputs(const Config *config, Error *error)
{
    Buffer certificate;
    buffer_init(&certificate, MAX_PATH_BYTES);
    bool ok = (!config->html || file_check_replace(config->html, error) || error_prefix(error, "--html")) &&
              (!config->resume || file_check_replace(config->resume, error) || error_prefix(error, "--resume")) &&
              (!config->trace || file_check_folder(config->trace, error) || error_prefix(error, "--trace")) &&
              (!config->certify || (certificate_path(config->model, &certificate, error) &&
                                    (file_check_replace(certificate.data, error) || error_prefix(error, "--certify"))));
    buffer_done(&certificate);
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
    if (!ok) return false;
    /* One that fails takes nothing from the others. */
    Error of_page, of_certificate;
    bool has_printed = print_report(config, eval_report(eval), error);
    bool has_page = write_page(config, eval_report(eval), &of_page);
    bool is_certified = certify(config, eval, &of_certificate);
    if (has_printed && !(has_page && is_certified)) *error = has_page ? of_certificate : of_page;
    return has_printed && has_page && is_certified;
}

/* The exit status: what was asked for is wrong, or could not be done. */
static int evaluate(const Config *config, Error *error)
{
    Machine machine = {.given = config};
    Eval *eval = NULL;
    Progress progress;
    Inputs inputs;
    buffer_init(&inputs.text, MAX_TEXT_BYTES);
    buffer_init(&inputs.calibration, CALIBRATION_MAX_BYTES);
    int status = 1;
    if (read_input("--text", config->text, &inputs.text, error) &&
        read_input("--calibration", config->calibration, &inputs.calibration, error) && check_outputs(config, error) &&
        open_machine(&machine, &progress, error)) {
        status = 2;
        if (make(&machine.config, machine.engine, &inputs, &progress, &eval, error))
            status = measure(config, eval, &progress, error) ? 0 : 1;
    }
    eval_free(eval);
    close_machine(&machine);
    buffer_done(&inputs.text);
    buffer_done(&inputs.calibration);
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
