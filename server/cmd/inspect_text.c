/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/inspect_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_POINTS = 60, ARRAY_SHOWN = 3, ARRAY_POINTS = 20 };

/* The first failure stays, so that a page of output is checked once. */
typedef struct Page {
    Buffer *out;
    Error *error;
    bool ok;
} Page;

#define PRINT(page, ...) ((page)->ok = (page)->ok && buffer_printf((page)->out, (page)->error, __VA_ARGS__))

static void print_clean(Page *page, GgufString bytes, size_t max_points)
{
    page->ok = page->ok && inspect_clean(page->out, bytes, max_points, true, page->error);
}

static const char *human(char text[16], double value, double step, const char *const *units)
{
    size_t u = 0;
    for (; value >= step && units[u + 1]; u++) value /= step;
    snprintf(text, 16, u ? "%.1f %s" : "%.0f %s", value, units[u]);
    return text;
}

static const char *human_bytes(char text[16], uint64_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};
    return human(text, (double)n, 1024, units);
}

static const char *human_count(char text[16], uint64_t n)
{
    static const char *const units[] = {"", "K", "M", "B", "T", NULL};
    return human(text, (double)n, 1000, units);
}

static void print_number(Page *page, const GgufKv *kv, uint64_t i)
{
    if (kv->type == GGUF_BOOL)
        PRINT(page, "%s", gguf_int_at(kv, i) ? "true" : "false");
    else if (kv->type == GGUF_F32 || kv->type == GGUF_F64)
        PRINT(page, "%.9g", gguf_float_at(kv, i));
    else
        PRINT(page, "%" PRId64, gguf_int_at(kv, i));
}

static void print_values(Page *page, const GgufKv *kv)
{
    GgufStringIter iter = {kv->data};
    for (uint64_t i = 0; i < kv->n && i < ARRAY_SHOWN; i++) {
        PRINT(page, "%s", i ? ", " : "");
        if (kv->type == GGUF_STRING)
            print_clean(page, gguf_next_string(&iter), kv->is_array ? ARRAY_POINTS : TEXT_POINTS);
        else
            print_number(page, kv, i);
    }
    PRINT(page, "%s\n", kv->n > ARRAY_SHOWN ? ", ..." : "");
}

static void print_metadata(Page *page, const Gguf *gguf)
{
    PRINT(page, "\nmetadata\n");
    for (size_t i = 0; i < gguf_n_kv(gguf); i++) {
        const GgufKv *kv = gguf_kv_at(gguf, i);
        char type[40];
        if (kv->is_array)
            snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_type_name(kv->type), kv->n);
        else
            snprintf(type, sizeof type, "%s", gguf_type_name(kv->type));
        size_t start = page->out->n;
        PRINT(page, "  ");
        print_clean(page, kv->key, TEXT_POINTS);
        int used = (int)(page->out->n - start);
        PRINT(page, "%*s  %-14s  ", used < 42 ? 42 - used : 0, "", type);
        print_values(page, kv);
    }
}

static void print_types(Page *page, const Inspection *inspection)
{
    char params[16], bytes[16];
    PRINT(page, "\n%-8s %8s %12s %12s\n", "type", "tensors", "parameters", "bytes");
    for (size_t i = 0; i < inspection->n_types; i++) {
        const InspectType *type = &inspection->types[i];
        PRINT(page, "%-8s %8" PRIu64 " %12s %12s\n", dtype_name(type->type).text, type->n_tensors,
              human_count(params, type->n_params), human_bytes(bytes, type->n_bytes));
    }
    PRINT(page, "%-8s %8zu %12s %12s\n", "total", gguf_n_tensors(inspection->gguf),
          human_count(params, inspection->n_params), human_bytes(bytes, inspection->weight_bytes));
}

static void print_tensors(Page *page, const Gguf *gguf)
{
    PRINT(page, "\n%-14s %12s  %-6s %-26s name\n", "offset", "bytes", "type", "dimensions");
    for (size_t i = 0; i < gguf_n_tensors(gguf); i++) {
        const GgufTensor *tensor = gguf_tensor_at(gguf, i);
        char dims[96] = "";
        for (uint32_t d = 0, n = 0; d < tensor->view.n_dims; d++)
            n += (uint32_t)snprintf(dims + n, sizeof dims - n, "%s%" PRIu64, d ? " x " : "", tensor->view.dim[d]);
        PRINT(page, "%-14" PRIu64 " %12" PRIu64 "  %-6s %-26s ", tensor->file_offset, tensor->n_bytes,
              dtype_name(tensor->view.type).text, dims);
        print_clean(page, tensor->name, TEXT_POINTS);
        PRINT(page, "\n");
    }
}

static void print_shape(Page *page, const ModelShape *s)
{
    PRINT(page, "dimensions    %u layers, %u channels, %u inner, vocabulary %u%s\n", s->n_layers, s->n_embd, s->n_ff,
          s->n_vocab, s->tied_output ? ", tied output" : "");
    PRINT(page, "attention     %u heads, %u KV heads, %u channels each", s->n_heads, s->n_kv_heads, s->head_dim);
    if (s->window_tokens) PRINT(page, "; windows of %u tokens", s->window_tokens);
    if (s->window_tokens && s->full_layer_period) PRINT(page, ", one layer in %u sees all", s->full_layer_period);
    PRINT(page, "\nRoPE          base %g over %u channels", s->rope_base, s->rope_dim);
    if (s->rope_linear_factor != 1) PRINT(page, ", positions divided by %g", s->rope_linear_factor);
    if (s->rope_yarn.factor != 0)
        PRINT(page, ", YaRN times %g (trained at %u)", s->rope_yarn.factor, s->rope_original_context);
    if (s->rope_llama3.factor != 0)
        PRINT(page, ", long wavelengths times %g (trained at %u)", s->rope_llama3.factor,
              s->rope_llama3.original_context);
    PRINT(page, "\ncontext       %u tokens in training\n", s->train_context);
}

static void print_memory(Page *page, const Inspection *inspection)
{
    const ModelShape *shape = inspection->shape;
    uint64_t weight_bytes = inspection->weight_bytes;
    char text[16];
    PRINT(page, "\nmemory of one sequence of %" PRIu64 " tokens\n", inspection->context);
    PRINT(page, "%-8s %12s %12s%s\n", "KV type", "a token", "KV", weight_bytes ? "   with weights" : "");
    InspectKv kv;
    for (uint32_t i = 0; inspect_kv_at(inspection, i, &kv); i++) {
        uint64_t kv_bytes = kv_tokens_bytes(shape, &kv.types, inspection->context);
        PRINT(page, "%-8s", kv.name);
        PRINT(page, " %12s", human_bytes(text, kv_token_bytes(shape, &kv.types)));
        PRINT(page, " %12s", human_bytes(text, kv_bytes));
        if (weight_bytes) PRINT(page, " %14s", human_bytes(text, kv_bytes + weight_bytes));
        PRINT(page, "%s\n", kv.is_selected ? "  (kv_type)" : "");
    }
}

static void print_counts(Page *page, const char *name, WaveCount prefill, WaveCount row)
{
    PRINT(page, "%-26s %10.2f %% %10.2f %%\n", name, 100 * inspect_pruned(prefill), 100 * inspect_pruned(row));
}

static void print_waves(Page *page, const Inspection *inspection)
{
    const InspectWaves *waves = inspection->waves;
    PRINT(page, "\nwavelength windows, k = %g, %" PRIu64 " tokens\n", (double)inspection->config->wavelength_k,
          inspection->context);
    if (!waves->n_layers) {
        PRINT(page, "no layer sees everything: all have sliding windows of %u tokens\n",
              inspection->shape->window_tokens);
        return;
    }
    PRINT(page, "of %u layers that see everything; terms of q k that are pruned\n%-26s %12s %12s\n", waves->n_layers,
          "", "prefill", "last row");
    print_counts(page, "by the rule", waves->exact_prefill, waves->exact_row);
    if (waves->has_closed_form)
        PRINT(page, "%-26s %10.2f %% %10.2f %%\n", "by its closed form", 100 * waves->closed_prefill,
              100 * waves->closed_row);
    else
        PRINT(page, "%-26s %12s %12s\n", "by its closed form", "-", "-");
    print_counts(page, "by the bands below", waves->bands_prefill, waves->bands_row);
    PRINT(page, "\n%14s %10s\n", "from distance", "channels");
    for (uint32_t i = 0; i < waves->n_bands; i++)
        PRINT(page, "%14u %10u\n", waves->bands[i].first_distance, waves->bands[i].n_channels);
}

/* A named shape has no tensors; what its matrices would take, norms counted alike. */
static void print_weight_estimates(Page *page, const Inspection *inspection)
{
    static const DType types[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q4_1, DTYPE_Q4_0};
    PRINT(page, "\nweights, about\n");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const DTypeInfo *info = dtype_info(types[i]);
        char bytes[16];
        PRINT(page, "%-8s %12s\n", info->name,
              human_bytes(bytes, inspection->n_params / info->block_elements * info->block_bytes));
    }
}

static void print_file(Page *page, const Inspection *inspection)
{
    const Gguf *gguf = inspection->gguf;
    char bytes[16];
    PRINT(page, "file          ");
    print_clean(page, (GgufString){gguf_path(gguf), strlen(gguf_path(gguf))}, SIZE_MAX);
    PRINT(page, "\nformat        GGUF %u, %s, %zu keys, %zu tensors\n", gguf_version(gguf),
          human_bytes(bytes, gguf_file_bytes(gguf)), gguf_n_kv(gguf), gguf_n_tensors(gguf));
}

bool inspect_write_text(const Inspection *inspection, Buffer *out, Error *error)
{
    Page page = {out, error, true};
    char params[16];
    if (inspection->gguf) print_file(&page, inspection);
    if (inspection->shape) {
        const ModelShape *shape = inspection->shape;
        PRINT(&page, "name          ");
        print_clean(&page, (GgufString){shape->name, strlen(shape->name)}, TEXT_POINTS);
        PRINT(&page, "\narchitecture  %s\nparameters    %s\n", shape->architecture,
              human_count(params, inspection->n_params));
        print_shape(&page, shape);
    } else {
        PRINT(&page, "cannot run    %s\n", inspection->shape_error.text);
    }
    if (inspection->gguf) {
        print_metadata(&page, inspection->gguf);
        if (inspection->config->tensors) print_tensors(&page, inspection->gguf);
        print_types(&page, inspection);
    } else {
        print_weight_estimates(&page, inspection);
    }
    if (inspection->shape) print_memory(&page, inspection);
    if (inspection->waves) print_waves(&page, inspection);
    if (inspection->plan) page.ok = page.ok && plan_write_text(inspection->plan, out, error);
    return page.ok;
}
