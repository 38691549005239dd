/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/matmul_queue.h"

#include "kernels/launch.cuh"
#include "kernels/linear/gemv.h"

#include <cstdlib>

/* What waits to be launched as one kernel. */
struct MatmulQueue {
    lw::GemvChain chain;
    const lw::GemvRow *row; /* of all its products */
};

namespace lw
{
namespace
{

struct ChainPlan {
    size_t shared_bytes;
    uint32_t n_blocks;
};

/* Every block has a share of every product, so that all of them have the same barriers. */
uint32_t share_blocks(const DeviceFacts *facts, GemvChain *chain)
{
    uint32_t n_blocks = 1;
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        const uint32_t n = gemv_groups(chain->op[i]);
        if (n > n_blocks) n_blocks = n < facts->n_multiprocessors ? n : facts->n_multiprocessors;
    }
    for (uint32_t i = 0; i < chain->n_ops; i++) gemv_share(&chain->op[i], n_blocks);
    return n_blocks;
}

/* Shares shared memory out; false: it is too small. A third of it is left to others, if that leaves two stages. */
bool plan_chain(const GemvRow *row, GemvChain *chain, ChainPlan *ret)
{
    const DeviceFacts *facts = device_facts();
    if (!facts) return false;
    const size_t whole = facts->block_shared_bytes - GEMV_STATIC_BYTES;
    const size_t most = facts->processor_shared_bytes / kSharedThirds * (kSharedThirds - 1) - 1024 - GEMV_STATIC_BYTES;
    const size_t stage = (size_t)row->dot.n_warps * row->unit_bytes, n_tokens = chain->op[0].n_tokens;
    size_t x_bytes = 0, n_tiles = 0;
    ret->n_blocks = share_blocks(facts, chain);
    for (uint32_t i = 0; i < chain->n_ops; i++) {
        GemvArgs &args = chain->op[i];
        const size_t tiles = (size_t)(args.block_groups + (args.more_blocks > 0)) * (args.is_glu ? 2 : 1);
        args.x_bytes = args.n_units * row->unit_cols / 32 * row->dot.block_bytes;
        if (args.x_bytes > x_bytes) x_bytes = args.x_bytes;
        if (tiles > n_tiles) n_tiles = tiles;
    }
    const size_t parts = (n_tiles + row->dot.n_warps) * n_tokens * DEVICE_TILE_ROWS * sizeof(float);
    const size_t held = parts + n_tokens * x_bytes, room = held + 2 * stage <= most ? most : whole;
    if (held + stage > room) return false;
    const size_t n_stages = (room - held) / stage;
    chain->n_stages = n_stages < GEMV_DOT_STAGES ? (uint32_t)n_stages : (uint32_t)GEMV_DOT_STAGES;
    chain->x_at = (uint32_t)(chain->n_stages * stage + parts);
    ret->shared_bytes = chain->x_at + n_tokens * x_bytes;
    return true;
}

bool launch_chain(const GemvRow *row, GemvChain chain, Stream stream)
{
    ChainPlan plan;
    stream.queue = nullptr;
    return plan_chain(row, &chain, &plan) && launch(row->dot.kernel[chain.op[0].n_tokens - 1], dim3(plan.n_blocks),
                                                    32 * row->dot.n_warps, plan.shared_bytes, stream, chain);
}

/* Whether a kernel takes it together with those that wait. */
bool join(MatmulQueue *queue, const GemvRow *row, const GemvArgs &args)
{
    GemvChain &chain = queue->chain;
    ChainPlan plan;
    if (chain.n_ops == 0 || queue->row != row || chain.op[0].n_tokens != args.n_tokens || chain.n_ops == GEMV_CHAIN_OPS)
        return false;
    chain.op[chain.n_ops++] = args;
    if (plan_chain(row, &chain, &plan)) return true;
    chain.n_ops--;
    return false;
}

} // namespace

bool gemv_chain_fits(const GemvRow *row, const GemvArgs &args)
{
    GemvChain chain = {};
    ChainPlan plan;
    chain.op[chain.n_ops++] = args;
    return plan_chain(row, &chain, &plan);
}

bool gemv_chain_add(const GemvRow *row, const GemvArgs &args, Stream stream)
{
    MatmulQueue *queue = stream.queue;
    if (!queue) {
        GemvChain chain = {};
        chain.op[chain.n_ops++] = args;
        return launch_chain(row, chain, stream);
    }
    if (join(queue, row, args)) return true;
    if (!matmul_queue_send(stream)) return false;
    queue->row = row;
    queue->chain.op[queue->chain.n_ops++] = args;
    return true;
}

} // namespace lw

extern "C" MatmulQueue *matmul_queue_new(uint32_t *barrier)
{
    MatmulQueue *queue = (MatmulQueue *)calloc(1, sizeof *queue);
    if (queue) queue->chain.barrier = barrier;
    return queue;
}

extern "C" void matmul_queue_free(MatmulQueue *queue)
{
    free(queue);
}

extern "C" bool matmul_queue_send(Stream stream)
{
    MatmulQueue *queue = stream.queue;
    if (!queue || queue->chain.n_ops == 0) return true;
    const lw::GemvChain chain = queue->chain;
    queue->chain.n_ops = 0;
    return lw::launch_chain(queue->row, chain, stream);
}
