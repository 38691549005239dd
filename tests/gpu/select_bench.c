/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/select_bench.h"
#include "tests/gpu/select_rig.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_LAYERS = 8, N_RUNS = 50, N_KEEP = 59, MILLION = (1 << 20) - 64 };

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one launch: the median of runs of a graph that has one for each layer. */
static double time_layers(Rig *const *rigs, const KernelTable *table)
{
    cudaStream_t stream;
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    cudaEvent_t begin, end;
    float times[N_RUNS];
    device_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    device_check(cudaEventCreate(&begin), "an event");
    device_check(cudaEventCreate(&end), "an event");
    device_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    for (int i = 0; i < N_LAYERS; i++) {
        SelectParams params = rigs[i]->device_params;
        params.launch.is_early = true;
        params.q = rigs[i]->device_raw;
        params.turn = rigs[i]->turn;
        device_report(table->select(&params, (Stream){.native = stream}), "select");
    }
    device_check(cudaStreamEndCapture(stream, &captured), "capturing");
    device_check(cudaGraphInstantiate(&graph, captured, 0), "a graph");
    for (int i = 0; i < N_RUNS; i++) {
        device_check(cudaEventRecord(begin, stream), "timing");
        device_check(cudaGraphLaunch(graph, stream), "running");
        device_check(cudaEventRecord(end, stream), "timing");
        device_check(cudaStreamSynchronize(stream), "running");
        device_check(cudaEventElapsedTime(&times[i], begin, end), "timing");
    }
    qsort(times, N_RUNS, sizeof *times, by_size);
    device_check(cudaGraphExecDestroy(graph), "freeing");
    device_check(cudaGraphDestroy(captured), "freeing");
    device_check(cudaStreamDestroy(stream), "freeing");
    return (double)times[N_RUNS / 2] * 1000 / N_LAYERS;
}

static void bench(const KernelTable *table, uint32_t n_tokens, uint32_t n_seqs, uint32_t n_due, bool half_streams)
{
    RigSeq seqs[RIG_MAX_SEQS];
    Rig *rigs[N_LAYERS];
    for (uint32_t i = 0; i < n_seqs; i++)
        seqs[i] = (RigSeq){n_tokens, {1, (n_tokens - 320) / KV_PAGE_TOKENS, i < n_due ? N_KEEP : 0}};
    const RigShape shape = {.dim = 128,
                            .group = 4,
                            .n_kv_heads = 8,
                            .n_pairs = 64,
                            .seqs = seqs,
                            .n_seqs = n_seqs,
                            .half_streams = half_streams};
    for (uint32_t i = 0; i < N_LAYERS; i++) rigs[i] = rig_new(&shape, i);
    printf("%u x %u tokens, %u due, %s heads select: %.2f us a layer\n", n_seqs, n_tokens, n_due,
           half_streams ? "half the" : "all", time_layers(rigs, table));
    for (uint32_t i = 0; i < N_LAYERS; i++) rig_free(rigs[i]);
}

void select_bench(const KernelTable *table)
{
    bench(table, 1 << 17, 1, 0, false);
    bench(table, 1 << 17, 1, 1, false);
    bench(table, 1 << 17, 1, 1, true);
    bench(table, MILLION, 1, 1, false);
    bench(table, MILLION, 1, 1, true);
    bench(table, 1 << 17, 8, 8, false);
    bench(table, 1 << 15, 32, 8, false);
    for (uint32_t n_tokens = 1 << 13; n_tokens <= 1 << 15; n_tokens *= 2) {
        bench(table, n_tokens, 1, 1, false);
        bench(table, n_tokens, 1, 1, true);
    }
}
