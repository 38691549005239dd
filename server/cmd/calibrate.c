/* SPDX-License-Identifier: Apache-2.0 */
/* longwave calibrate: head roles and crossover lengths of a model, as one file and a report. */
#include "engine/eval/calibrate.h"

#include "engine/eval/files.h"
#include "engine/eval/gates.h"
#include "server/cmd/cmd.h"
#include "server/cmd/open_device.h"
#include "server/cmd/progress.h"

#include <stdio.h>
#include <string.h>

static bool make(const Config *config, const EngineParams *engine, const Buffer *gates, Progress *progress,
                 Calibrate **ret_calibrate, Error *error)
{
    const CalibrateParams params = {.engine = engine,
                                    .kv_type = config->kv_type,
                                    .output = config->output,
                                    .gates = config->gates ? gates->n ? gates->data : "" : NULL,
                                    .n_gates_bytes = gates->n,
                                    .sparsity = config->sparsity,
                                    .tasks = config->tasks,
                                    .length = config->length,
                                    .n_prompts = config->prompts,
                                    .per_haystack = config->per_haystack,
                                    .max_open = config->max_batch,
                                    .sink = config->sink,
                                    .recent = config->recent,
                                    .recent_prefill = config->recent_prefill,
                                    .policies = config->policies,
                                    .lengths = config->lengths.at,
                                    .n_lengths = config->lengths.n,
                                    .is_raw = config->raw,
                                    .seed = config->seed,
                                    .progress = progress_update,
                                    .progress_arg = progress};
    return calibrate_new(&params, ret_calibrate, error);
}

static uint32_t count_streaming(const Calibration *found, uint32_t *ret_ranked)
{
    uint32_t n = 0;
    *ret_ranked = 0;
    for (uint32_t i = 0; i < found->n_layers * found->n_kv_heads; i++) {
        n += found->streams[i];
        *ret_ranked += found->is_ranked[i];
    }
    return n;
}

static void print_text(const Calibration *found, const char *path)
{
    uint32_t n_ranked, n_streaming = count_streaming(found, &n_ranked);
    printf("%u of %u KV heads stream: sink %u, recent %u, in prompts %u tokens\n\n", n_streaming, n_ranked, found->sink,
           found->recent, found->recent_prefill);
    printf("%-40s %9s %7s %7s %12s\n", "check on other prompts", "questions", "dense", "roles", "loss, nats");
    for (uint32_t i = 0; i < found->n_checked; i++) {
        const CheckedTask *task = &found->checked[i];
        printf("%-40s %9u %7u %7u %12.4f\n", task->task, task->questions, task->dense_right, task->right, task->loss);
    }
    if (found->n_cells)
        printf("\n%-40s %9s %9s %9s %7s %7s\n", "crossover on this machine", "length", "dense, us", "us", "dense",
               "right");
    for (uint32_t i = 0; i < found->n_cells; i++) {
        const CrossoverCell *cell = &found->cells[i];
        printf("%-40s %9u %9.0f %9.0f %7u %7u%s\n", cell->policy, cell->length, cell->dense_usec, cell->usec,
               cell->dense_right, cell->right,
               calibration_crossover(found, cell->policy) == cell->length ? "  pays from here on" : "");
    }
    printf("\nserve it: --roles NAME=%s\n", path);
}

static bool print_json(const Calibration *found, Error *error)
{
    cJSON *root;
    if (!calibration_json(found, &root, error)) return false;
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return error_set(error, ERR_NO_MEMORY, "no memory for the report");
    puts(text);
    cJSON_free(text);
    return true;
}

static bool work(const Config *config, Calibrate *calibrate, Progress *progress, Error *error)
{
    progress_begin(progress, "calibrate");
    bool ok = calibrate_run(calibrate, error);
    progress_end(progress);
    if (!ok) return false;
    if (config->json) return print_json(calibrate_found(calibrate), error);
    print_text(calibrate_found(calibrate), config->output);
    return true;
}

/* The exit status: what was asked for is wrong, or could not be done. */
static int run_on(const Config *config, Device *device, Error *error)
{
    Calibrate *calibrate = NULL;
    Progress progress;
    Buffer gates;
    KvTypes kv_types;
    if (!kv_types_parse(config->kv_type, &kv_types, error)) return 2;
    EngineParams engine = {.model_path = config->model, .n_threads = config->threads, .kv_types = kv_types, .world = 1};
    open_device_params(config, device, &engine);
    int status = 2;
    buffer_init(&gates, GATES_MAX_FILE_BYTES);
    if (config->gates && !file_read(config->gates, &gates, error))
        status = 1;
    else if (make(config, &engine, &gates, &progress, &calibrate, error))
        status = work(config, calibrate, &progress, error) ? 0 : 1;
    else if (config->gates && !strcmp(error->param, "gates"))
        error_prefix(error, "%s", config->gates);
    calibrate_free(calibrate);
    buffer_done(&gates);
    return status;
}

static int run(const Config *given, Error *error)
{
    Config config;
    Device *device = NULL;
    Error why_not;
    int status = 1;
    if (open_device(given, &config, &device, &why_not, error) &&
        open_device_policies(given, given->policies, &config, &device, &why_not, error)) {
        if (why_not.code != ERR_NONE) fprintf(stderr, "longwave calibrate: the CPU computes: %s\n", why_not.text);
        status = run_on(&config, device, error);
        if (status && open_device_give_up(given, error, &config, &device)) status = run_on(&config, device, error);
    }
    device_close(device);
    return status;
}

int cmd_calibrate(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_CALIBRATE, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave calibrate: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help)
        config_print_help(CMD_CALIBRATE, "longwave");
    else if ((status = run(&config, &error)))
        fprintf(stderr, "longwave calibrate: %s\n", error.text);
    config_done(&config);
    return status;
}
