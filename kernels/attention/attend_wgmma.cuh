/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many rows on compute capability 9.0. A block takes tiles of 128 queries of one KV head (rows times heads
 * of the group): a feeding warp group brings keys and values in tiles of 128 positions, which begin at multiples of
 * 128, and two warp groups attend, 64 queries each, one of them in its products while the other is in its softmax.
 *
 * Listed sectors come eight a tile, wherever they are: a tile is then a function of the list alone.
 *
 * Bands: a tile of keys ends where a band does, and brings the channels alone that its scores take.
 *
 * Keys lie in shared memory as they are stored, which is 8 tokens by 16 bytes a core: a product takes the first,
 * another the last 8 tokens of each sector. Values come in pieces of 16 bytes, since their rows must be swizzled.
 *
 * Types of 16 bits, heads of 64 and 128 channels; all else is attend_tiled.cuh's. What a row's tiles are depends on the
 * row alone, as there; keys that only other rows see add exact zeros.
 */
#pragma once
#include "kernels/attention/attend_launch.cuh"
#include "kernels/attention/attend_device.cuh"
#include "kernels/attention/attend_visits.cuh"
#include "kernels/hopper.cuh"

namespace
{

constexpr unsigned kTileKeys = 128, kTileSectors = kTileKeys / KV_SECTOR_TOKENS, kAllSectors = 0xFF;
constexpr unsigned kTileQueries = 128, kAttendThreads = 3 * lw::kGroupThreads, kAttendWarps = 8;
constexpr unsigned kFeedRegisters = 40, kAttendRegisters = 232;

template <KvType type, int dim> struct WgmmaTile {
    static constexpr unsigned kRowBytes = dim * 2;
    static constexpr unsigned kSectorBytes = KV_SECTOR_TOKENS * kRowBytes; /* of K or V */
    static constexpr unsigned kStepBytes = KV_SECTOR_TOKENS * 32;          /* of a sector's K: 16 channels */
    static constexpr unsigned kBytes = kTileKeys * kRowBytes;              /* the same */
    static constexpr unsigned kWildBytes = kTileKeys * dim / 8;
    static constexpr unsigned kStages = dim == 128 ? 3 : 5;
    static constexpr unsigned kHalfBytes = kTileKeys * 128; /* of V: 64 channels of all tokens */
    static constexpr unsigned kShared = kStages * (2 * kBytes + kWildBytes) + 1024;
    static constexpr bool kBf16 = type == KV_BF16;
};

/* Of a tile of keys: bits 0..7, its sectors that rows see. */
constexpr uint32_t kListed = 1u << 8; /* the list names them; else they follow one another */
constexpr uint32_t kMasked = 1u << 9; /* some row of the tile of queries does not see all keys */
constexpr uint32_t kLast = 1u << 10;  /* the last of a tile of queries */
constexpr unsigned kStepsAt = 16;     /* with bands, from this bit on: steps of 16 channels that scores take */

struct KeyTile {
    const char *places[kTileSectors]; /* of seen sectors */
    uint32_t sectors[kTileSectors];   /* numbers */
    uint32_t bits;
};

struct QueryWork {
    Visits visits;
    uint32_t first_row, n_queries, first_query, kv_head; /* row of the batch; queries of the span */
    bool is_end, is_empty;                               /* no more work; no keys */
};

constexpr unsigned kMostStages = 5, kWorks = 3;

struct WgmmaShared {
    uint64_t k_full[kMostStages], k_empty[kMostStages], v_full[kMostStages], v_empty[kMostStages];
    uint64_t work_full[kWorks], work_empty[kWorks];
    KeyTile tiles[2 * kMostStages]; /* by Ring.slot: they outlast their keys, which go before their values */
    bool is_wild[kMostStages]; /* a masked tile's values hold NaN or infinities: there they are 0 and a bit of `wild` */
    QueryWork work[kWorks];
};

struct WgmmaMemory {
    char *keys, *values;
    uint8_t *wild; /* [stages][kTileKeys][dim / 8] bits of channels */
};

/* A place in a ring of n stages, in two turns: their parities differ. */
template <unsigned n> struct Ring {
    uint32_t slot;
    __device__ __forceinline__ void next()
    {
        slot = slot + 1 < 2 * n ? slot + 1 : 0;
    }
    __device__ __forceinline__ uint32_t at() const
    {
        return slot < n ? slot : slot - n;
    }
    __device__ __forceinline__ uint32_t parity() const
    {
        return slot >= n;
    }
};

} // namespace
