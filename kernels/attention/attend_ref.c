/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention/attend.h"

#include <math.h>

/* One query head of one row. */
typedef struct Query {
    const AttendParams *params;
    const KvPages *pages;
    const AttnPlan *plan;
    const float *q;
    uint32_t slot, position;
} Query;

/* To where the plan has the key stand, from where it is stored. */
static void move_key(const Query *query, uint32_t key, uint32_t sector_position, float *k)
{
    const AttnPlan *plan = query->plan;
    int64_t turn = (int64_t)sector_position - key / KV_SECTOR_TOKENS * KV_SECTOR_TOKENS;
    if (plan->positions == POSITIONS_GROUPED && query->position - key >= plan->recent)
        turn = plan_grouped_key_turn(plan, key) - plan_grouped_query_turn(plan, query->position);
    if (turn == 0) return;
    float cos_sin[KV_MAX_DIM];
    rope_turns_get(query->params->turns, turn, cos_sin);
    rope_turns_apply(query->params->turns, cos_sin, query->params->k_dim, k);
}

/* Key and value at a position as the query reads them; returns its score, with what is not finite made NaN. */
static double read_key(const Query *query, uint32_t key, float *ret_v)
{
    float k[KV_MAX_DIM];
    const KvLayout *layout;
    uint32_t own_page = query->position / KV_PAGE_TOKENS;
    uint32_t sector_position = plan_sector_position(query->plan, key / KV_SECTOR_TOKENS);
    uint32_t n_channels = plan_channels(query->plan, own_page, sector_position, query->params->k_dim);
    const char *slot = kv_pages_slot(query->pages, key / KV_PAGE_TOKENS, own_page, query->slot, &layout);
    kv_slot_get(layout, slot, key % KV_PAGE_TOKENS, k, ret_v);
    move_key(query, key, sector_position, k);
    double sum = 0, cap = query->params->softcap;
    for (uint32_t c = 0; c < n_channels; c++) sum += (double)query->q[c] * k[c];
    double scaled = isfinite(sum) ? query->params->scale * sum : (double)NAN;
    return cap > 0 ? cap * tanh(scaled / cap) : scaled;
}

/* Scores are formed twice so that no array of the context's length is needed. Returns the logarithm of their sum. */
static float attend_query(const Query *query, float *out)
{
    uint32_t v_dim = query->params->v_dim;
    float v[KV_MAX_DIM];
    double max = -INFINITY, sum = 0;
    for (uint32_t key = 0; key <= query->position; key++)
        if (plan_sees(query->plan, query->position, key)) max = fmax(max, read_key(query, key, v));
    for (uint32_t c = 0; c < v_dim; c++) out[c] = 0;
    for (uint32_t key = 0; key <= query->position; key++) {
        if (!plan_sees(query->plan, query->position, key)) continue;
        double weight = exp(read_key(query, key, v) - max);
        sum += weight;
        for (uint32_t c = 0; c < v_dim; c++) out[c] += (float)weight * v[c];
    }
    for (uint32_t c = 0; c < v_dim && sum != 0; c++) out[c] = (float)(out[c] / sum);
    return sum != 0 ? (float)(max + log(sum)) : -INFINITY;
}

bool attend_ref(const AttendParams *params)
{
    if (params->k_dim > KV_MAX_DIM || params->v_dim > KV_MAX_DIM) return false;
    uint32_t group = params->n_heads / params->n_kv_heads;
    for (uint32_t s = 0; s < params->n_spans; s++) {
        const KvSpan *span = &params->spans[s];
        for (uint32_t i = 0; i < span->n_rows * params->n_heads; i++) {
            size_t at = (size_t)span->first_row * params->n_heads + i;
            uint32_t kv_head = i % params->n_heads / group;
            const KvHead *head = &span->heads[kv_head];
            Query query = {.params = params,
                           .pages = &span->classes[head->class_index],
                           .plan = &span->plans[kv_head],
                           .q = params->q + at * params->k_dim,
                           .slot = head->slot,
                           .position = span->first_pos + i / params->n_heads};
            float lse = attend_query(&query, params->out + at * params->v_dim);
            if (params->lse) params->lse[at] = lse;
        }
    }
    return true;
}
