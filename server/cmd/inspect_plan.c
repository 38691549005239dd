/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/inspect_plan.h"

#include "engine/eval/policy_spec.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { GPU_ROWS = 8192, HOST_ROWS = 256, GPU_PASSES = 4, LEAST_CONTEXT = 512, CONTEXT_STEP = 4, MAX_TOKENS = 1 << 24 };

/* Of cards that are common, GiB; and of the KV types that a table without --kv-type compares. */
static const uint32_t cards[] = {16, 24, 48, 80, 141};
static const KvType compared[] = {KV_BF16, KV_F8, KV_INT8};

/* The context that was asked for and a few shorter ones, from short to long. */
static void choose_contexts(Plan *plan, uint64_t context)
{
    uint32_t longest = context < MAX_TOKENS ? (uint32_t)context : MAX_TOKENS, shortest = longest;
    plan->n_contexts = 1;
    while (plan->n_contexts < PLAN_MAX_CONTEXTS && shortest / CONTEXT_STEP >= LEAST_CONTEXT) {
        shortest /= CONTEXT_STEP;
        plan->n_contexts++;
    }
    for (uint32_t i = plan->n_contexts; i-- > 0; longest /= CONTEXT_STEP) plan->contexts[i] = longest;
}

static void fill_row(const Plan *plan, const Capacity *capacity, PlanRow *row)
{
    uint64_t fixed = row->on_gpu ? plan->weight_bytes + plan->buffer_bytes : 0;
    uint64_t room = row->memory_bytes > fixed ? row->memory_bytes - fixed : 0;
    uint32_t longest = plan->contexts[plan->n_contexts - 1];
    row->token_bytes = (double)capacity_sequence_bytes(capacity, longest) / longest;
    row->longest = capacity_longest(capacity, room, MAX_TOKENS);
    for (uint32_t i = 0; i < plan->n_contexts; i++)
        row->sequences[i] = capacity_sequences(capacity, room, longest, plan->contexts[i]);
}

/* All types of one place under one policy. */
static bool add_rows(const Inspection *inspection, const PlanRow *like, const AttnPolicy *policy, double streaming,
                     Plan *plan, Error *error)
{
    const Config *config = inspection->config;
    uint32_t n = config->has_kv_type ? 1 : sizeof compared / sizeof *compared;
    for (uint32_t i = 0; i < n; i++) {
        CapacityParams params = {.shape = inspection->shape,
                                 .kv_types = config->has_kv_type ? inspection->kv_types : kv_types_all(compared[i]),
                                 .streaming = streaming,
                                 .sink = config->sink,
                                 .recent = config->recent,
                                 .recent_prefill = config->recent_prefill,
                                 .policy = policy,
                                 .max_rows = like->on_gpu ? GPU_ROWS : HOST_ROWS,
                                 .on_device = like->on_gpu,
                                 .max_passes = GPU_PASSES,
                                 .max_sequences = config->max_batch};
        Capacity capacity;
        if (plan->n_rows == PLAN_MAX_ROWS)
            return error_set_param(error, ERR_TOO_LARGE, "policies", "a plan has at most %d rows", PLAN_MAX_ROWS);
        if (!capacity_init(&params, &capacity, error)) return false;
        PlanRow *row = &plan->rows[plan->n_rows++];
        *row = *like;
        row->kv_type = config->has_kv_type ? config->kv_type : kv_type_info(compared[i])->name;
        if (streaming > 0)
            snprintf(row->policy, sizeof row->policy, "%s, %.0f %% stream", policy->name, 100 * streaming);
        else
            snprintf(row->policy, sizeof row->policy, "%s", policy->name);
        fill_row(plan, &capacity, row);
        capacity_done(&capacity);
    }
    return true;
}

static bool add_place(const Inspection *inspection, bool on_gpu, uint64_t bytes, Plan *plan, Error *error)
{
    const PlanRow like = {.on_gpu = on_gpu, .memory_bytes = bytes};
    const char *rest = inspection->config->policies;
    const double streaming = (double)inspection->config->sparsity;
    while (rest) {
        PolicySpec spec;
        if (!policy_spec_next(&rest, &spec, error)) return false;
        if (spec.roles[0])
            return error_set_param(error, ERR_UNSUPPORTED, "policies",
                                   "'%s': a plan takes shares of heads (sparsity), not roles", spec.text);
        if (!add_rows(inspection, &like, &spec.policy, 0, plan, error)) return false;
        if (streaming > 0 && !add_rows(inspection, &like, &spec.policy, streaming, plan, error)) return false;
    }
    return true;
}

/* No device has kernels for it. */
static bool is_for_hosts_alone(const Inspection *inspection)
{
    bool is_f32 = false;
    for (KvKind kind = 0; kind < KV_N_KINDS; kind++) is_f32 |= inspection->kv_types.of[kind] == KV_F32;
    return is_f32 && inspection->config->has_kv_type;
}

/* A named shape has no file: as if it were Q8_0. */
static uint64_t named_weight_bytes(uint64_t n_params)
{
    const DTypeInfo *info = dtype_info(DTYPE_Q8_0);
    return n_params / info->block_elements * info->block_bytes;
}

bool plan_make(const Inspection *inspection, Plan *ret_plan, Error *error)
{
    const Config *config = inspection->config;
    const ConfigShare *share = &config->gpu_memory;
    *ret_plan = (Plan){.weight_bytes = inspection->weight_bytes, .train_context = inspection->shape->train_context};
    if (!ret_plan->weight_bytes) ret_plan->weight_bytes = named_weight_bytes(inspection->n_params);
    ret_plan->buffer_bytes = capacity_buffer_bytes(inspection->shape, GPU_PASSES, GPU_ROWS, config->max_batch);
    choose_contexts(ret_plan, inspection->context);
    uint32_t n_cards = share->bytes ? 1 : sizeof cards / sizeof *cards;
    for (uint32_t i = 0; i < n_cards && !is_for_hosts_alone(inspection); i++) {
        uint64_t bytes = share->bytes ? share->bytes : (uint64_t)((double)((uint64_t)cards[i] << 30) * share->fraction);
        if (!add_place(inspection, true, bytes, ret_plan, error)) return false;
    }
    return add_place(inspection, false, config->host_memory, ret_plan, error);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static bool write_row(const Plan *plan, const PlanRow *row, Buffer *out, Error *error)
{
    if (!buffer_printf(out, error, "%-4s %7.1f GiB  %-8s %10.1f", row->on_gpu ? "GPU" : "host", gib(row->memory_bytes),
                       row->kv_type, row->token_bytes / 1024))
        return false;
    for (uint32_t i = 0; i < plan->n_contexts; i++)
        if (!buffer_printf(out, error, " %9" PRIu64, row->sequences[i])) return false;
    return buffer_printf(out, error, " %10u  %s\n", row->longest, row->policy);
}

bool plan_write_text(const Plan *plan, Buffer *out, Error *error)
{
    bool ok = buffer_printf(out, error,
                            "\nwhat fits: sequences at once by their length, and the longest one alone\n"
                            "on a GPU beside weights of %.2f GiB and buffers of about %.2f GiB; on a host weights are "
                            "mapped from the file\n%-4s %11s  %-8s %10s",
                            gib(plan->weight_bytes), gib(plan->buffer_bytes), "", "memory", "KV type", "KiB/token");
    for (uint32_t i = 0; ok && i < plan->n_contexts; i++) ok = buffer_printf(out, error, " %9u", plan->contexts[i]);
    ok = ok && buffer_printf(out, error, " %10s  policy\n", "longest");
    uint32_t longest = plan->contexts[plan->n_contexts - 1];
    for (uint32_t i = 0; ok && i < plan->n_rows; i++) {
        ok = write_row(plan, &plan->rows[i], out, error);
        if (plan->rows[i].longest > longest) longest = plan->rows[i].longest;
    }
    return ok && (longest <= plan->train_context ||
                  buffer_printf(out, error,
                                "beyond %u tokens, which the model is trained for, only attention with other positions "
                                "serves it\n",
                                plan->train_context));
}

static bool add_row_json(const Plan *plan, const PlanRow *row, cJSON *rows)
{
    cJSON *item = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(rows, item)) return false;
    cJSON *sequences = cJSON_AddArrayToObject(item, "sequences");
    for (uint32_t i = 0; i < plan->n_contexts; i++)
        if (!cJSON_AddItemToArray(sequences, cJSON_CreateNumber((double)row->sequences[i]))) return false;
    return cJSON_AddStringToObject(item, "place", row->on_gpu ? "gpu" : "host") &&
           cJSON_AddNumberToObject(item, "memory_bytes", (double)row->memory_bytes) &&
           cJSON_AddStringToObject(item, "kv_type", row->kv_type) &&
           cJSON_AddStringToObject(item, "policy", row->policy) &&
           cJSON_AddNumberToObject(item, "bytes_per_token", row->token_bytes) &&
           cJSON_AddNumberToObject(item, "longest", row->longest);
}

bool plan_add_json(const Plan *plan, cJSON *root)
{
    cJSON *object = cJSON_AddObjectToObject(root, "plan");
    bool added = object && cJSON_AddNumberToObject(object, "weight_bytes", (double)plan->weight_bytes) &&
                 cJSON_AddNumberToObject(object, "buffer_bytes", (double)plan->buffer_bytes);
    cJSON *contexts = added ? cJSON_AddArrayToObject(object, "contexts") : NULL;
    for (uint32_t i = 0; added && i < plan->n_contexts; i++)
        added = cJSON_AddItemToArray(contexts, cJSON_CreateNumber(plan->contexts[i]));
    cJSON *rows = added ? cJSON_AddArrayToObject(object, "rows") : NULL;
    for (uint32_t i = 0; added && i < plan->n_rows; i++) added = add_row_json(plan, &plan->rows[i], rows);
    return added && rows;
}
