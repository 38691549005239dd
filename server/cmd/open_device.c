/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/open_device.h"

#include "engine/device.h"
#include "engine/eval/policy_spec.h"

#include <stdio.h>
#include <string.h>

enum { GPU_PREFILL_CHUNK = 8192, GPU_BATCH_TOKENS = 16384 };

bool open_device(const Config *config, Config *ret_config, Device **ret_device, Error *why_not, Error *error)
{
    if (!device_open(config->device, ret_device, why_not, error)) return false;
    *ret_config = *config;
    if ((*ret_device)->is_host) return true;
    if (!config->has_kv_type) ret_config->kv_type = "bf16";
    if (!config->has_prefill_chunk) ret_config->prefill_chunk = GPU_PREFILL_CHUNK;
    if (!config->has_max_batch_tokens) ret_config->max_batch_tokens = GPU_BATCH_TOKENS;
    return true;
}

bool open_device_give_up(const Config *given, const Error *refusal, Config *config, Device **device)
{
    static const char *const params[] = {"device", "kv_type", "longwave.attention"}; /* what a GPU has not all of */
    bool is_of_device = refusal->code == ERR_DEVICE;
    for (size_t i = 0; refusal->code == ERR_UNSUPPORTED && i < sizeof params / sizeof *params; i++)
        is_of_device |= !strcmp(refusal->param, params[i]);
    if (!is_of_device || (*device)->is_host || !given->device || strcmp(given->device, "auto")) return false;
    device_close(*device);
    *device = device_host();
    *config = *given;
    return true;
}

bool open_device_policies(const Config *given, const char *policies, Config *config, Device **device, Error *why_not,
                          Error *error)
{
    *why_not = (Error){0};
    if ((*device)->is_host || policy_specs_on_device(policies, error)) return true;
    *why_not = *error;
    return open_device_give_up(given, why_not, config, device);
}

void open_device_params(const Config *config, Device *device, EngineParams *params)
{
    params->device = device;
    params->is_deterministic = config->deterministic;
    if (device->is_host) {
        params->kv_bytes = config->host_memory;
        return;
    }
    params->device_bytes = config->gpu_memory.bytes;
    if (params->device_bytes) return;
    params->device_bytes = (uint64_t)((double)device->total_bytes * config->gpu_memory.fraction);
    if (params->device_bytes > device->free_bytes) params->device_bytes = device->free_bytes;
}

bool open_device_cut_context(const Config *config, const Device *device, const Engine *engine, char *text, size_t n)
{
    uint32_t own = engine_shape(engine)->train_context;
    if (config->context || engine_context(engine) >= own) return false;
    snprintf(text, n, "the context is %u tokens, not the model's own %u: %s holds no more", engine_context(engine), own,
             device->is_host ? "host_memory" : "gpu_memory");
    return true;
}
