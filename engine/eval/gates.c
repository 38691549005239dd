/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/gates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the reading is. */
typedef struct GateText {
    const char *at, *line_start, *end;
    uint32_t line;
} GateText;

static bool refuse(const GateText *text, const char *at, const char *why, Error *error)
{
    return error_set_param(error, ERR_INVALID, "gates", "line %u, column %zu: %s", text->line,
                           (size_t)(at - text->line_start) + 1, why);
}

/* strtod would take hex numbers, names and what the locale makes of a point. */
static bool is_number(const char *text, size_t n)
{
    static const char signs[] = "+-";
    size_t at = n && memchr(signs, text[0], 2) ? 1 : 0, digits = 0;
    for (; at < n && text[at] >= '0' && text[at] <= '9'; at++) digits++;
    if (at < n && text[at] == '.')
        for (at++; at < n && text[at] >= '0' && text[at] <= '9'; at++) digits++;
    if (!digits || at == n) return digits;
    if (text[at] != 'e' && text[at] != 'E') return false;
    at += at + 1 < n && memchr(signs, text[at + 1], 2) ? 2 : 1;
    size_t first = at;
    while (at < n && text[at] >= '0' && text[at] <= '9') at++;
    return at == n && at > first;
}

static bool read_gate(GateText *text, double *ret_gate, Error *error)
{
    char number[GATES_MAX_NUMBER];
    const char *start = text->at, *at = start;
    while (at < text->end && *at != '\t' && *at != '\n' && *at != '\r') at++;
    size_t n = (size_t)(at - start);
    if (n >= sizeof number || !is_number(start, n)) return refuse(text, start, "not a number", error);
    memcpy(number, start, n);
    number[n] = '\0';
    double gate = strtod(number, NULL);
    if (!isfinite(gate)) return refuse(text, start, "not a number that a gate can have", error);
    *ret_gate = gate < 0 ? 0 : gate > 1 ? 1 : gate;
    text->at = at;
    return true;
}

static bool read_line(GateText *text, uint32_t n_kv_heads, double *gates, Error *error)
{
    text->line++;
    text->line_start = text->at;
    for (uint32_t head = 0; head < n_kv_heads; head++) {
        if (!read_gate(text, &gates[head], error)) return false;
        bool is_tab = text->at < text->end && *text->at == '\t';
        if (is_tab && head + 1 == n_kv_heads)
            return refuse(text, text->at, "more numbers than the model has KV heads", error);
        if (!is_tab && head + 1 < n_kv_heads)
            return refuse(text, text->at, "fewer numbers than the model has KV heads", error);
        if (is_tab) text->at++;
    }
    if (text->at < text->end && *text->at == '\r') text->at++;
    if (text->at == text->end) return true;
    return *text->at++ == '\n' || refuse(text, text->at - 1, "something behind the last number", error);
}

bool gates_parse(const char *text, size_t n, uint32_t n_layers, uint32_t n_kv_heads, double *ret_gates, Error *error)
{
    GateText reading = {.at = text, .line_start = text, .end = text + n};
    size_t n_gates = (size_t)n_layers * n_kv_heads;
    double *gates = calloc(n_gates, sizeof *gates);
    if (!gates) return error_set(error, ERR_NO_MEMORY, "no memory for the gates");
    bool ok = true;
    for (uint32_t layer = 0; ok && layer < n_layers; layer++) {
        if (reading.at == reading.end)
            ok = error_set_param(error, ERR_INVALID, "gates", "line %u is missing: the model has %u layers",
                                 reading.line + 1, n_layers);
        ok = ok && read_line(&reading, n_kv_heads, gates + (size_t)layer * n_kv_heads, error);
    }
    /* Empty lines may end a file. */
    while (ok && reading.at < reading.end && strchr("\r\n", *reading.at) && *reading.at) reading.at++;
    if (ok && reading.at < reading.end)
        ok = error_set_param(error, ERR_INVALID, "gates", "line %u: the model has %u layers", reading.line + 1,
                             n_layers);
    if (ok) memcpy(ret_gates, gates, n_gates * sizeof *gates);
    free(gates);
    return ok;
}

typedef struct Scored {
    double score;
    uint32_t head;
} Scored;

static int compare(const void *left, const void *right)
{
    const Scored *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? -1 : 1;
    return a->head < b->head ? -1 : 1;
}

bool heads_order(const double *scores, uint32_t n, uint32_t **ret_order, uint32_t *ret_n, Error *error)
{
    Scored *scored = malloc((n + 1) * sizeof *scored);
    uint32_t *order = malloc((n + 1) * sizeof *order), n_scored = 0;
    if (!scored || !order) {
        free(scored);
        free(order);
        return error_set(error, ERR_NO_MEMORY, "no memory for the order of %u heads", n);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(scores[i])) scored[n_scored++] = (Scored){scores[i], i};
    qsort(scored, n_scored, sizeof *scored, compare);
    for (uint32_t i = 0; i < n_scored; i++) order[i] = scored[i].head;
    free(scored);
    *ret_order = order;
    *ret_n = n_scored;
    return true;
}

bool heads_choose(const double *scores, uint32_t n, double sparsity, uint8_t *ret_streams, Error *error)
{
    uint32_t *order, n_order;
    if (!heads_order(scores, n, &order, &n_order, error)) return false;
    /* With n different scores so many are below the quantile, which lies at sparsity * (n - 1) among them. */
    uint32_t n_streaming = n_order ? (uint32_t)ceil(sparsity * (n_order - 1)) : 0;
    memset(ret_streams, 0, n);
    for (uint32_t i = 0; i < n_streaming; i++) ret_streams[order[i]] = 1;
    free(order);
    return true;
}
