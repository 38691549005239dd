/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device_budget.h"
#include "engine/device_logits.h"
#include "engine/device_step.h"
#include "engine/eval/policy_spec.h"
#include "engine/model/smooth.h"
#include "kernels/parallel.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_CHOSEN_CONTEXT = 512, /* less than that is not chosen: nobody meant it */
    ARENA_BLOCK_BYTES = 4096,
    MAX_BATCH_ROWS = 1 << 16,
    MAX_SEQUENCES = 1 << 12,
    MAX_PASSES = 64,
    MAX_CONTEXT = 1 << 28,
    MAX_PIECE_BYTES = 1 << 16
};

static bool check_params(const EngineParams *params, Error *error)
{
    if (params->world != 1 || params->rank != 0)
        return error_set(error, ERR_UNSUPPORTED, "tensor parallel is not supported (rank %u of %u)", params->rank,
                         params->world);
    if (params->max_batch_rows < 1 || params->max_batch_rows > MAX_BATCH_ROWS || params->max_logit_rows < 1 ||
        params->max_sequences < 1 || params->max_sequences > MAX_SEQUENCES || params->max_passes > MAX_PASSES)
        return error_set(error, ERR_INVALID,
                         "%u batch rows, %u logit rows, %u sequences, %u passes: outside the limits",
                         params->max_batch_rows, params->max_logit_rows, params->max_sequences, params->max_passes);
    return true;
}

/* Is there a policy that tells queries beyond the trained context of no positions beyond it? */
static bool goes_beyond(const EngineParams *params, uint32_t trained)
{
    const char *name = params->attention ? params->attention : "dense";
    PolicySpec spec;
    Error error; /* of what is no policy its user will tell */
    if (policy_spec_parse(name, strlen(name), &spec, &error) && policy_reach(&spec.policy, trained) > trained)
        return true;
    for (uint32_t i = 0; params->policies && i < params->n_policies; i++)
        if (policy_reach(&params->policies[i], trained) > trained) return true;
    return false;
}

static bool set_limits(Engine *engine, Error *error)
{
    EngineParams *p = &engine->params;
    uint32_t trained = engine->shape.train_context;
    if (p->context > trained && !goes_beyond(p, trained))
        return error_set_param(error, ERR_INVALID, "ctx",
                               "ctx is %u, but the model is trained for %u tokens; only attention that packs "
                               "positions goes further, as hip-3k and hip-5k",
                               p->context, trained);
    if (p->context > MAX_CONTEXT)
        return error_set_param(error, ERR_INVALID, "ctx", "ctx is %u, more than %d", p->context, MAX_CONTEXT);
    if (p->context == 0) p->context = trained;
    engine->shape.rope_context = p->context;
    if (p->max_passes == 0) p->max_passes = 1;
    if (p->max_logit_rows > p->max_batch_rows) p->max_logit_rows = p->max_batch_rows;
    if (p->n_threads == 0) p->n_threads = threads_available();
    engine->kernels = p->kernels ? p->kernels : engine->device->is_host ? kernels_cpu() : engine->device->kernels;
    return true;
}

static bool open_tokenizer(Engine *engine, Error *error)
{
    if (!tok_new(engine->gguf, &engine->tokenizer, error)) return false;
    uint32_t n = tok_n_vocab(engine->tokenizer);
    if (n != engine->shape.n_vocab)
        return error_set_param(error, ERR_INVALID, "tokenizer.ggml.tokens",
                               "key 'tokenizer.ggml.tokens' has %u tokens, but tensor 'token_embd.weight' has %u rows",
                               n, engine->shape.n_vocab);
    return true;
}

static bool append_token_text(const Tokenizer *tokenizer, uint32_t id, Buffer *text, Error *error)
{
    buffer_init(text, MAX_PIECE_BYTES);
    return id == TOK_NONE || tok_piece(tokenizer, id, true, text, error);
}

/* A template that does not parse takes only chat away, so it is kept for those who ask for chat. */
static bool open_chat_template(Engine *engine, Error *error)
{
    GgufString source = {0};
    if (!gguf_opt_string(engine->gguf, "tokenizer.chat_template", &source, error)) return false;
    if (!source.data) return true;
    Buffer bos, eos;
    buffer_init(&eos, MAX_PIECE_BYTES);
    bool ok = append_token_text(engine->tokenizer, tok_bos(engine->tokenizer), &bos, error) &&
              append_token_text(engine->tokenizer, tok_eos(engine->tokenizer), &eos, error);
    Error *refusal = &engine->chat_template_error;
    if (ok && !chat_template_new(source.data, source.n, bos.data ? bos.data : "", eos.data ? eos.data : "",
                                 &engine->chat_template, refusal)) {
        error_prefix(refusal, "key 'tokenizer.chat_template'");
        ok = refusal->code != ERR_NO_MEMORY;
        if (!ok) *error = *refusal;
    }
    buffer_done(&bos);
    buffer_done(&eos);
    return ok;
}

static bool set_policies(Engine *engine, Error *error)
{
    const EngineParams *p = &engine->params;
    const AttnPolicy *policies = p->policies;
    uint32_t n = p->n_policies;
    const RolesModel model = {&engine->shape, p->roles ? engine_model_fingerprint(engine) : 0};
    if (!policies && !roles_load(p->roles, &model, &engine->arena, &policies, &n, error)) return false;
    return policies_open(engine, policies, n, error);
}

/* Of the policy that takes most. */
static uint64_t max_need_bytes(const Engine *engine, uint32_t n_tokens)
{
    uint64_t most = 0;
    for (PolicyId i = 0; i < engine->n_own_policies; i++) {
        uint64_t need = engine_need_bytes(engine, i, n_tokens);
        if (need > most) most = need;
    }
    return most;
}

/* The longest context that the budget holds. */
static uint32_t fitting_context(const Engine *engine, uint64_t budget_bytes)
{
    uint32_t fits = 0, too_long = engine->params.context;
    while (too_long - fits > 1) {
        uint32_t middle = fits + (too_long - fits) / 2;
        if (max_need_bytes(engine, middle) <= budget_bytes)
            fits = middle;
        else
            too_long = middle;
    }
    return fits;
}

static bool set_budget(Engine *engine, Error *error)
{
    EngineParams *p = &engine->params;
    uint64_t need = max_need_bytes(engine, p->context);
    if (p->kv_bytes == 0 && __builtin_mul_overflow(need, p->max_sequences, &p->kv_bytes))
        return error_set_param(error, ERR_TOO_LARGE, "ctx", "%u contexts of %u tokens need more memory than exists",
                               p->max_sequences, p->context);
    if (need <= p->kv_bytes) return true;
    engine->fitting_context = fitting_context(engine, p->kv_bytes);
    return error_set_param(error, ERR_NO_MEMORY, "host_memory",
                           "a context of %u tokens needs %llu MiB for keys and values, but host_memory is %llu MiB: "
                           "enough for a ctx of %u",
                           p->context, (unsigned long long)((need + (1 << 20) - 1) >> 20),
                           (unsigned long long)(p->kv_bytes >> 20), engine->fitting_context);
}

static bool open_host_memory(Engine *engine, Error *error)
{
    return set_budget(engine, error) &&
           kv_memory_new(&engine->classes, engine->params.kv_bytes, &engine->memory, error);
}

/* What fits is known before the weights go over. */
static bool open_device_memory(Engine *engine, Error *error)
{
    const EngineParams *p = &engine->params;
    KvShare *shares = arena_array(&engine->arena, engine->classes.n_classes, sizeof *shares);
    if (!shares) return error_set(error, ERR_NO_MEMORY, "no memory for the shares of the classes");
    if (!device_budget_check(engine, error) || !device_budget_share(engine, shares, error) ||
        !device_weights_init(engine->device, engine->stream.pool, &engine->shape, &engine->weights,
                             (BindProgress){p->progress, p->progress_arg}, &engine->on_device, error))
        return false;
    engine->run_weights = &engine->on_device.weights;
    return kv_memory_new_on(engine->device, &engine->classes, shares, &engine->memory, error);
}

static bool open_memory(Engine *engine, Error *error)
{
    Device *device = engine->device;
    const EngineParams *p = &engine->params;
    engine->run_weights = &engine->weights;
    engine->stream = device->stream;
    if (!set_policies(engine, error) || !threads_new(p->n_threads, &engine->stream.pool, error) ||
        !(device->is_host ? open_host_memory(engine, error) : open_device_memory(engine, error)))
        return false;
    const KvSeqsParams seqs = {&engine->classes, engine->memory, p->context, p->max_sequences,
                               device->is_host ? NULL : device};
    const RopeTurns turns = {.theta = engine->weights.rope.theta, .n_pairs = engine->shape.rope_dim / 2};
    const SelectorParams selector = {.shape = &engine->shape,
                                     .kernels = engine->kernels,
                                     .context = p->context,
                                     .max_sequences = p->max_sequences,
                                     .max_batch_rows = p->max_batch_rows,
                                     .n_threads = p->n_threads,
                                     .device = seqs.device,
                                     .max_list = engine->max_list,
                                     .n_channels = scan_bounds_width(&turns, engine->shape.head_dim)};
    return kv_seqs_new(&seqs, &engine->seqs, error) && selector_new(&selector, &engine->selector, error) &&
           buffers_new(engine, error) &&
           (device->is_host || (device_step_new(engine, error) && device_logits_new(engine, error)));
}

/* Where a scale has 16 steps for all channels of a key. */
static bool smooth_weights(Engine *engine, Error *error)
{
    for (KvKind kind = 0; kind < KV_N_KINDS; kind++) engine->smoothed |= engine->params.kv_types.of[kind] == KV_INT4;
    return !engine->smoothed || smooth_keys(&engine->shape, &engine->weights, error);
}

static bool open_all(Engine *engine, const EngineParams *params, Error *error)
{
    const BindProgress progress = {engine->device->is_host ? params->progress : NULL, params->progress_arg};
    if (!gguf_open(params->model_path, &engine->gguf, error)) return false;
    engine->ahead = gguf_ahead_new(engine->gguf);
    return family_find(engine->gguf, &engine->family, error) &&
           family_read_shape(engine->family, engine->gguf, &engine->shape, error) &&
           rope_override_apply(params->rope, &engine->shape, error) && set_limits(engine, error) &&
           open_tokenizer(engine, error) && open_chat_template(engine, error) &&
           weights_bind(engine->family, &engine->shape, engine->gguf, progress, &engine->weights, error) &&
           smooth_weights(engine, error) && open_memory(engine, error) &&
           (!engine->step || device_step_prepare(engine) ||
            error_set(error, ERR_DEVICE, "%s failed", engine->device->name));
}

static bool open_once(const EngineParams *params, Engine **ret_engine, uint32_t *ret_fitting_context, Error *error)
{
    Engine *engine = calloc(1, sizeof *engine);
    if (!engine) return error_set(error, ERR_NO_MEMORY, "no memory for the engine");
    engine->params = *params;
    engine->device = params->device ? params->device : device_host();
    device_use(engine->device);
    arena_init(&engine->arena, ARENA_BLOCK_BYTES, SIZE_MAX);
    if (!open_all(engine, params, error)) {
        *ret_fitting_context = engine->fitting_context;
        engine_close(engine);
        return false;
    }
    *ret_engine = engine;
    return true;
}

/* What fits is opened as if it had been asked for: the context decides about more than memory (family.h). */
bool engine_open(const EngineParams *params, Engine **ret_engine, Error *error)
{
    uint32_t fits = 0;
    if (!check_params(params, error)) return false;
    if (open_once(params, ret_engine, &fits, error)) return true;
    if (params->context || fits < LEAST_CHOSEN_CONTEXT) return false;
    EngineParams smaller = *params;
    smaller.context = fits / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    return open_once(&smaller, ret_engine, &fits, error);
}

void engine_close(Engine *engine)
{
    if (!engine) return;
    device_use(engine->device);
    threads_free(engine->stream.pool);
    device_step_free(engine);
    device_logits_free(engine);
    buffers_free(engine);
    selector_free(engine->selector);
    kv_seqs_free(engine->seqs);
    kv_memory_free(engine->memory);
    device_weights_done(engine->device, &engine->on_device);
    kv_classes_done(&engine->classes);
    arena_done(&engine->arena);
    chat_template_free(engine->chat_template);
    tok_free(engine->tokenizer);
    weights_done(&engine->weights);
    gguf_ahead_free(engine->ahead);
    gguf_close(engine->gguf);
    free(engine);
}

const Gguf *engine_gguf(const Engine *engine)
{
    return engine->gguf;
}

const ModelShape *engine_shape(const Engine *engine)
{
    return &engine->shape;
}

const Tokenizer *engine_tokenizer(const Engine *engine)
{
    return engine->tokenizer;
}

const ChatTemplate *engine_chat_template(const Engine *engine)
{
    return engine->chat_template;
}

const Error *engine_chat_template_error(const Engine *engine)
{
    return engine->chat_template_error.code == ERR_NONE ? NULL : &engine->chat_template_error;
}

uint32_t engine_context(const Engine *engine)
{
    return engine->params.context;
}

uint32_t engine_n_threads(const Engine *engine)
{
    return threads_count(engine->stream.pool);
}

void engine_each(Engine *engine, uint32_t n_items, EngineItemFn fn, void *arg)
{
    parallel_each(engine->stream, n_items, fn, arg);
}

uint32_t engine_max_batch_rows(const Engine *engine)
{
    return engine->params.max_batch_rows;
}

uint32_t engine_max_logit_rows(const Engine *engine)
{
    return engine->params.max_logit_rows;
}

const char *engine_device_name(const Engine *engine)
{
    return engine->device->is_host ? engine->kernels->name : engine->device->name;
}

bool engine_is_on_device(const Engine *engine)
{
    return !engine->device->is_host;
}

bool engine_is_deterministic_device(const Engine *engine)
{
    return engine_is_on_device(engine) && engine->params.is_deterministic;
}

EngineMemory engine_memory(const Engine *engine)
{
    const EngineParams *p = &engine->params;
    if (engine->device->is_host)
        return (EngineMemory){.weights = gguf_file_bytes(engine->gguf), .buffers = engine->slab_bytes};
    return (EngineMemory){.weights = engine->on_device.bytes,
                          .buffers = engine->device_slab_bytes + device_step_bytes(engine) +
                                     device_logits_bytes(engine) +
                                     kv_seqs_device_bytes(&engine->classes, p->context, p->max_sequences) +
                                     engine_lists_device_bytes(engine)};
}

bool engine_check_device(const Engine *engine, Error *error)
{
    return !engine->device->has_failed ||
           error_set(error, ERR_DEVICE, "%s has failed; the server must be started again", engine->device->name);
}

void engine_set_pulse(Engine *engine, void (*pulse)(void *arg), void *arg)
{
    engine->pulse = pulse;
    engine->pulse_arg = arg;
}

void engine_set_trace(Engine *engine, TraceCall trace, void *arg)
{
    engine->trace = trace;
    engine->trace_arg = arg;
}
