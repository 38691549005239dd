/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/calibration.h"

#include "engine/eval/files.h"
#include "engine/eval/gates.h"
#include "engine/eval/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNT = 1 << 24, MAX_CHECKED = 64, MODEL_CHARS = 24 };
static const double MAX_REAL = 1e12;

static bool no_memory(Error *error)
{
    return error_set(error, ERR_NO_MEMORY, "no memory for the calibration");
}

static uint32_t n_heads_of(const Calibration *c)
{
    return c->n_layers * c->n_kv_heads;
}

bool calibration_init(Calibration *calibration, uint32_t n_layers, uint32_t n_kv_heads, uint32_t n_prompts,
                      cJSON *method, Error *error)
{
    size_t n_heads = (size_t)n_layers * n_kv_heads, n_losses = n_heads * n_prompts;
    Calibration c = {.method = method, .n_layers = n_layers, .n_kv_heads = n_kv_heads, .n_prompts = n_prompts};
    c.losses = malloc((n_losses + 1) * sizeof *c.losses);
    c.is_ranked = malloc(n_heads * sizeof *c.is_ranked);
    c.streams = calloc(n_heads, sizeof *c.streams);
    c.cells = calloc(CALIBRATION_MAX_CELLS, sizeof *c.cells);
    c.checked = calloc(MAX_CHECKED, sizeof *c.checked);
    if (!c.losses || !c.is_ranked || !c.streams || !c.cells || !c.checked) {
        calibration_done(&c);
        return no_memory(error);
    }
    for (size_t i = 0; i < n_losses; i++) c.losses[i] = NAN;
    for (size_t i = 0; i < n_heads; i++) c.is_ranked[i] = true;
    *calibration = c;
    return true;
}

void calibration_done(Calibration *calibration)
{
    cJSON_Delete(calibration->method);
    free(calibration->losses);
    free(calibration->gates);
    free(calibration->is_ranked);
    free(calibration->streams);
    free(calibration->checked);
    free(calibration->cells);
    *calibration = (Calibration){0};
}

void calibration_scores(const Calibration *c, double *ret_scores)
{
    for (uint32_t head = 0; head < n_heads_of(c); head++) {
        double sum = 0;
        for (uint32_t p = 0; p < c->n_prompts; p++) sum += c->losses[(size_t)head * c->n_prompts + p];
        double score = c->gates ? c->gates[head] : sum / c->n_prompts;
        ret_scores[head] = c->is_ranked[head] ? score : NAN;
    }
}

const CrossoverCell *calibration_cell(const Calibration *c, const char *policy, uint32_t length)
{
    for (uint32_t i = 0; i < c->n_cells; i++)
        if (c->cells[i].length == length && !strcmp(c->cells[i].policy, policy)) return &c->cells[i];
    return NULL;
}

static bool is_worth_it(const CrossoverCell *cell)
{
    return cell->usec < cell->dense_usec && cell->right >= cell->dense_right;
}

uint32_t calibration_crossover(const Calibration *c, const char *policy)
{
    uint32_t too_short = 0, first = 0;
    for (uint32_t i = 0; i < c->n_cells; i++) {
        const CrossoverCell *cell = &c->cells[i];
        if (!strcmp(cell->policy, policy) && !is_worth_it(cell) && cell->length > too_short) too_short = cell->length;
    }
    for (uint32_t i = 0; i < c->n_cells; i++) {
        const CrossoverCell *cell = &c->cells[i];
        if (!strcmp(cell->policy, policy) && cell->length > too_short && (!first || cell->length < first))
            first = cell->length;
    }
    return first;
}

/* ---- reading ---- */

static bool refuse(const char *member, const char *why, Error *error)
{
    return error_set(error, ERR_INVALID, "'%s' %s", member, why);
}

static bool read_real(const cJSON *item, const char *member, double *value, Error *error)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, member);
    if (!cJSON_IsNumber(found) || !(fabs(found->valuedouble) <= MAX_REAL)) return refuse(member, "is no number", error);
    *value = found->valuedouble;
    return true;
}

static bool read_count(const cJSON *item, const char *member, uint32_t limit, uint32_t *value, Error *error)
{
    double x = 0;
    if (!read_real(item, member, &x, error)) return false;
    if (!(x >= 0 && x < limit) || x != (double)(uint32_t)x) return refuse(member, "is no number in range", error);
    *value = (uint32_t)x;
    return true;
}

static bool read_text(const cJSON *item, const char *member, char *text, size_t size, Error *error)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, member);
    if (!cJSON_IsString(found) || strlen(found->valuestring) >= size) return refuse(member, "is no name", error);
    snprintf(text, size, "%s", found->valuestring);
    return true;
}

/* {"layer": 3, "head": 1, "loss": 0.02, "losses": [0.01, 0.03]} */
static bool read_head(const cJSON *item, Calibration *c, Error *error)
{
    uint32_t layer, head, n = 0;
    if (!read_count(item, "layer", c->n_layers, &layer, error) ||
        !read_count(item, "head", c->n_kv_heads, &head, error))
        return false;
    const cJSON *losses = cJSON_GetObjectItemCaseSensitive(item, "losses");
    if (!cJSON_IsArray(losses)) return refuse("losses", "is no list", error);
    double *own = c->losses + ((size_t)layer * c->n_kv_heads + head) * c->n_prompts;
    for (const cJSON *one = losses->child; one; one = one->next) {
        if (n == c->n_prompts || !cJSON_IsNumber(one) || !(fabs(one->valuedouble) <= MAX_REAL))
            return refuse("losses", "has what is no number, or too many", error);
        own[n++] = one->valuedouble;
    }
    return true;
}

static bool read_checked(const cJSON *item, Calibration *c, Error *error)
{
    CheckedTask *task = &c->checked[c->n_checked];
    if (c->n_checked == MAX_CHECKED) return refuse("tasks", "has too many", error);
    if (!read_text(item, "task", task->task, sizeof task->task, error) ||
        !read_count(item, "questions", MAX_COUNT, &task->questions, error) ||
        !read_count(item, "dense_right", MAX_COUNT, &task->dense_right, error) ||
        !read_count(item, "right", MAX_COUNT, &task->right, error) || !read_real(item, "loss", &task->loss, error))
        return false;
    c->n_checked++;
    return true;
}

static bool read_cell(const cJSON *item, Calibration *c, Error *error)
{
    CrossoverCell *cell = &c->cells[c->n_cells];
    if (c->n_cells == CALIBRATION_MAX_CELLS) return refuse("cells", "has too many", error);
    if (!read_text(item, "policy", cell->policy, sizeof cell->policy, error) ||
        !read_count(item, "length", MAX_COUNT, &cell->length, error) ||
        !read_count(item, "questions", MAX_COUNT, &cell->questions, error) ||
        !read_count(item, "dense_right", MAX_COUNT, &cell->dense_right, error) ||
        !read_count(item, "right", MAX_COUNT, &cell->right, error) ||
        !read_real(item, "dense_usec", &cell->dense_usec, error) || !read_real(item, "usec", &cell->usec, error))
        return false;
    c->n_cells++;
    return true;
}

static bool read_items(const cJSON *list, const char *member, bool (*read)(const cJSON *, Calibration *, Error *),
                       Calibration *c, Error *error)
{
    if (list && !cJSON_IsArray(list)) return refuse(member, "is no list", error);
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
        if (!read(item, c, error)) return error_prefix(error, "'%s'", member);
    return true;
}

static bool check_model(const cJSON *root, const Calibration *c, Error *error)
{
    char own[MODEL_CHARS], model[MODEL_CHARS];
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "longwave_calibration");
    if (!cJSON_IsNumber(version) || version->valuedouble != 1)
        return error_set(error, ERR_INVALID, "is no file of longwave calibrate");
    if (!read_text(root, "model", model, sizeof model, error)) return false;
    snprintf(own, sizeof own, "%016" PRIx64, c->model);
    return !strcmp(own, model) || error_set(error, ERR_INVALID, "is of the model %s, not of %s", model, own);
}

static bool read_root(const cJSON *root, Calibration *c, Error *error)
{
    double sparsity = 0;
    if (!check_model(root, c, error) ||
        !results_same_identity(c->method, cJSON_GetObjectItemCaseSensitive(root, "method"), error) ||
        !read_real(root, "sparsity", &sparsity, error))
        return false;
    if (!c->gates && !read_items(cJSON_GetObjectItemCaseSensitive(root, "ranking"), "ranking", read_head, c, error))
        return false;
    const cJSON *check = cJSON_GetObjectItemCaseSensitive(root, "check");
    if (sparsity == c->sparsity &&
        !read_items(cJSON_GetObjectItemCaseSensitive(check, "tasks"), "check", read_checked, c, error))
        return false;
    const cJSON *crossover = cJSON_GetObjectItemCaseSensitive(root, "crossover");
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(crossover, "machine");
    if (sparsity != c->sparsity || !cJSON_IsString(machine) || strcmp(machine->valuestring, c->machine)) return true;
    return read_items(cJSON_GetObjectItemCaseSensitive(crossover, "cells"), "crossover", read_cell, c, error);
}

bool calibration_parse(const char *text, size_t n, Calibration *calibration, Error *error)
{
    cJSON *root;
    if (!results_read_json(text, n, &root, error)) return false;
    bool ok = read_root(root, calibration, error);
    cJSON_Delete(root);
    return ok;
}

bool calibration_parse_cells(const char *text, size_t n, uint64_t model, Calibration *ret_calibration, Error *error)
{
    Calibration c = {.model = model, .cells = calloc(CALIBRATION_MAX_CELLS, sizeof *c.cells)};
    if (!c.cells) return no_memory(error);
    cJSON *root = NULL;
    bool ok = results_read_json(text, n, &root, error);
    const cJSON *crossover = cJSON_GetObjectItemCaseSensitive(root, "crossover");
    ok = ok && check_model(root, &c, error) &&
         read_items(cJSON_GetObjectItemCaseSensitive(crossover, "cells"), "crossover", read_cell, &c, error);
    cJSON_Delete(root);
    if (ok)
        *ret_calibration = c;
    else
        calibration_done(&c);
    return ok;
}

bool calibration_load(const char *path, Calibration *calibration, Error *error)
{
    Buffer text;
    buffer_init(&text, CALIBRATION_MAX_BYTES);
    bool ok = file_read(path, &text, error);
    if (!ok && error->code == ERR_NOT_FOUND)
        ok = true;
    else
        ok = ok && (calibration_parse(text.n ? text.data : "", text.n, calibration, error) ||
                    error_prefix(error, "%s", path));
    buffer_done(&text);
    return ok;
}

/* ---- writing ---- */

static cJSON *add_item(cJSON *list)
{
    cJSON *item = cJSON_CreateObject();
    if (item && cJSON_AddItemToArray(list, item)) return item;
    cJSON_Delete(item);
    return NULL;
}

static bool write_streaming(const Calibration *c, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "streaming");
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        const uint8_t *streams = c->streams + (size_t)layer * c->n_kv_heads;
        cJSON *heads = NULL;
        for (uint32_t head = 0; head < c->n_kv_heads; head++) {
            if (!streams[head]) continue;
            cJSON *item = heads || !list ? NULL : add_item(list);
            if (item && cJSON_AddNumberToObject(item, "layer", layer)) heads = cJSON_AddArrayToObject(item, "heads");
            cJSON *number = heads ? cJSON_CreateNumber(head) : NULL;
            if (!number) return false;
            if (!cJSON_AddItemToArray(heads, number)) return false;
        }
    }
    return list;
}

static bool write_losses(const Calibration *c, uint32_t head, double score, cJSON *item)
{
    const double *losses = c->losses + (size_t)head * c->n_prompts;
    uint32_t n = 0;
    while (n < c->n_prompts && !isnan(losses[n])) n++;
    if (n == c->n_prompts && !cJSON_AddNumberToObject(item, "loss", score)) return false;
    cJSON *list = cJSON_CreateDoubleArray(losses, (int)n);
    if (list && cJSON_AddItemToObject(item, "losses", list)) return true;
    cJSON_Delete(list);
    return false;
}

static bool write_head(const Calibration *c, uint32_t head, double score, cJSON *list)
{
    cJSON *item = add_item(list);
    if (!item || !cJSON_AddNumberToObject(item, "layer", head / c->n_kv_heads) ||
        !cJSON_AddNumberToObject(item, "head", head % c->n_kv_heads))
        return false;
    return c->gates ? cJSON_AddNumberToObject(item, "gate", score) != NULL : write_losses(c, head, score, item);
}

/* Those that stream first come first; while some are not measured, all in their own order. */
static bool write_ranking(const Calibration *c, cJSON *root, Error *error)
{
    uint32_t n = n_heads_of(c), n_order, *order;
    double *scores = malloc(n * sizeof *scores);
    cJSON *list = cJSON_AddArrayToObject(root, "ranking");
    bool ok = scores && list;
    if (!ok) no_memory(error);
    if (ok) calibration_scores(c, scores);
    ok = ok && heads_order(scores, n, &order, &n_order, error);
    if (ok) {
        for (uint32_t i = 0; ok && i < n_order; i++) ok = write_head(c, order[i], scores[order[i]], list);
        for (uint32_t head = 0; ok && head < n; head++)
            if (c->is_ranked[head] && isnan(scores[head])) ok = write_head(c, head, scores[head], list);
        free(order);
        if (!ok) no_memory(error);
    }
    free(scores);
    return ok;
}

static bool write_check(const Calibration *c, cJSON *root)
{
    cJSON *check = cJSON_AddObjectToObject(root, "check");
    cJSON *tasks = check ? cJSON_AddArrayToObject(check, "tasks") : NULL;
    for (uint32_t i = 0; tasks && i < c->n_checked; i++) {
        const CheckedTask *task = &c->checked[i];
        cJSON *item = add_item(tasks);
        if (!item || !cJSON_AddStringToObject(item, "task", task->task) ||
            !cJSON_AddNumberToObject(item, "questions", task->questions) ||
            !cJSON_AddNumberToObject(item, "dense_right", task->dense_right) ||
            !cJSON_AddNumberToObject(item, "right", task->right) || !cJSON_AddNumberToObject(item, "loss", task->loss))
            return false;
    }
    return tasks;
}

static bool write_cell(const CrossoverCell *cell, cJSON *list)
{
    cJSON *item = add_item(list);
    return item && cJSON_AddStringToObject(item, "policy", cell->policy) &&
           cJSON_AddNumberToObject(item, "length", cell->length) &&
           cJSON_AddNumberToObject(item, "questions", cell->questions) &&
           cJSON_AddNumberToObject(item, "dense_right", cell->dense_right) &&
           cJSON_AddNumberToObject(item, "right", cell->right) &&
           cJSON_AddNumberToObject(item, "dense_usec", cell->dense_usec) &&
           cJSON_AddNumberToObject(item, "usec", cell->usec);
}

static bool write_crossover(const Calibration *c, cJSON *root)
{
    cJSON *crossover = cJSON_AddObjectToObject(root, "crossover");
    if (!crossover || !cJSON_AddStringToObject(crossover, "machine", c->machine)) return false;
    cJSON *from = cJSON_AddObjectToObject(crossover, "from"), *cells = cJSON_AddArrayToObject(crossover, "cells");
    if (!from || !cells) return false;
    for (uint32_t i = 0; i < c->n_cells; i++) {
        const char *policy = c->cells[i].policy;
        uint32_t first = calibration_crossover(c, policy);
        if (!write_cell(&c->cells[i], cells)) return false;
        if (cJSON_GetObjectItemCaseSensitive(from, policy)) continue;
        if (!(first ? cJSON_AddNumberToObject(from, policy, first) : cJSON_AddNullToObject(from, policy))) return false;
    }
    return true;
}

static bool write_head_of_file(const Calibration *c, cJSON *root)
{
    char model[MODEL_CHARS];
    snprintf(model, sizeof model, "%016" PRIx64, c->model);
    cJSON *method = cJSON_Duplicate(c->method, true);
    if (!cJSON_AddNumberToObject(root, "longwave_calibration", 1) || !cJSON_AddStringToObject(root, "model", model) ||
        !method || !cJSON_AddItemToObject(root, "method", method)) {
        cJSON_Delete(method);
        return false;
    }
    return cJSON_AddNumberToObject(root, "sparsity", c->sparsity) && cJSON_AddNumberToObject(root, "sink", c->sink) &&
           cJSON_AddNumberToObject(root, "recent", c->recent) &&
           cJSON_AddNumberToObject(root, "recent_prefill", c->recent_prefill);
}

bool calibration_json(const Calibration *calibration, cJSON **ret_root, Error *error)
{
    cJSON *root = cJSON_CreateObject();
    const Calibration *c = calibration;
    bool ok = root && write_head_of_file(c, root) && (!c->is_complete || write_streaming(c, root)) &&
              write_check(c, root) && write_crossover(c, root);
    if (!ok) no_memory(error);
    if (ok && write_ranking(c, root, error)) {
        *ret_root = root;
        return true;
    }
    cJSON_Delete(root);
    return false;
}

bool calibration_save(const Calibration *calibration, const char *path, Error *error)
{
    cJSON *root;
    if (!calibration_json(calibration, &root, error)) return false;
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return no_memory(error);
    bool ok = file_replace(path, text, strlen(text), error);
    cJSON_free(text);
    return ok;
}
