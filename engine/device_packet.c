/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_packet.h"

#include "engine/kv/page.h"
#include "engine/select/selector.h"
#include "kernels/attention/kv_page.h"
#include "kernels/sample/digest.h"

enum { ALIGN = 256 };

size_t packet_aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

Packet packet_of(PacketShape shape)
{
    Packet at = {.n_plans = shape.n_plans};
    at.positions = packet_aligned(shape.n_rows * sizeof(uint32_t));
    at.views = at.positions + packet_aligned(shape.n_rows * sizeof(uint32_t));
    at.spans = at.views + packet_aligned(shape.n_spans * KV_MAX_CLASSES * sizeof(KvPages));
    at.asks = packet_aligned(at.spans + shape.n_layers * shape.n_spans * sizeof(KvSpan));
    at.jobs = at.bytes = at.asks + shape.n_asks * sizeof(DigestAsk);
    if (!shape.n_plans) return at;
    at.jobs = packet_aligned(at.bytes);
    at.plans = at.jobs + packet_aligned(shape.n_layers * shape.n_spans * sizeof(SelectJob));
    at.bytes = at.plans + shape.n_planned * shape.n_plans * sizeof(AttnPlan);
    return at;
}
