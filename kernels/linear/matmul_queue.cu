/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/linear/matmul_queue.h"

#include "kernels/launch.cuh"
#include "kernels/linear/gemv.h"

#include <cstdlib>

/* What waits to be launched as one kernel. */
struct MatmulQueue {
    lw::GemvChain chain;
    const lw::GemvRow *row; /* of all its products */
    AttendParams attend;    /* behind the last of them, */
    bool has_attend;        /* if a product of its results comes; else it goes alone */
};

namespace lw
{
namespace
{

struct ChainPlan {
    size_t shared_bytes;
    uint32_t n_blocks;
};

uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Blocks with a share of the largest product. */
uint32_t share_blocks(const DeviceFacts *facts, GemvChain *chain)
{
    uint32_t n_blocks = 1;
    for (uint32_t i = 0; i < chain->n_links; i++) n_blocks = larger(n_blocks, gemv_groups(chain->link[i].product));
    if (n_blocks > facts->n_multiprocessors) n_blocks = facts->n_multiprocessors;
    for (uint32_t i = 0; i < chain->n_links; i++) gemv_share(&chain->link[i].product, n_blocks);
    return n_blocks;
}

/* Shares shared memory out; false: it is too small. */
bool plan_chain(const GemvRow *row, GemvChain *chain, ChainPlan *ret)
{
    const DeviceFacts *facts = device_facts();
    if (!facts) return false;
    const size_t room = facts->block_shared_bytes - GEMV_DOT_STATIC_BYTES;
    const size_t stage = (size_t)row->dot.n_warps * row->dot.unit_bytes, n_tokens = chain->link[0].product.n_tokens;
    size_t x_bytes = 0;
    uint32_t n_tiles = 0;
    ret->n_blocks = share_blocks(facts, chain);
    for (uint32_t i = 0; i < chain->n_links; i++) {
        GemvArgs &args = chain->link[i].product;
        n_tiles = larger(n_tiles, (args.block_groups + (args.more_blocks > 0)) * (args.is_glu ? 2 : 1));
        args.x_bytes = args.n_units * row->dot.unit_cols / 32 * row->dot.block_bytes;
        if (n_tokens * args.x_bytes > x_bytes) x_bytes = n_tokens * args.x_bytes;
    }
    for (uint32_t i = 0; i < chain->n_attends; i++) {
        const size_t bytes = gemv_attend_bytes(chain->attend[i].params);
        if (bytes > x_bytes) x_bytes = bytes;
    }
    chain->part_floats = (n_tiles + row->dot.n_warps) * (uint32_t)n_tokens * DEVICE_TILE_ROWS;
    const size_t parts = 2 * chain->part_floats * sizeof(float);
    const size_t links = (chain->n_links * sizeof(GemvLink) + 15) / 16 * 16, held = parts + links + x_bytes;
    if (held + stage > room) return false;
    const size_t n_stages = (room - held) / stage;
    chain->n_stages = n_stages < GEMV_DOT_STAGES ? (uint32_t)n_stages : (uint32_t)GEMV_DOT_STAGES;
    const size_t ahead = (GEMV_DOT_BYTES_AHEAD + stage / 2) / stage;
    chain->n_on_their_way = ahead > 1 ? (uint32_t)ahead : 1;
    chain->links_at = (uint32_t)(chain->n_stages * stage + parts);
    chain->x_at = chain->links_at + (uint32_t)links;
    ret->shared_bytes = chain->x_at + x_bytes;
    return true;
}

bool launch_chain(const GemvRow *row, GemvChain chain, Stream stream)
{
    ChainPlan plan;
    stream.queue = nullptr;
    return plan_chain(row, &chain, &plan) &&
           launch(row->dot.kernel[chain.link[0].product.n_tokens - 1], dim3(plan.n_blocks),
                  32 * (row->dot.n_warps + GEMV_DOT_FEED_WARPS), plan.shared_bytes, stream, chain);
}

/* Counted in the units of these kernels. */
GemvArgs dot_args(const GemvRow *row, GemvArgs args)
{
    args.n_units = (args.n_units * row->unit_cols + row->dot.unit_cols - 1) / row->dot.unit_cols;
    return args;
}

void start_chain(GemvChain *chain, const GemvArgs &args)
{
    chain->n_links = 1;
    chain->n_attends = chain->n_floats = 0;
    chain->link[0] = {args, GEMV_NO_PLACE, GEMV_NO_PLACE, 0, 0};
}

/* ---- which products follow one another ---- */

uint32_t take_floats(GemvChain *chain, uint64_t n)
{
    const uint32_t at = chain->n_floats;
    if (n > GEMV_SET_FLOATS - at) return GEMV_NO_PLACE;
    chain->n_floats += (uint32_t)(n + 3) / 4 * 4;
    return at;
}

/* Floats of a token of a link's results. */
uint32_t result_floats(const GemvArgs &args)
{
    return gemv_groups(args) * DEVICE_TILE_ROWS;
}

bool is_result(const GemvArgs &of, const RowSource &x)
{
    return (of.n_out == 1 || of.is_glu) && x.x == of.out[0].y && x.n_cols == of.out[0].n_rows && !x.up &&
           (of.n_tokens == 1 || x.x_stride == of.out[0].y_stride);
}

/* Whether results in the same memory are written by the same threads; nothing else orders their writes. */
bool keeps_order(const GemvArgs &a, const GemvArgs &b)
{
    for (uint32_t i = 0; i < a.n_out; i++)
        for (uint32_t j = 0; j < b.n_out; j++) {
            const GemvOut &p = a.out[i], &q = b.out[j];
            const float *p_end = p.y + (a.n_tokens - 1) * p.y_stride + p.n_rows;
            const float *q_end = q.y + (b.n_tokens - 1) * q.y_stride + q.n_rows;
            if (p.y >= q_end || q.y >= p_end) continue;
            if (i != j || p.y != q.y || p.y_stride != q.y_stride || p.first_tile != q.first_tile ||
                a.n_tiles != b.n_tiles || a.is_glu != b.is_glu)
                return false;
        }
    return true;
}

/* The link reads what the one in front hands over, the attention that waits between them or not. */
bool link_up(const MatmulQueue *queue, GemvChain *chain, GemvLink *link)
{
    GemvLink &front = chain->link[chain->n_links - 1];
    const uint32_t n_tokens = link->product.n_tokens;
    const uint64_t n_handed = result_floats(front.product);
    front.y_at = take_floats(chain, n_handed * n_tokens);
    if (front.y_at == GEMV_NO_PLACE) return false;
    link->x_at = front.y_at;
    link->x_stride = (uint32_t)n_handed;
    if (!queue->has_attend) return is_result(front.product, link->product.raw);
    const AttendParams &p = queue->attend;
    const RowSource &x = link->product.raw;
    const uint32_t n_cols = p.n_heads * p.v_dim;
    if (chain->n_attends == GEMV_CHAIN_ATTENDS || x.x != p.out || x.n_cols != n_cols || x.weight || x.up ||
        (n_tokens > 1 && x.x_stride != n_cols))
        return false;
    GemvAttend &attend = chain->attend[chain->n_attends++];
    attend = {p, gemv_attend_parts(p), front.y_at, link->x_stride, 0, 0, 0, 0};
    attend.k_from = front.product.out[1].first_tile * DEVICE_TILE_ROWS;
    attend.v_from = front.product.out[2].first_tile * DEVICE_TILE_ROWS;
    attend.out_stride = attend.n_parts == 1 ? n_cols : attend.n_parts * (n_cols + 2 * p.n_heads);
    attend.out_at = take_floats(chain, (uint64_t)attend.out_stride * n_tokens);
    link->attend = chain->n_attends;
    link->x_at = attend.out_at;
    link->x_stride = attend.out_stride;
    return attend.out_at != GEMV_NO_PLACE;
}

/* Whether a kernel takes it together with those that wait. */
bool join(MatmulQueue *queue, const GemvRow *row, const GemvArgs &args)
{
    const GemvChain &chain = queue->chain;
    ChainPlan plan;
    if (chain.n_links == 0 || queue->row != row || chain.link[0].product.n_tokens != args.n_tokens ||
        chain.n_links == GEMV_CHAIN_LINKS || (chain.n_attends == GEMV_CHAIN_ATTENDS && args.n_out == 3))
        return false; /* the last: attention behind it would have no place */
    for (uint32_t i = 0; i < chain.n_links; i++)
        if (!keeps_order(chain.link[i].product, args)) return false;
    GemvChain longer = chain;
    GemvLink link = {dot_args(row, args), GEMV_NO_PLACE, GEMV_NO_PLACE, 0, 0};
    if (!link_up(queue, &longer, &link)) return false;
    longer.link[longer.n_links++] = link;
    if (!plan_chain(row, &longer, &plan)) return false;
    queue->chain = longer;
    queue->has_attend = false;
    return true;
}

/* Attention is put off until the product of its results is there; what it wants in a chain it must have by then. */
bool can_wait(MatmulQueue *queue, const AttendParams &p)
{
    GemvChain &chain = queue->chain;
    if (chain.n_links == 0 || queue->has_attend) return false;
    const GemvArgs &front = chain.link[chain.n_links - 1].product;
    const uint32_t n_q = p.n_heads * p.k_dim, n_kv = p.n_kv_heads * p.k_dim;
    const bool is_qkv = front.n_out == 3 && !front.is_glu && front.out[0].y == p.q && front.out[1].y == p.k &&
                        front.out[2].y == p.v && front.out[0].n_rows == n_q && front.out[1].n_rows == n_kv &&
                        front.out[2].n_rows == n_kv;
    const bool is_type = p.launch.types == 1u << KV_F16 || p.launch.types == 1u << KV_BF16;
    const bool is_step = p.launch.most_keys > 0 && p.launch.most_keys <= GEMV_ATTEND_KEYS && p.launch.is_early &&
                         p.launch.split_rows == 1 && !p.launch.tiled_rows && p.n_spans == front.n_tokens;
    const DeviceFacts *facts = device_facts();
    return is_qkv && is_type && is_step && !p.lse && p.k_dim == p.v_dim && (p.k_dim == 64 || p.k_dim == 128) && facts &&
           p.n_heads <= GEMV_ATTEND_GROUP * p.n_kv_heads &&
           p.n_spans * p.n_kv_heads * gemv_attend_parts(p) <= share_blocks(facts, &chain);
}

} // namespace

bool gemv_chain_fits(const GemvRow *row, const GemvArgs &args)
{
    GemvChain chain = {};
    ChainPlan plan;
    start_chain(&chain, dot_args(row, args));
    return plan_chain(row, &chain, &plan);
}

bool gemv_chain_add(const GemvRow *row, const GemvArgs &args, Stream stream)
{
    MatmulQueue *queue = stream.queue;
    if (!queue) {
        GemvChain chain = {};
        start_chain(&chain, dot_args(row, args));
        return launch_chain(row, chain, stream);
    }
    if (join(queue, row, args)) return true;
    if (!matmul_queue_send(stream)) return false;
    queue->row = row;
    start_chain(&queue->chain, dot_args(row, args));
    return true;
}

bool gemv_chain_attend(const AttendParams &params, Stream stream)
{
    MatmulQueue *queue = stream.queue;
    if (!queue || !can_wait(queue, params)) return false;
    queue->attend = params;
    queue->has_attend = true;
    return true;
}

} // namespace lw

extern "C" MatmulQueue *matmul_queue_new(void)
{
    const size_t bytes = 2 * (size_t)lw::GEMV_SET_FLOATS * sizeof(float);
    MatmulQueue *queue = (MatmulQueue *)calloc(1, sizeof *queue);
    lw::GemvChain *chain = queue ? &queue->chain : nullptr;
    if (chain && cudaMalloc(&chain->shared, sizeof *chain->shared) == cudaSuccess &&
        cudaMalloc(&chain->sets, bytes) == cudaSuccess &&
        cudaMemset(chain->shared, 0, sizeof *chain->shared) == cudaSuccess &&
        cudaMemset(chain->sets, 0xFF, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess)
        return queue;
    matmul_queue_free(queue);
    return nullptr;
}

extern "C" void matmul_queue_free(MatmulQueue *queue)
{
    if (!queue) return;
    if (queue->chain.sets) (void)cudaFree(queue->chain.sets);
    if (queue->chain.shared) (void)cudaFree(queue->chain.shared);
    free(queue);
}

extern "C" bool matmul_queue_send(Stream stream)
{
    MatmulQueue *queue = stream.queue;
    if (!queue || queue->chain.n_links == 0) return true;
    const lw::GemvChain chain = queue->chain;
    const bool has_attend = queue->has_attend;
    queue->chain.n_links = 0;
    queue->has_attend = false;
    if (!lw::launch_chain(queue->row, chain, stream)) return false;
    stream.queue = nullptr;
    return !has_attend || attend_cuda(&queue->attend, stream);
}
