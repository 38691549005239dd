/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/inspect_plan.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY_SHOWN = 8, NAME_POINTS = 65535, TEXT_POINTS = 1 << 20 };

/* cJSON keeps numbers as doubles; offsets and u64 keys must stay exact. */
static bool add_int(cJSON *object, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return cJSON_AddRawToObject(object, name, text);
}

static char *clean_string(GgufString bytes, size_t max_points, Error *error)
{
    Buffer text;
    buffer_init(&text, SIZE_MAX / 4);
    if (inspect_clean(&text, bytes, max_points, false, error)) return buffer_take(&text);
    buffer_done(&text);
    return NULL;
}

static cJSON *text_item(GgufString bytes, Error *error)
{
    char *text = clean_string(bytes, TEXT_POINTS, error);
    cJSON *item = text ? cJSON_CreateString(text) : NULL;
    free(text);
    return item;
}

static cJSON *number_item(const GgufKv *kv, uint64_t i)
{
    if (kv->type == GGUF_BOOL) return cJSON_CreateBool(gguf_int_at(kv, i) != 0);
    if (kv->type == GGUF_F32 || kv->type == GGUF_F64) {
        double value = gguf_float_at(kv, i);
        return isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull();
    }
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, gguf_int_at(kv, i));
    return cJSON_CreateRaw(text);
}

static cJSON *value_item(const GgufKv *kv, GgufStringIter *iter, uint64_t i, Error *error)
{
    return kv->type == GGUF_STRING ? text_item(gguf_next_string(iter), error) : number_item(kv, i);
}

/* A scalar as itself; an array as its type, length and first elements. */
static cJSON *kv_item(const GgufKv *kv, Error *error)
{
    GgufStringIter iter = {kv->data};
    if (!kv->is_array) return value_item(kv, &iter, 0, error);
    cJSON *item = cJSON_CreateObject();
    bool made =
        item && cJSON_AddStringToObject(item, "type", gguf_type_name(kv->type)) && add_int(item, "n", (int64_t)kv->n);
    cJSON *first = made ? cJSON_AddArrayToObject(item, "first") : NULL;
    made = first;
    for (uint64_t i = 0; made && i < kv->n && i < ARRAY_SHOWN; i++)
        made = cJSON_AddItemToArray(first, value_item(kv, &iter, i, error));
    if (made) return item;
    cJSON_Delete(item);
    return NULL;
}

static bool add_metadata(cJSON *root, const Gguf *gguf, Error *error)
{
    cJSON *metadata = cJSON_AddObjectToObject(root, "metadata");
    bool added = metadata;
    for (size_t i = 0; added && i < gguf_n_kv(gguf); i++) {
        const GgufKv *kv = gguf_kv_at(gguf, i);
        char *key = clean_string(kv->key, NAME_POINTS, error);
        cJSON *item = key ? kv_item(kv, error) : NULL;
        added = item && cJSON_AddItemToObject(metadata, key, item);
        free(key);
    }
    return added;
}

static bool add_tensors(cJSON *root, const Gguf *gguf, Error *error)
{
    cJSON *tensors = cJSON_AddArrayToObject(root, "tensors");
    bool added = tensors;
    for (size_t i = 0; added && i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        cJSON *item = cJSON_CreateObject(), *name = text_item(tensor->name, error);
        added = item && cJSON_AddItemToArray(tensors, item) && name && cJSON_AddItemToObject(item, "name", name) &&
                cJSON_AddStringToObject(item, "type", dtype_name(tensor->view.type).text) &&
                add_int(item, "offset", (int64_t)tensor->file_offset) &&
                add_int(item, "bytes", (int64_t)tensor->n_bytes);
        cJSON *dims = added ? cJSON_AddArrayToObject(item, "dims") : NULL;
        for (uint32_t d = 0; dims && d < tensor->view.n_dims; d++)
            added = added && cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)tensor->view.dim[d]));
        added = added && dims;
    }
    return added;
}

static bool add_types(cJSON *root, const Inspection *inspection)
{
    cJSON *types = cJSON_AddArrayToObject(root, "types");
    bool added = types;
    for (size_t i = 0; added && i < inspection->n_types; i++) {
        const InspectType *type = &inspection->types[i];
        cJSON *item = cJSON_CreateObject();
        added = cJSON_AddItemToArray(types, item) &&
                cJSON_AddStringToObject(item, "type", dtype_name(type->type).text) &&
                add_int(item, "tensors", (int64_t)type->n_tensors) &&
                add_int(item, "parameters", (int64_t)type->n_params) && add_int(item, "bytes", (int64_t)type->n_bytes);
    }
    return added;
}

static bool add_file(cJSON *root, const Inspection *inspection, Error *error)
{
    const Gguf *gguf = inspection->gguf;
    cJSON *path = text_item((GgufString){gguf_path(gguf), strlen(gguf_path(gguf))}, error);
    return path && cJSON_AddItemToObject(root, "file", path) &&
           add_int(root, "file_bytes", (int64_t)gguf_file_bytes(gguf)) &&
           add_int(root, "gguf_version", gguf_version(gguf)) &&
           add_int(root, "n_tensors", (int64_t)gguf_n_tensors(gguf)) &&
           add_int(root, "weight_bytes", (int64_t)inspection->weight_bytes) && add_metadata(root, gguf, error) &&
           add_types(root, inspection) && (!inspection->config->tensors || add_tensors(root, gguf, error));
}

static bool add_shape(cJSON *root, const ModelShape *s, Error *error)
{
    cJSON *shape = cJSON_AddObjectToObject(root, "shape");
    if (!shape) return false;
    cJSON *name = text_item((GgufString){s->name, strlen(s->name)}, error);
    const struct {
        const char *name;
        uint32_t value;
    } ints[] = {
        {"n_layers", s->n_layers},
        {"n_embd", s->n_embd},
        {"n_ff", s->n_ff},
        {"n_vocab", s->n_vocab},
        {"n_heads", s->n_heads},
        {"n_kv_heads", s->n_kv_heads},
        {"head_dim", s->head_dim},
        {"v_dim", s->v_dim},
        {"rope_dim", s->rope_dim},
        {"train_context", s->train_context},
        {"window_tokens", s->window_tokens},
    };
    bool added = name && cJSON_AddItemToObject(shape, "name", name) &&
                 cJSON_AddStringToObject(shape, "architecture", s->architecture);
    for (size_t i = 0; added && i < sizeof ints / sizeof *ints; i++)
        added = add_int(shape, ints[i].name, ints[i].value);
    return added && cJSON_AddNumberToObject(shape, "rope_base", s->rope_base) &&
           cJSON_AddNumberToObject(shape, "rope_linear_factor", s->rope_linear_factor) &&
           cJSON_AddNumberToObject(shape, "rope_llama3_factor", s->rope_llama3.factor) &&
           cJSON_AddNumberToObject(shape, "rope_yarn_factor", s->rope_yarn.factor) &&
           cJSON_AddBoolToObject(shape, "tied_output", s->tied_output);
}

static bool add_memory(cJSON *root, const Inspection *inspection)
{
    cJSON *memory = cJSON_AddObjectToObject(root, "memory");
    if (!memory || !add_int(memory, "context", (int64_t)inspection->context)) return false;
    cJSON *rows = cJSON_AddArrayToObject(memory, "kv");
    bool added = rows;
    InspectKv kv;
    for (uint32_t i = 0; added && inspect_kv_at(inspection, i, &kv); i++) {
        uint64_t bytes = kv_tokens_bytes(inspection->shape, &kv.types, inspection->context);
        cJSON *row = cJSON_CreateObject();
        added = cJSON_AddItemToArray(rows, row) && cJSON_AddStringToObject(row, "type", kv.name) &&
                cJSON_AddBoolToObject(row, "selected", kv.is_selected) &&
                add_int(row, "bytes_per_token", (int64_t)kv_token_bytes(inspection->shape, &kv.types)) &&
                add_int(row, "kv_bytes", (int64_t)bytes) &&
                add_int(row, "total_bytes", (int64_t)(bytes + inspection->weight_bytes));
    }
    return added;
}

static bool add_count(cJSON *object, const char *name, WaveCount count)
{
    cJSON *item = cJSON_AddObjectToObject(object, name);
    return item && add_int(item, "kept", (int64_t)count.kept) && add_int(item, "total", (int64_t)count.total) &&
           cJSON_AddNumberToObject(item, "pruned", inspect_pruned(count));
}

static bool add_counts(cJSON *object, const char *name, WaveCount prefill, WaveCount row)
{
    cJSON *item = cJSON_AddObjectToObject(object, name);
    return item && add_count(item, "prefill", prefill) && add_count(item, "last_row", row);
}

static bool add_closed_form(cJSON *object, const InspectWaves *waves)
{
    if (!waves->has_closed_form) return cJSON_AddNullToObject(object, "closed_form");
    cJSON *item = cJSON_AddObjectToObject(object, "closed_form");
    return item && cJSON_AddNumberToObject(item, "prefill", waves->closed_prefill) &&
           cJSON_AddNumberToObject(item, "last_row", waves->closed_row);
}

static bool add_waves(cJSON *root, const Inspection *inspection)
{
    const InspectWaves *waves = inspection->waves;
    cJSON *object = cJSON_AddObjectToObject(root, "wavelength");
    bool added = object && cJSON_AddNumberToObject(object, "k", (double)inspection->config->wavelength_k) &&
                 add_int(object, "context", (int64_t)inspection->context) && add_int(object, "layers", waves->n_layers);
    if (!added || !waves->n_layers) return added;
    added = add_counts(object, "exact", waves->exact_prefill, waves->exact_row) && add_closed_form(object, waves) &&
            add_counts(object, "bands", waves->bands_prefill, waves->bands_row);
    cJSON *table = added ? cJSON_AddArrayToObject(object, "table") : NULL;
    for (uint32_t i = 0; table && added && i < waves->n_bands; i++) {
        cJSON *row = cJSON_CreateObject();
        added = cJSON_AddItemToArray(table, row) && add_int(row, "first_distance", waves->bands[i].first_distance) &&
                add_int(row, "channels", waves->bands[i].n_channels);
    }
    return table && added;
}

static bool fill(cJSON *root, const Inspection *inspection, Error *error)
{
    if (!add_int(root, "parameters", (int64_t)inspection->n_params)) return false;
    if (inspection->gguf && !add_file(root, inspection, error)) return false;
    if (!inspection->shape) return cJSON_AddStringToObject(root, "cannot_run", inspection->shape_error.text);
    return add_shape(root, inspection->shape, error) && add_memory(root, inspection) &&
           (!inspection->waves || add_waves(root, inspection)) &&
           (!inspection->plan || plan_add_json(inspection->plan, root));
}

bool inspect_write_json(const Inspection *inspection, Buffer *out, Error *error)
{
    cJSON *root = cJSON_CreateObject();
    char *text = root && fill(root, inspection, error) ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text) return error_set(error, ERR_NO_MEMORY, "no memory for the JSON text");
    bool written = buffer_append_text(out, text, error) && buffer_append_text(out, "\n", error);
    cJSON_free(text);
    return written;
}
