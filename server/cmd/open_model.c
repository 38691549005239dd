/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/open_model.h"

#include "engine/eval/policy_spec.h"
#include "server/cmd/open_device.h"

/*
 * What an engine has to be opened with for the policies that are asked for: on a device it keeps key bounds, and has
 * room for lists, only then.
 */
static const char *attention_of(const Config *config, const Device *device, PolicySpec *longest)
{
    const char *moving = policy_specs_moving_preset(config->policies);
    bool is_host = !device || device->is_host;
    return moving || is_host ? moving : policy_specs_longest(config->policies, longest);
}

bool open_model(const Config *config, const char *path, Device *device, const KernelTable *kernels,
                uint32_t n_sequences, Progress *progress, Engine **ret_engine, SeqId *ret_seq, Error *error)
{
    KvTypes kv_types;
    PolicySpec longest;
    if (!kv_types_parse(config->kv_type, &kv_types, error)) return false;
    EngineParams params = {.model_path = path,
                           .context = config->context,
                           .attention = attention_of(config, device, &longest),
                           .max_sequences = 3 * n_sequences + 1,
                           .roles = config->roles,
                           .max_batch_rows = n_sequences > config->prefill_chunk ? n_sequences : config->prefill_chunk,
                           .max_logit_rows = n_sequences,
                           .n_threads = config->threads,
                           .kv_types = kv_types,
                           .world = 1,
                           .kernels = kernels,
                           .progress = progress_update,
                           .progress_arg = progress};
    Engine *engine = NULL;
    open_device_params(config, device, &params);
    progress_begin(progress, "loading");
    bool ok = engine_open(&params, &engine, error) && engine_seq_new(engine, 0, ret_seq, error);
    progress_end(progress);
    if (ok)
        *ret_engine = engine;
    else
        engine_close(engine);
    return ok;
}
