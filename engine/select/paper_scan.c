/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/paper_scan.h"

#include <math.h>
#include <string.h>

static float higher(float a, float b)
{
    return a > b ? a : b;
}

static void turn(const PaperInput *input, double tokens, float *x)
{
    float *pairs = x + input->dim - 2 * (size_t)input->n_pairs;
    for (uint32_t j = 0; j < input->n_pairs; j++) {
        double c = cos(tokens * input->theta[j]), s = sin(tokens * input->theta[j]);
        double x0 = (double)pairs[2 * j], x1 = (double)pairs[2 * j + 1];
        pairs[2 * j] = (float)(x0 * c - x1 * s);
        pairs[2 * j + 1] = (float)(x0 * s + x1 * c);
    }
}

const float *paper_scan_keys(const PaperInput *input, ScanPositions positions, Arena *arena)
{
    if (positions == SCAN_TRUE || input->n_pairs == 0) return input->k;
    size_t n = (size_t)input->n_kv_heads * input->n_keys;
    float *keys = arena_array(arena, n * input->dim, sizeof *keys);
    if (!keys) return NULL;
    memcpy(keys, input->k, n * input->dim * sizeof *keys);
    for (size_t i = 0; i < n; i++) turn(input, -(double)(i % input->n_keys), keys + i * input->dim);
    return keys;
}

/* How far the query of a row is turned from where it stands; rows that are averaged share the first one's place. */
static double query_turn(const PaperScan *scan, uint32_t row, uint32_t branch, uint32_t chunk, uint32_t n_chunks)
{
    uint32_t stride = scan->stage->row_stride ? scan->stage->row_stride : 1;
    double own = (double)scan->input->first_pos + row, shared = own - row % stride;
    if (scan->positions == SCAN_RELATIVE) return (double)scan->query_distance + 1 - branch - own;
    if (scan->positions == SCAN_CHUNK_INDEXED)
        return fmin(shared, (double)n_chunks + scan->query_distance) - chunk - own;
    return 0;
}

void paper_scan_set_queries(PaperScan *scan, uint32_t chunk, uint32_t n_chunks)
{
    const PaperInput *input = scan->input;
    uint32_t stride = scan->stage->row_stride ? scan->stage->row_stride : 1;
    size_t row_floats = (size_t)input->n_heads * input->dim;
    float turned[KV_MAX_DIM];
    scan->n_queries = (input->n_rows + stride - 1) / stride;
    for (uint32_t i = 0; i < 2 * scan->n_queries; i++) {
        uint32_t branch = i / scan->n_queries, first = i % scan->n_queries * stride;
        uint32_t n = input->n_rows - first < stride ? input->n_rows - first : stride;
        float *query = scan->queries + i * row_floats;
        memset(query, 0, row_floats * sizeof *query);
        for (uint32_t row = first; row < first + n; row++)
            for (uint32_t head = 0; head < input->n_heads; head++) {
                memcpy(turned, input->q + row * row_floats + (size_t)head * input->dim, input->dim * sizeof *turned);
                turn(input, query_turn(scan, row, branch, chunk, n_chunks), turned);
                for (uint32_t c = 0; c < input->dim; c++) query[(size_t)head * input->dim + c] += turned[c] / (float)n;
            }
    }
}

static const float *key_at(const PaperScan *scan, uint32_t head, uint32_t token)
{
    const PaperInput *input = scan->input;
    size_t kv_head = head / (input->n_heads / input->n_kv_heads);
    return scan->keys + (kv_head * input->n_keys + token) * input->dim;
}

static const float *query_at(const PaperScan *scan, uint32_t head, uint32_t branch, uint32_t i)
{
    const PaperInput *input = scan->input;
    return scan->queries + (((size_t)branch * scan->n_queries + i) * input->n_heads + head) * input->dim;
}

/* The highest q k of the head's queries as the branch turns them. */
static float score_token(const PaperScan *scan, uint32_t head, uint32_t token, uint32_t branch)
{
    const float *k = key_at(scan, head, token);
    float highest = -INFINITY;
    for (uint32_t i = 0; i < scan->n_queries; i++) {
        const float *q = query_at(scan, head, branch, i);
        float sum = 0;
        for (uint32_t c = 0; c < scan->input->dim; c++) sum += q[c] * k[c];
        highest = higher(highest, sum);
    }
    return highest;
}

/* Probes the first token of both halves until one token is left: its score (algorithm 3). */
static float scan_first(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end)
{
    float score = score_token(scan, head, from, 0);
    while (end - from > 1) {
        uint32_t middle = from + (end - from) / 2;
        float left = score_token(scan, head, from, 0), right = score_token(scan, head, middle, 1);
        score = higher(left, right);
        *(left > right ? &end : &from) = middle;
    }
    return score;
}

/* Probes the midpoints of both halves, once more when one token is left: the highest score of a half that won (A2). */
static float scan_midpoints(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end)
{
    float highest = -INFINITY;
    for (uint32_t size = end - from; size >= 1; size /= 2) {
        uint32_t middle = from + (end - from) / 2;
        float left = score_token(scan, head, from + (middle - from) / 2, 0);
        float right = score_token(scan, head, middle + (end - middle) / 2, 1);
        highest = higher(highest, higher(left, right));
        *(left > right ? &end : &from) = middle;
    }
    return highest;
}

static float scan_exact(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end)
{
    float highest = -INFINITY;
    for (uint32_t token = from; token < end; token++) highest = higher(highest, score_token(scan, head, token, 0));
    return highest;
}

/* What stands for the keys of a part in its score. */
typedef struct Summary {
    float max[KV_MAX_DIM], min[KV_MAX_DIM];
    double mean[KV_MAX_DIM];
} Summary;

static void summarise(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end, Summary *ret_summary)
{
    for (uint32_t c = 0; c < scan->input->dim; c++) {
        ret_summary->max[c] = -INFINITY;
        ret_summary->min[c] = INFINITY;
        ret_summary->mean[c] = 0;
    }
    for (uint32_t token = from; token < end; token++) {
        const float *k = key_at(scan, head, token);
        for (uint32_t c = 0; c < scan->input->dim; c++) {
            ret_summary->max[c] = higher(ret_summary->max[c], k[c]);
            ret_summary->min[c] = k[c] < ret_summary->min[c] ? k[c] : ret_summary->min[c];
            ret_summary->mean[c] += (double)k[c] / (end - from);
        }
    }
}

static double score_summary(ScanKind kind, const Summary *summary, const float *q, uint32_t dim)
{
    double sum = 0;
    for (uint32_t c = 0; c < dim; c++) {
        double a = (double)q[c] * (double)summary->max[c], b = (double)q[c] * (double)summary->min[c];
        sum += kind == SCAN_MEAN ? (double)q[c] * summary->mean[c] : kind == SCAN_BOX ? fmax(a, b) : (a + b) / 2;
    }
    return sum;
}

static float scan_summaries(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end)
{
    uint32_t part = scan->stage->part_tokens ? scan->stage->part_tokens : scan->stage->chunk_tokens;
    float highest = -INFINITY;
    Summary summary;
    for (uint32_t at = from; at < end; at += part) {
        summarise(scan, head, at, end - at < part ? end : at + part, &summary);
        for (uint32_t i = 0; i < scan->n_queries; i++) {
            const float *q = query_at(scan, head, 0, i);
            highest = higher(highest, (float)score_summary(scan->stage->scan, &summary, q, scan->input->dim));
        }
    }
    return highest;
}

float paper_scan_chunk(const PaperScan *scan, uint32_t head, uint32_t from, uint32_t end)
{
    static float (*const rows[SCAN_N_KINDS])(const PaperScan *, uint32_t, uint32_t, uint32_t) = {
        [SCAN_BOX] = scan_summaries,     [SCAN_CENTER] = scan_summaries,    [SCAN_MEAN] = scan_summaries,
        [SCAN_DESCENT] = scan_midpoints, [SCAN_DESCENT_FIRST] = scan_first, [SCAN_EXACT] = scan_exact,
    };
    return rows[scan->stage->scan](scan, head, from, end);
}
