/* SPDX-License-Identifier: Apache-2.0 */
/* longwave generate: one prompt, its answer as it comes on stdout; or one JSON object with the answer and figures. */
#include "base/clock.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/sample/sampler.h"
#include "server/cmd/cmd.h"
#include "server/cmd/open_device.h"
#include "server/cmd/open_model.h"
#include "server/cmd/progress.h"
#include "server/cmd/prompt.h"
#include "server/json_out.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAX_PROMPT_BYTES = 64 << 20, MAX_ANSWER_BYTES = 1 << 30 };

typedef struct Run {
    const Config *config;
    Device *device;
    Engine *engine;
    SamplerSpace *space;
    Sampler *sampler;
    SeqId seq; /* closes with the engine */
    uint64_t seed;
    const Buffer *question;
    TokenList prompt;
    TokStream stream;
    Buffer text; /* the whole answer */
    size_t n_written;
    uint32_t n_generated;
    bool stopped; /* at an end token */
    uint64_t load_usec, prefill_usec, decode_usec;
} Run;

static bool open_engine(Run *run, Error *error)
{
    Progress progress;
    uint64_t begin_usec = clock_now_usec();
    Config with_defaults;
    Error why_not;
    bool ok = open_device(run->config, &with_defaults, &run->device, &why_not, error) &&
              (open_model(&with_defaults, run->config->model, run->device, NULL, 1, &progress, &run->engine, &run->seq,
                          error) ||
               (open_device_give_up(run->config, error, &with_defaults, &run->device) &&
                open_model(&with_defaults, run->config->model, run->device, NULL, 1, &progress, &run->engine, &run->seq,
                           error)));
    run->load_usec = clock_now_usec() - begin_usec;
    char text[160];
    if (ok && open_device_cut_context(run->config, run->device, run->engine, text, sizeof text))
        fprintf(stderr, "longwave generate: %s\n", text);
    return ok;
}

static bool render_chat(const Engine *engine, const Buffer *question, ChatPrompt *ret_prompt, Error *error)
{
    if (memchr(question->data, '\0', question->n))
        return error_set_param(error, ERR_INVALID, "prompt", "the text holds a NUL, which a chat message cannot");
    const ChatTemplate *template = engine_chat_template(engine);
    if (!template && engine_chat_template_error(engine)) {
        *error = *engine_chat_template_error(engine);
        return false;
    }
    if (!template)
        return error_set_param(error, ERR_UNSUPPORTED, "raw",
                               "the model has no chat template; --raw continues the text");
    cJSON *messages = cJSON_CreateArray(), *message = cJSON_CreateObject();
    bool ok = messages && message && cJSON_AddStringToObject(message, "role", "user") &&
              cJSON_AddStringToObject(message, "content", question->data) && cJSON_AddItemToArray(messages, message);
    if (!ok) {
        cJSON_Delete(message);
        error_set(error, ERR_NO_MEMORY, "no memory for the message");
    }
    const ChatInput input = {.messages = messages, .add_generation_prompt = true, .now_unix = clock_unix_seconds()};
    ok = ok && chat_template_render(template, &input, MAX_PROMPT_BYTES, ret_prompt, error);
    cJSON_Delete(messages);
    return ok;
}

/* Raw text is the operator's own, so special tokens in it count; in a chat only those of the template do. */
static bool encode_prompt(Run *run, Error *error)
{
    const Buffer *question = run->question;
    const Tokenizer *tokenizer = engine_tokenizer(run->engine);
    if (run->config->raw) {
        const TextRange all = {0, question->n};
        const TokEncode in = {question->data, question->n, &all, 1, true};
        return tok_encode(tokenizer, &in, &run->prompt, error);
    }
    ChatPrompt chat;
    if (!render_chat(run->engine, question, &chat, error)) return false;
    const TokEncode in = {chat.text.data ? chat.text.data : "", chat.text.n, chat.trusted, chat.n_trusted, true};
    bool ok = tok_encode(tokenizer, &in, &run->prompt, error);
    chat_prompt_done(&chat);
    return ok;
}

static bool make_prompt(Run *run, Error *error)
{
    if (!encode_prompt(run, error)) return false;
    if (run->prompt.n == 0) return error_set_param(error, ERR_INVALID, "prompt", "the prompt has no tokens");
    uint32_t context = engine_context(run->engine);
    if (run->prompt.n >= context)
        return error_set_param(error, ERR_CONTEXT_LENGTH, "prompt", "the prompt has %zu tokens, the context %u",
                               run->prompt.n, context);
    return true;
}

static void fill_sampling(const Config *config, SamplingParams *params)
{
    sampling_defaults(params);
    params->temperature = config->temperature;
    params->top_p = config->top_p;
    params->min_p = config->min_p;
    params->top_k = config->top_k;
    params->typical_p = config->typical_p;
    params->top_n_sigma = config->top_n_sigma;
    params->xtc_probability = config->xtc_probability;
    params->xtc_threshold = config->xtc_threshold;
    params->dynatemp_range = config->dynatemp_range;
    params->dynatemp_exponent = config->dynatemp_exponent;
    params->repetition_penalty = config->repetition_penalty;
    params->presence_penalty = config->presence_penalty;
    params->frequency_penalty = config->frequency_penalty;
    params->repeat_last_n = (int32_t)config->repeat_last_n;
    params->dry_multiplier = config->dry_multiplier;
    params->dry_base = config->dry_base;
    params->dry_allowed_length = (int32_t)config->dry_allowed_length;
    params->dry_penalty_last_n = (int32_t)config->dry_penalty_last_n;
    params->mirostat = (int32_t)config->mirostat;
    params->mirostat_tau = config->mirostat_tau;
    params->mirostat_eta = config->mirostat_eta;
}

static bool start_sampler(Run *run, Error *error)
{
    const Config *config = run->config;
    SamplingParams params;
    run->seed = config->seed;
    if (!config->has_seed && getrandom(&run->seed, sizeof run->seed, 0) != sizeof run->seed)
        return error_set(error, ERR_IO, "no random seed from the system; --seed gives one");
    fill_sampling(config, &params);
    params.seed = run->seed;
    TokenText text = sampler_text_of(engine_tokenizer(run->engine));
    return sampler_space_new(engine_shape(run->engine)->n_vocab, text, &run->space, error) &&
           sampler_new(run->space, &run->sampler, error) &&
           sampler_reset(run->sampler, &params, 0, run->prompt.ids, (uint32_t)run->prompt.n, error);
}

static bool forward(Run *run, const uint32_t *tokens, uint32_t n, LogitRows rows, float **ret_logits, Error *error)
{
    const BatchSpan span = {run->seq, 0, n, engine_seq_tokens(run->engine, run->seq), rows};
    return engine_forward(run->engine, &(Batch){tokens, n, &span, 1}, ret_logits, error);
}

static bool prefill(Run *run, float **ret_logits, Error *error)
{
    uint32_t n = (uint32_t)run->prompt.n, chunk = engine_max_batch_rows(run->engine);
    Progress progress;
    bool ok = true;
    uint64_t begin_usec = clock_now_usec();
    progress_begin(&progress, "reading");
    for (uint32_t done = 0; ok && done < n; done += chunk) {
        bool last = n - done <= chunk;
        ok = forward(run, run->prompt.ids + done, last ? n - done : chunk, last ? LOGITS_LAST : LOGITS_NONE, ret_logits,
                     error);
        progress_update(&progress, (double)(last ? n : done + chunk) / n);
    }
    progress_end(&progress);
    run->prefill_usec = clock_now_usec() - begin_usec;
    return ok;
}

/* What came since the last time goes out, unless all of it goes into JSON at the end. */
static bool write_text(Run *run, Error *error)
{
    size_t n = run->text.n - run->n_written;
    if (run->config->json || n == 0) return true;
    if (fwrite(run->text.data + run->n_written, 1, n, stdout) != n || fflush(stdout))
        return error_set(error, ERR_IO, "cannot write the answer");
    run->n_written = run->text.n;
    return true;
}

static bool decode(Run *run, float *logits, Error *error)
{
    const Tokenizer *tokenizer = engine_tokenizer(run->engine);
    uint32_t room = engine_context(run->engine) - (uint32_t)run->prompt.n, limit = run->config->max_tokens;
    uint64_t begin_usec = clock_now_usec();
    if (limit == 0 || limit > room) limit = room;
    while (run->n_generated < limit) {
        SampleResult sample;
        if (!sampler_pick(run->sampler, logits, false, 0, &sample, error)) return false;
        run->n_generated++;
        run->stopped = tok_is_end(tokenizer, sample.id);
        if (run->stopped) break;
        if (!tok_stream_push(&run->stream, tokenizer, sample.id, false, &run->text, error) || !write_text(run, error))
            return false;
        if (run->n_generated < limit && !forward(run, &sample.id, 1, LOGITS_LAST, &logits, error)) return false;
    }
    run->decode_usec = clock_now_usec() - begin_usec;
    return tok_stream_flush(&run->stream, &run->text, error) && write_text(run, error);
}

static double per_second(uint64_t n, uint64_t usec)
{
    return usec ? (double)n * 1e6 / (double)usec : 0;
}

/* The first token comes out of the prompt's own pass. */
static double decode_rate(const Run *run)
{
    return run->n_generated ? per_second(run->n_generated - 1, run->decode_usec) : 0;
}

static bool print_json(const Run *run, Error *error)
{
    Buffer text;
    JsonOut out;
    buffer_init(&text, MAX_ANSWER_BYTES);
    json_begin(&out, &text);
    json_raw(&out, "{\"text\":");
    json_string_n(&out, run->text.data ? run->text.data : "", run->text.n);
    json_rawf(&out, ",\"finish_reason\":\"%s\",\"prompt_tokens\":%zu,\"generated_tokens\":%u,\"seed\":%llu",
              run->stopped ? "stop" : "length", run->prompt.n, run->n_generated, (unsigned long long)run->seed);
    json_rawf(&out, ",\"load_seconds\":%.3f,\"prefill_tokens_per_second\":%.3f,\"decode_tokens_per_second\":%.3f",
              (double)run->load_usec / 1e6, per_second(run->prompt.n, run->prefill_usec),
              per_second(run->n_generated, run->decode_usec));
    json_raw(&out, ",\"model\":");
    json_string(&out, engine_shape(run->engine)->name);
    json_raw(&out, ",\"device\":");
    json_string(&out, engine_device_name(run->engine));
    json_raw(&out, "}");
    bool ok = json_end(&out, error);
    if (ok && (puts(text.data) == EOF || fflush(stdout))) ok = error_set(error, ERR_IO, "cannot write the figures");
    buffer_done(&text);
    return ok;
}

static bool print_end(const Run *run, Error *error)
{
    if (run->config->json) return print_json(run, error);
    if (putchar('\n') == EOF || fflush(stdout)) return error_set(error, ERR_IO, "cannot write the answer");
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%zu prompt tokens at %.0f a second, %u tokens at %.1f a second, loaded in %.2f s\n",
                run->prompt.n, per_second(run->prompt.n, run->prefill_usec), run->n_generated, decode_rate(run),
                (double)run->load_usec / 1e6);
    return true;
}

static bool generate(const Config *config, const Buffer *question, Error *error)
{
    Run run = {.config = config, .question = question};
    float *logits = NULL;
    buffer_init(&run.text, MAX_ANSWER_BYTES);
    bool ok = open_engine(&run, error) && make_prompt(&run, error) && start_sampler(&run, error) &&
              prefill(&run, &logits, error) && decode(&run, logits, error) && print_end(&run, error);
    sampler_free(run.sampler);
    sampler_space_free(run.space);
    token_list_done(&run.prompt);
    buffer_done(&run.text);
    engine_close(run.engine);
    device_close(run.device);
    return ok;
}

static int read_and_generate(const Config *config, Error *error)
{
    Buffer question;
    buffer_init(&question, MAX_PROMPT_BYTES);
    int status = 2;
    if (cmd_read_prompt(config, &question, error) && buffer_append_text(&question, "", error))
        status = generate(config, &question, error) ? 0 : 1;
    buffer_done(&question);
    return status;
}

int cmd_generate(int argc, char **argv)
{
    Config config;
    Error error;
    bool help = false;
    if (!cmd_load_config(CMD_GENERATE, argc, argv, &config, &help, &error)) {
        fprintf(stderr, "longwave generate: %s\n", error.text);
        return 2;
    }
    int status = 0;
    if (help)
        config_print_help(CMD_GENERATE, "longwave");
    else if ((status = read_and_generate(&config, &error)))
        fprintf(stderr, "longwave generate: %s\n", error.text);
    config_done(&config);
    return status;
}
