/* SPDX-License-Identifier: Apache-2.0 */
/* longwave bench: how fast a model or the kernels are on this machine, beside the memory's own speed. */
#include "server/cmd/bench.h"
#include "base/clock.h"
#include "engine/model/synthetic.h"
#include "server/cmd/cmd.h"
#include "server/cmd/open_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_PASSES = 20, MAX_REPORT_BYTES = 16 << 20 };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

BenchSpread bench_spread(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return (BenchSpread){(values[(n - 1) / 2] + values[n / 2]) / 2, values[0], values[n - 1]};
}

bool bench_add_step(Samples *steps, uint64_t begin_usec, Error *error)
{
    return !steps || samples_add(steps, clock_now_usec() - begin_usec) ||
           error_set(error, ERR_NO_MEMORY, "no memory for the times of %u steps", steps->n + 1);
}

typedef struct ReadJob {
    const uint8_t *block;
    size_t n_bytes;
    uint64_t sums[THREADS_MAX][8];
} ReadJob;

static void read_part(void *arg, uint32_t worker, uint32_t n_workers)
{
    ReadJob *job = arg;
    size_t n_lines = job->n_bytes / n_workers / 64;
    const uint64_t *at = (const uint64_t *)(const void *)(job->block + n_lines * 64 * worker);
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < n_lines; i++, at += 8)
        for (int j = 0; j < 8; j++) sum[j] += at[j];
    memcpy(job->sums[worker], sum, sizeof sum);
}

double bench_read_ceiling(ThreadPool *pool, const uint8_t *block, size_t n_bytes)
{
    ReadJob job = {.block = block, .n_bytes = n_bytes};
    double best = 1e30;
    for (int i = 0; i < READ_PASSES; i++) {
        uint64_t begin_usec = clock_now_usec();
        threads_run(pool, read_part, &job);
        double usec = (double)(clock_now_usec() - begin_usec);
        if (usec > 0 && usec < best) best = usec;
    }
    return (double)n_bytes / best;
}

/* The row of --row, or the best one; an error lists those that this machine can run. */
static bool find_row(const char *name, const KernelTable **ret_row, Error *error)
{
    char names[128] = "";
    const KernelTable *row = kernels_cpu();
    for (size_t i = 0; name && (row = kernels_cpu_row(i)) && strcmp(row->name, name); i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", row->name);
    }
    if (!row)
        return error_set_param(error, ERR_INVALID, "row", "--row: this machine has no '%s', only %s", name, names);
    *ret_row = row;
    return true;
}

static bool check_plan(const Config *config, BenchPlan *plan, Error *error)
{
    if (!config->model + !config->synthetic + !config->kernels != 2)
        return error_set(error, ERR_INVALID, "'bench' wants one of --model PATH, --synthetic SHAPE:TYPE and --kernels");
    return find_row(config->row, &plan->row, error) &&
           (!config->synthetic || synthetic_parse(config->synthetic, &plan->shape, &plan->type, error));
}

/* A row that is named, and the kernels alone, are the host's. */
static bool choose_device(const Config *config, Config *with_defaults, BenchPlan *plan, Error *error)
{
    Error why_not;
    plan->config = with_defaults;
    plan->device = device_host();
    *with_defaults = *config;
    if (config->row || config->kernels) return true;
    if (!open_device(config, with_defaults, &plan->device, &why_not, error)) return false;
    if (!plan->device->is_host) plan->row = NULL;
    return true;
}

static int bench(const Config *config, Error *error)
{
    BenchPlan plan = {0};
    Config with_defaults;
    if (!check_plan(config, &plan, error)) return 2;
    if (!choose_device(config, &with_defaults, &plan, error)) return 1;
    Buffer out;
    buffer_init(&out, MAX_REPORT_BYTES);
    bool ok = config->kernels ? bench_kernels(&plan, &out, error) : bench_model(&plan, &out, error);
    if (ok && (fwrite(out.data, 1, out.n, stdout) != out.n || fflush(stdout)))
        ok = error_set(error, ERR_IO, "cannot write the report");
    buffer_done(&out);
    device_close(plan.device);
    return ok ? 0 : 1;
}

int cmd_bench(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_BENCH, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave bench: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help)
        config_print_help(CMD_BENCH, "longwave");
    else if ((status = bench(&config, &error)))
        fprintf(stderr, "longwave bench: %s\n", error.text);
    config_done(&config);
    return status;
}
