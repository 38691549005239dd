/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/inspect.h"
#include "engine/model/rope_override.h"
#include "engine/model/weights.h"
#include "base/utf8.h"
#include "server/cmd/cmd.h"
#include "server/cmd/inspect_plan.h"

#include <stdio.h>
#include <string.h>

enum { MAX_OUTPUT_BYTES = 1 << 30 };

bool inspect_clean(Buffer *out, GgufString bytes, size_t max_points, bool one_line, Error *error)
{
    const uint8_t *at = (const uint8_t *)bytes.data, *end = at + bytes.n;
    for (size_t len, n_points = 0; at < end; at += len, n_points++) {
        if (n_points == max_points) return buffer_append_text(out, "...", error);
        bool is_whole = utf8_step(at, (size_t)(end - at), &len) == UTF8_WHOLE && *at;
        if (!(is_whole && !one_line ? buffer_append(out, at, len, error) : buffer_append_clean(out, at, len, error)))
            return false;
    }
    return true;
}

static void count_types(Inspection *inspection)
{
    for (size_t i = 0; i < gguf_n_tensors(inspection->gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(inspection->gguf, i);
        const TensorView *view = &tensor->view;
        uint64_t n_params = view->dim[0] * view->dim[1] * view->dim[2] * view->dim[3];
        size_t t = 0;
        inspection->n_params += n_params;
        inspection->weight_bytes += tensor->n_bytes;
        while (t < inspection->n_types && inspection->types[t].type != view->type) t++;
        if (t == INSPECT_MAX_TYPES) continue;
        if (t == inspection->n_types) inspection->types[inspection->n_types++].type = view->type;
        inspection->types[t].n_tensors++;
        inspection->types[t].n_params += n_params;
        inspection->types[t].n_bytes += tensor->n_bytes;
    }
}

bool inspect_kv_at(const Inspection *inspection, uint32_t i, InspectKv *ret_row)
{
    const KvTypes *chosen = &inspection->kv_types;
    bool is_mixed = false;
    for (int kind = 1; kind < KV_N_KINDS; kind++) is_mixed |= chosen->of[kind] != chosen->of[0];
    if (i < KV_N_TYPES)
        *ret_row = (InspectKv){kv_type_info(i)->name, kv_types_all(i), !is_mixed && i == chosen->of[0]};
    else
        *ret_row = (InspectKv){inspection->config->kv_type, *chosen, true};
    return i < KV_N_TYPES || (i == KV_N_TYPES && is_mixed);
}

static bool count_waves(const Inspection *inspection, InspectWaves *ret_waves, Error *error)
{
    const ModelShape *shape = inspection->shape;
    const double k = (double)inspection->config->wavelength_k;
    const Wavelength rule = {.k_prefill = k, .k_decode = k};
    uint32_t n = (uint32_t)inspection->context, layer = shape->n_layers;
    *ret_waves = (InspectWaves){.head = {ret_waves->theta, shape->rope_dim / 2, shape->head_dim}};
    for (uint32_t i = shape->n_layers; i-- > 0;)
        if (!shape_layer_window(shape, i)) {
            ret_waves->n_layers++;
            layer = i;
        }
    if (layer == shape->n_layers) return true;
    const WaveHead *head = &ret_waves->head;
    if (!wavelength_layer_theta(shape, inspection->gguf, layer, ret_waves->theta, error)) return false;
    ret_waves->n_bands = wavelength_bands(&rule, k, head, ret_waves->bands);
    ret_waves->exact_prefill = wavelength_count_exact(&rule, k, head, 0, n);
    ret_waves->exact_row = wavelength_count_exact(&rule, k, head, n - 1, 1);
    ret_waves->bands_prefill = wavelength_count_bands(ret_waves->bands, ret_waves->n_bands, shape->head_dim, 0, n);
    ret_waves->bands_row = wavelength_count_bands(ret_waves->bands, ret_waves->n_bands, shape->head_dim, n - 1, 1);
    ret_waves->has_closed_form =
        wavelength_closed_form(&rule, k, head, n, &ret_waves->closed_prefill, &ret_waves->closed_row);
    return true;
}

double inspect_pruned(WaveCount count)
{
    return 1 - (double)count.kept / (double)count.total;
}

static bool print_inspection(Inspection *inspection, Error *error)
{
    const Config *config = inspection->config;
    InspectWaves waves;
    if (!kv_types_parse(config->kv_type, &inspection->kv_types, error)) return false;
    if (inspection->shape) inspection->context = config->context ? config->context : inspection->shape->train_context;
    if (inspection->shape && config->wavelength) {
        if (!count_waves(inspection, &waves, error)) return false;
        inspection->waves = &waves;
    }
    static Plan plan; /* large */
    if (inspection->shape && config->plan) {
        if (!plan_make(inspection, &plan, error)) return false;
        inspection->plan = &plan;
    }
    Buffer out;
    buffer_init(&out, MAX_OUTPUT_BYTES);
    bool written =
        config->json ? inspect_write_json(inspection, &out, error) : inspect_write_text(inspection, &out, error);
    if (written && fwrite(out.data, 1, out.n, stdout) != out.n)
        written = error_set(error, ERR_IO, "cannot write the output");
    buffer_done(&out);
    return written;
}

static bool override_rope(const Config *config, ModelShape *shape, Error *error)
{
    RopeOverride rope;
    return !config->rope ||
           (rope_override_parse(config->rope, &rope, error) && rope_override_apply(&rope, shape, error));
}

static bool inspect_file(const Config *config, Error *error)
{
    Gguf *gguf;
    if (!gguf_open(config->model, &gguf, error)) return false;
    Inspection inspection = {.config = config, .gguf = gguf};
    const ModelFamily *family;
    ModelShape shape;
    if (family_find(gguf, &family, &inspection.shape_error) &&
        family_read_shape(family, gguf, &shape, &inspection.shape_error) &&
        override_rope(config, &shape, &inspection.shape_error) && weights_check_types(gguf, &inspection.shape_error))
        inspection.shape = &shape;
    count_types(&inspection);
    bool printed = print_inspection(&inspection, error);
    gguf_close(gguf);
    return printed;
}

static bool inspect_named(const Config *config, Error *error)
{
    const ModelShape *named = shape_by_name(config->shape);
    if (!named) {
        char names[256] = "";
        for (size_t i = 0; shape_name_at(i); i++) {
            size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", shape_name_at(i));
        }
        return error_set_param(error, ERR_NOT_FOUND, "shape", "no shape is named '%s'; there are %s", config->shape,
                               names);
    }
    ModelShape shape = *named;
    if (!override_rope(config, &shape, error)) return false;
    Inspection inspection = {.config = config, .shape = &shape, .n_params = shape.n_params};
    return print_inspection(&inspection, error);
}

int cmd_inspect(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_INSPECT, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave inspect: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help) {
        config_print_help(CMD_INSPECT, "longwave");
    } else if (!config.model == !config.shape) {
        fputs("longwave inspect: give either a file (-m FILE) or a named shape (--shape NAME)\n", stderr);
        status = 2;
    } else if (!(config.shape ? inspect_named(&config, &error) : inspect_file(&config, &error))) {
        fprintf(stderr, "longwave inspect: %s\n", error.text);
        status = 1;
    }
    config_done(&config);
    return status;
}
