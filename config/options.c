/* SPDX-License-Identifier: Apache-2.0 */
#include "config/options.h"

#include <stdio.h>
#include <string.h>

enum {
    MEASURERS = CMD_EVAL | CMD_CALIBRATE,
    MODEL_USERS = CMD_SERVE | CMD_INSPECT | CMD_GENERATE | CMD_TOKENIZE | CMD_BENCH | MEASURERS,
    RUNNERS = CMD_SERVE | CMD_GENERATE | CMD_BENCH,
    COMPUTERS = RUNNERS | MEASURERS,
    PROMPTED = CMD_GENERATE | CMD_TOKENIZE,
};

const ConfigCommand config_commands[] = {
    {CMD_SERVE, "serve", "serve a model over the OpenAI HTTP API"},
    {CMD_GENERATE, "generate", "answer one prompt on the terminal"},
    {CMD_TOKENIZE, "tokenize", "show the token ids of a text"},
    {CMD_INSPECT, "inspect", "show what a GGUF file or a named shape holds and needs"},
    {CMD_BENCH, "bench", "measure how fast a model or the kernels are on this machine"},
    {CMD_BENCH_SERVE, "bench serve", "measure what clients of a running server feel under load"},
    {CMD_EVAL, "eval", "measure what attention policies cost in fidelity over long contexts"},
    {CMD_CALIBRATE, "calibrate", "find out which heads can stream, and from which length on a policy pays"},
};
const size_t config_n_commands = sizeof config_commands / sizeof *config_commands;

static const OptionChoice schedules[] = {{"fcfs", SCHEDULE_FCFS}, {"priority", SCHEDULE_PRIORITY}, {NULL, 0}};
static const OptionChoice cache_modes[] = {{"on", CACHE_ON}, {"exact", CACHE_EXACT}, {"off", CACHE_OFF}, {NULL, 0}};
static const OptionChoice log_levels[] = {
    {"error", LOG_ERROR}, {"warn", LOG_WARN}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}, {NULL, 0}};
static const OptionChoice log_formats[] = {{"text", LOG_TEXT}, {"json", LOG_JSON}, {NULL, 0}};

static const OptionChoice workloads[] = {
    {"random", WORKLOAD_RANDOM}, {"prefix", WORKLOAD_PREFIX}, {"agent", WORKLOAD_AGENT}, {NULL, 0}};
static const OptionChoice endpoints[] = {{"chat", ENDPOINT_CHAT}, {"completions", ENDPOINT_COMPLETIONS}, {NULL, 0}};

static const OptionChoice question_kinds[] = {
    {"decode", QUESTIONS_DECODED}, {"prefill", QUESTIONS_PREFILLED}, {NULL, 0}};

#define FIELD(f) .offset = offsetof(Config, f), .width = sizeof(((Config *)0)->f)

const ConfigOption config_options[] = {
    {"config", .kind = OPTION_TEXT, FIELD(config), .commands = MODEL_USERS | CMD_BENCH_SERVE, .metavar = "PATH",
     .help = "INI file with options; the environment and the command line win over it"},

    {"model", 'm', OPTION_TEXT, FIELD(model), .rival_offset = offsetof(Config, shape), .section = "model",
     .commands = MODEL_USERS, .required = CMD_SERVE | CMD_GENERATE | CMD_TOKENIZE | MEASURERS, .metavar = "PATH",
     .help = "GGUF file"},
    {"alias", .kind = OPTION_TEXT, FIELD(alias),
     .shown = "the file's general.name; bench serve: what the server lists first", .section = "model",
     .commands = CMD_SERVE | CMD_BENCH_SERVE, .metavar = "NAME[,NAME...]",
     .help = "model names that requests use; bench serve asks for the first"},
    {"ctx", 'c', OPTION_TOKENS, FIELD(context), .fallback = "0", .shown = "the model's", .max = 1u << 24,
     .section = "model", .commands = RUNNERS | CMD_INSPECT, .metavar = "TOKENS",
     .help = "largest context of one request, prompt and answer together; by default no more than memory holds, and "
             "in bench than it times"},
    {"device", .kind = OPTION_TEXT, FIELD(device), .fallback = "auto", .section = "model", .commands = COMPUTERS,
     .metavar = "NAME", .help = "what computes: cpu, cuda, cuda:N for one of several, or auto: a GPU if there is one"},
    {"gpu_memory", .kind = OPTION_SHARE, FIELD(gpu_memory), .fallback = "0.9", .min = 1 << 20, .max = 1ull << 46,
     .section = "model", .commands = COMPUTERS | CMD_INSPECT, .metavar = "SHARE",
     .help = "memory of the GPU for weights, buffers, keys and values: a fraction of what it has, or a size"},
    {"deterministic", .kind = OPTION_FLAG, FIELD(deterministic), .fallback = "off", .section = "model",
     .commands = COMPUTERS, .help = "on a GPU: a token's bits do not depend on what else is computed with it; slower"},
    {"threads", 't', OPTION_INTEGER, FIELD(threads), .fallback = "0", .shown = "all CPUs", .max = 1024,
     .section = "model", .commands = COMPUTERS, .metavar = "N", .help = "CPU threads that compute"},
    {"kv_type", .kind = OPTION_TEXT, FIELD(kv_type), .seen_offset = offsetof(Config, has_kv_type), .fallback = "f16",
     .shown = "bf16 on a GPU, f16 on the CPU", .section = "model", .commands = COMPUTERS | CMD_INSPECT,
     .metavar = "TYPE",
     .help = "element type of the KV cache: f32, f16, bf16, f8, int8, or int4 at a cost in fidelity; or by class, as "
             "full=int8,window=bf16"},
    {"host_memory", .kind = OPTION_BYTES, FIELD(host_memory), .fallback = "4G", .min = 1 << 20, .max = 1ull << 46,
     .section = "model", .commands = COMPUTERS | CMD_INSPECT, .metavar = "SIZE",
     .help = "without a GPU: memory for the keys and values of all requests together; one whole context has to fit"},
    {"swap_memory", .kind = OPTION_BYTES, FIELD(swap_memory), .fallback = "1G", .max = 1ull << 46, .section = "model",
     .commands = CMD_SERVE, .metavar = "SIZE",
     .help = "memory for copies of keys and values that cannot be computed again while their request has to wait"},
    {"attention", .kind = OPTION_TEXT, FIELD(attention), .fallback = "auto", .section = "model", .commands = CMD_SERVE,
     .metavar = "POLICY",
     .help = "how requests attend that do not say it: dense, lserve-4k, lserve-8k, hip-3k, hip-5k, hip-3k-fast, "
             "hip-3k-flash, or as eval names policies; auto: what the model's certificate says"},
    {"baselines", .kind = OPTION_FLAG, FIELD(baselines), .fallback = "off", .section = "model", .commands = CMD_SERVE,
     .help = "requests may ask for what eval compares with: oracle, quest, streaming-llm, random, vertical-slash, "
             "self-extend"},
    {"audit", .kind = OPTION_INTEGER, FIELD(audit), .fallback = "0", .shown = "none", .max = 1 << 20,
     .section = "model", .commands = CMD_SERVE, .metavar = "TOKENS",
     .help = "of answers that select, every so many-th token is computed by dense attention too: what that would have "
             "changed is told and counted (a GPU estimates no missing mass)"},
    {"tool_format", .kind = OPTION_TEXT, FIELD(tool_format), .shown = "what the template shows", .section = "model",
     .commands = CMD_SERVE, .metavar = "NAME",
     .help = "form of calls: hermes, qwen3-coder, glm, kimi-k2, deepseek-v3, deepseek-v3.1, gpt-oss, llama3-json, "
             "mistral, gemma, gemma4, lfm2, pythonic or generic"},
    {"reasoning_format", .kind = OPTION_TEXT, FIELD(reasoning_format), .shown = "what the template shows",
     .section = "model", .commands = CMD_SERVE, .metavar = "NAME",
     .help =
         "how the model marks its reasoning: think, gpt-oss, mistral, gemma4, cohere, seed, or none: it is content"},
    {"roles", .kind = OPTION_TEXT, FIELD(roles), .shown = "none", .section = "model",
     .commands = CMD_SERVE | CMD_EVAL | CMD_BENCH, .metavar = "NAME=PATH[,NAME=PATH...]",
     .help = "files of head roles, which requests choose by name: heads that stream see the first and the last tokens; "
             "50% in place of a file is a share of all heads, to measure speed"},
    {"prefill_chunk", .kind = OPTION_INTEGER, FIELD(prefill_chunk), .seen_offset = offsetof(Config, has_prefill_chunk),
     .fallback = "256", .shown = "8192 on a GPU, 256 on the CPU", .min = 1, .max = 65536, .section = "batching",
     .commands = RUNNERS, .metavar = "TOKENS", .help = "prompt tokens computed in one pass"},
    {"max_batch", .kind = OPTION_INTEGER, FIELD(max_batch), .fallback = "64", .min = 1, .max = 4096,
     .section = "batching", .commands = CMD_SERVE | MEASURERS, .metavar = "N",
     .help = "answers that are written at once"},
    {"max_batch_tokens", .kind = OPTION_TOKENS, FIELD(max_batch_tokens),
     .seen_offset = offsetof(Config, has_max_batch_tokens), .fallback = "2048",
     .shown = "16384 on a GPU, 2048 on the CPU", .min = 1, .max = 65536, .section = "batching", .commands = CMD_SERVE,
     .metavar = "TOKENS", .help = "rows of one pass at most: bounds prefill_chunk and max_batch"},
    {"max_stall_ms", .kind = OPTION_INTEGER, FIELD(max_stall_ms), .fallback = "100", .min = 1, .max = 60000,
     .section = "batching", .commands = CMD_SERVE, .reloads = true, .metavar = "MS",
     .help = "longest time between two tokens of an answer that reading other prompts may cause"},
    {"schedule", .kind = OPTION_CHOICE, FIELD(schedule), .fallback = "priority", .choices = schedules,
     .section = "batching", .commands = CMD_SERVE, .metavar = "ORDER",
     .help = "which requests come first, by the order of arrival or by what they ask for"},
    {"cache", .kind = OPTION_CHOICE, FIELD(cache), .fallback = "on", .choices = cache_modes, .section = "batching",
     .commands = CMD_SERVE, .metavar = "MODE",
     .help = "reuse of common prefixes; exact: only where the result is the same bit by bit"},
    {"cache_memory", .kind = OPTION_BYTES, FIELD(cache_memory), .fallback = "0", .shown = "what is free",
     .max = 1ull << 46, .section = "batching", .commands = CMD_SERVE, .metavar = "SIZE",
     .help = "keys and values that are kept for later requests only; beyond it what is worth least goes at once"},

    {"host", .kind = OPTION_TEXT, FIELD(host), .fallback = "127.0.0.1", .section = "server",
     .commands = CMD_SERVE | CMD_BENCH_SERVE, .metavar = "ADDRESS",
     .help = "address to listen on, or unix:PATH; of bench serve the server's"},
    {"port", .kind = OPTION_INTEGER, FIELD(port), .fallback = "8080", .min = 1, .max = 65535, .section = "server",
     .commands = CMD_SERVE | CMD_BENCH_SERVE, .metavar = "PORT", .help = "TCP port to listen on, or of the server"},
    {"api_key_file", .kind = OPTION_TEXT, FIELD(api_key_file), .section = "server", .commands = CMD_SERVE,
     .reloads = true, .metavar = "PATH",
     .help =
         "file of API keys, a line each as NAME:KEY, scope and limits (docs/api.md, Access); or credential:NAME, one "
         "that the service manager passes"},
    {"api_key", .kind = OPTION_TEXT, FIELD(api_key), .commands = CMD_SERVE | CMD_BENCH_SERVE, .metavar = "KEY",
     .help = "one API key, for tests: other users of the machine can see a command line, but not the environment"},
    {"cors_origins", .kind = OPTION_TEXT, FIELD(cors_origins), .shown = "none", .section = "server",
     .commands = CMD_SERVE, .reloads = true, .metavar = "ORIGIN[,ORIGIN...]",
     .help = "web pages whose scripts may read answers, such as https://example.org; * is all"},
    {"allowed_hosts", .kind = OPTION_TEXT, FIELD(allowed_hosts),
     .shown = "any; on a loopback address without keys localhost", .section = "server", .commands = CMD_SERVE,
     .reloads = true, .metavar = "NAME[,NAME...]",
     .help = "names that clients may reach the server by, as llm.example.org, besides localhost and addresses; * is "
             "all"},
    {"page", .kind = OPTION_FLAG, FIELD(page), .fallback = "on", .section = "server", .commands = CMD_SERVE,
     .reloads = true, .help = "a page for browsers at /: a chat and what the server does; it asks for the key itself"},
    {"max_body", .kind = OPTION_BYTES, FIELD(max_body), .fallback = "32MiB", .min = 1024, .max = 1u << 30,
     .section = "server", .commands = CMD_SERVE, .metavar = "SIZE", .help = "largest request body; beyond it: 413"},
    {"max_queue", .kind = OPTION_INTEGER, FIELD(max_queue), .fallback = "256", .max = 1u << 16, .section = "server",
     .commands = CMD_SERVE, .reloads = true, .metavar = "N", .help = "requests that may wait; beyond it: 429"},
    {"max_queue_tokens", .kind = OPTION_TOKENS, FIELD(max_queue_tokens), .fallback = "4M", .min = 1, .max = 1ull << 40,
     .section = "server", .commands = CMD_SERVE, .reloads = true, .metavar = "TOKENS",
     .help = "prompt tokens that may wait in all; beyond it: 429"},
    {"max_output_tokens", .kind = OPTION_TOKENS, FIELD(max_output_tokens), .fallback = "0", .shown = "the context",
     .max = 1u << 24, .section = "server", .commands = CMD_SERVE, .reloads = true, .metavar = "TOKENS",
     .help = "largest answer that a request may ask for"},
    {"session_dir", .kind = OPTION_TEXT, FIELD(session_dir), .shown = "no sessions", .section = "server",
     .commands = CMD_SERVE, .metavar = "PATH", .help = "folder that /v1/sessions saves cached prefixes in"},
    {"drain_timeout", .kind = OPTION_SECONDS, FIELD(drain_timeout_s), .fallback = "60s", .max = 86400,
     .section = "server", .commands = CMD_SERVE, .metavar = "TIME",
     .help = "how long open requests may go on after SIGTERM"},
    {"request_timeout", .kind = OPTION_SECONDS, FIELD(request_timeout_s), .fallback = "none", .max = 30 * 86400,
     .section = "server", .commands = CMD_SERVE | CMD_BENCH_SERVE, .reloads = true, .metavar = "TIME",
     .help = "longest time one request may take; beyond it: 504, and bench serve gives it up"},

    {"log_level", .kind = OPTION_CHOICE, FIELD(log_level), .fallback = "info", .choices = log_levels, .section = "log",
     .commands = CMD_SERVE, .reloads = true, .metavar = "LEVEL", .help = "least important lines to write"},
    {"log_format", .kind = OPTION_CHOICE, FIELD(log_format), .fallback = "text", .choices = log_formats,
     .section = "log", .commands = CMD_SERVE, .reloads = true, .metavar = "FORMAT", .help = "text is logfmt"},
    {"log_prompts", .kind = OPTION_FLAG, FIELD(log_prompts), .fallback = "off", .section = "log", .commands = CMD_SERVE,
     .reloads = true, .help = "write the beginning of every prompt to the log"},

    {"prompt", 'p', OPTION_TEXT, FIELD(prompt), .commands = PROMPTED, .metavar = "TEXT", .help = "the text"},
    {"file", 'f', OPTION_TEXT, FIELD(file), .commands = PROMPTED, .metavar = "PATH",
     .help = "read the text from a file; - is standard input"},
    {"raw", .kind = OPTION_FLAG, FIELD(raw), .fallback = "off", .commands = CMD_GENERATE | MEASURERS,
     .help = "continue the text as it is, without the chat template"},
    {"max_tokens", 'n', OPTION_TOKENS, FIELD(max_tokens), .fallback = "0", .shown = "what the context has room for",
     .max = 1u << 24, .commands = CMD_GENERATE, .metavar = "TOKENS", .help = "longest answer"},
    {"temperature", .kind = OPTION_REAL, FIELD(temperature), .fallback = "0.8", .real_max = 100,
     .commands = CMD_GENERATE, .metavar = "T", .help = "0 always takes the likeliest token"},
    {"top_p", .kind = OPTION_REAL, FIELD(top_p), .fallback = "1", .real_max = 1, .commands = CMD_GENERATE,
     .metavar = "P", .help = "keep the likeliest tokens that reach this probability together"},
    {"top_k", .kind = OPTION_INTEGER, FIELD(top_k), .fallback = "0", .shown = "all", .max = UINT32_MAX,
     .commands = CMD_GENERATE, .metavar = "N", .help = "keep the N likeliest tokens"},
    {"min_p", .kind = OPTION_REAL, FIELD(min_p), .fallback = "0", .real_max = 1, .commands = CMD_GENERATE,
     .metavar = "P", .help = "drop tokens less likely than P times the likeliest"},
    {"typical_p", .kind = OPTION_REAL, FIELD(typical_p), .fallback = "1", .real_max = 1, .commands = CMD_GENERATE,
     .metavar = "P", .help = "keep the tokens of most usual surprise that reach this probability together"},
    {"top_n_sigma", .kind = OPTION_REAL, FIELD(top_n_sigma), .fallback = "0", .shown = "off", .real_max = 1000,
     .commands = CMD_GENERATE, .metavar = "N", .help = "drop logits more than N standard deviations below the best"},
    {"xtc_probability", .kind = OPTION_REAL, FIELD(xtc_probability), .fallback = "0", .real_max = 1,
     .commands = CMD_GENERATE, .metavar = "P", .help = "chance to drop the likeliest tokens but the least of them"},
    {"xtc_threshold", .kind = OPTION_REAL, FIELD(xtc_threshold), .fallback = "0.1", .real_max = 1,
     .commands = CMD_GENERATE, .metavar = "P", .help = "with xtc: the likeliest are those of at least P"},
    {"dynatemp_range", .kind = OPTION_REAL, FIELD(dynatemp_range), .fallback = "0", .real_max = 100,
     .commands = CMD_GENERATE, .metavar = "R",
     .help = "temperature lower by up to R when the model is sure, else higher"},
    {"dynatemp_exponent", .kind = OPTION_REAL, FIELD(dynatemp_exponent), .fallback = "1", .real_max = 100,
     .commands = CMD_GENERATE, .metavar = "X", .help = "with dynatemp-range: power of the normalised entropy"},
    {"repetition_penalty", .kind = OPTION_REAL, FIELD(repetition_penalty), .fallback = "1", .real_min = 0.01,
     .real_max = 100, .commands = CMD_GENERATE, .metavar = "X", .help = "divide the logits of tokens that came before"},
    {"presence_penalty", .kind = OPTION_REAL, FIELD(presence_penalty), .fallback = "0", .real_min = -2, .real_max = 2,
     .commands = CMD_GENERATE, .metavar = "X", .help = "take X from the logits of tokens in the answer"},
    {"frequency_penalty", .kind = OPTION_REAL, FIELD(frequency_penalty), .fallback = "0", .real_min = -2, .real_max = 2,
     .commands = CMD_GENERATE, .metavar = "X", .help = "take X for each time that a token is in the answer"},
    {"repeat_last_n", .kind = OPTION_INTEGER, FIELD(repeat_last_n), .fallback = "32768", .max = 32768,
     .commands = CMD_GENERATE, .metavar = "TOKENS", .help = "how far back the three penalties look"},
    {"dry_multiplier", .kind = OPTION_REAL, FIELD(dry_multiplier), .fallback = "0", .shown = "off", .real_max = 1000,
     .commands = CMD_GENERATE, .metavar = "X", .help = "penalty on what would repeat a sequence of tokens"},
    {"dry_base", .kind = OPTION_REAL, FIELD(dry_base), .fallback = "1.75", .real_min = 1, .real_max = 1000,
     .commands = CMD_GENERATE, .metavar = "X", .help = "with dry-multiplier: growth for each token more"},
    {"dry_allowed_length", .kind = OPTION_INTEGER, FIELD(dry_allowed_length), .fallback = "2", .max = 32768,
     .commands = CMD_GENERATE, .metavar = "TOKENS", .help = "with dry-multiplier: length from which the penalty grows"},
    {"dry_penalty_last_n", .kind = OPTION_INTEGER, FIELD(dry_penalty_last_n), .fallback = "64", .max = 32768,
     .commands = CMD_GENERATE, .metavar = "TOKENS", .help = "with dry-multiplier: how far back to look"},
    {"mirostat", .kind = OPTION_INTEGER, FIELD(mirostat), .fallback = "0", .shown = "off", .max = 2,
     .commands = CMD_GENERATE, .metavar = "N",
     .help = "hold the text's surprise by version 1 or 2, without other cuts"},
    {"mirostat_tau", .kind = OPTION_REAL, FIELD(mirostat_tau), .fallback = "5", .real_max = 1000,
     .commands = CMD_GENERATE, .metavar = "BITS", .help = "with mirostat: wanted surprise"},
    {"mirostat_eta", .kind = OPTION_REAL, FIELD(mirostat_eta), .fallback = "0.1", .real_max = 1,
     .commands = CMD_GENERATE, .metavar = "X", .help = "with mirostat: learning rate"},
    {"seed", .kind = OPTION_INTEGER, FIELD(seed), .seen_offset = offsetof(Config, has_seed), .fallback = "0",
     .shown = "a random one; eval and calibrate: 0", .max = UINT64_MAX,
     .commands = CMD_GENERATE | MEASURERS | CMD_BENCH_SERVE, .metavar = "N",
     .help = "same seed, same prompt: same text; of bench serve the same requests"},

    {"special", .kind = OPTION_FLAG, FIELD(special), .fallback = "off", .commands = CMD_TOKENIZE,
     .help = "take control tokens in the text as such, not as plain text"},

    {"shape", .kind = OPTION_TEXT, FIELD(shape), .rival_offset = offsetof(Config, model), .commands = CMD_INSPECT,
     .metavar = "NAME", .help = "a named shape instead of a file, such as llama-3.1-8b"},
    {"tensors", .kind = OPTION_FLAG, FIELD(tensors), .fallback = "off", .commands = CMD_INSPECT,
     .help = "list every tensor"},
    {"plan", .kind = OPTION_FLAG, FIELD(plan), .fallback = "off", .commands = CMD_INSPECT,
     .help = "how many sequences of which length fit common GPUs or --gpu-memory, and --host-memory, by KV type and by "
             "--policies, with none or --sparsity of the heads streaming"},
    {"wavelength", .kind = OPTION_FLAG, FIELD(wavelength), .fallback = "off", .commands = CMD_INSPECT,
     .help = "what windows in proportion to the wavelengths of the RoPE prune at --ctx tokens"},
    {"wavelength_k", .kind = OPTION_REAL, FIELD(wavelength_k), .fallback = "2", .real_min = 0.001, .real_max = 1e6,
     .commands = CMD_INSPECT, .metavar = "K", .help = "with wavelength: wavelengths that a window is long"},
    {"rope", .kind = OPTION_TEXT, FIELD(rope), .shown = "the model's own positions", .commands = CMD_INSPECT | CMD_EVAL,
     .metavar = "KIND=FACTOR", .help = "stretch the context by a factor: plain, linear, ntk or yarn, as yarn=2"},

    {"prefill", .kind = OPTION_LIST, FIELD(prefill), .fallback = "512", .min = 1, .max = 1u << 24,
     .commands = CMD_BENCH, .metavar = "TOKENS[,TOKENS...]", .help = "prompt lengths to time, or none"},
    {"depth", .kind = OPTION_LIST, FIELD(depth), .fallback = "0,2048", .max = 1u << 24, .commands = CMD_BENCH,
     .metavar = "TOKENS[,TOKENS...]", .help = "tokens that stand before those whose decoding is timed, or none"},
    {"decode", .kind = OPTION_TOKENS, FIELD(decode), .fallback = "32", .min = 1, .max = 1u << 16, .commands = CMD_BENCH,
     .metavar = "TOKENS", .help = "tokens decoded at each depth"},
    {"batch", .kind = OPTION_LIST, FIELD(batch), .fallback = "none", .min = 1, .max = 4096, .commands = CMD_BENCH,
     .metavar = "N[,N...]", .help = "sequences to decode together at the first depth, or none"},
    {"repetitions", 'r', OPTION_INTEGER, FIELD(repetitions), .fallback = "5", .min = 1, .max = 10000,
     .commands = CMD_BENCH, .metavar = "N", .help = "how often each figure is measured"},
    {"synthetic", .kind = OPTION_TEXT, FIELD(synthetic), .rival_offset = offsetof(Config, model), .commands = CMD_BENCH,
     .metavar = "SHAPE:TYPE", .help = "a named shape with random weights instead of a file, such as llama-3.1-8b:q8_0"},
    {"kernels", .kind = OPTION_FLAG, FIELD(kernels), .fallback = "off", .commands = CMD_BENCH,
     .help = "time the kernels on the shapes of a small model instead of a file"},
    {"row", .kind = OPTION_TEXT, FIELD(row), .shown = "the best for this machine", .commands = CMD_BENCH,
     .metavar = "NAME", .help = "row of the table of kernels, such as cpu-avx2"},

    {"workload", .kind = OPTION_CHOICE, FIELD(workload), .fallback = "random", .choices = workloads,
     .commands = CMD_BENCH_SERVE, .metavar = "KIND",
     .help = "prompts that share nothing, prompts behind a shared prefix, or dialogues with tools behind one"},
    {"replay", .kind = OPTION_TEXT, FIELD(replay), .shown = "none", .commands = CMD_BENCH_SERVE, .metavar = "PATH",
     .help = "instead of a workload: requests at their times, a JSON object a line with at (seconds), prompt or "
             "prompt_tokens, and answer_tokens"},
    {"clients", .kind = OPTION_INTEGER, FIELD(clients), .fallback = "0", .shown = "16; in open loop as needed",
     .max = 16384, .commands = CMD_BENCH_SERVE, .metavar = "N",
     .help = "so many ask again when they have their answer; in open loop the most that ask at once"},
    {"rate", .kind = OPTION_REAL, FIELD(rate), .fallback = "0", .shown = "closed loop", .real_max = 1e5,
     .commands = CMD_BENCH_SERVE, .metavar = "X",
     .help = "open loop: so many begin in a second, at random times that do not wait for the server; at least 1e-6"},
    {"requests", .kind = OPTION_INTEGER, FIELD(requests), .fallback = "0", .shown = "100, or what fits the duration",
     .max = UINT32_MAX, .commands = CMD_BENCH_SERVE, .metavar = "N", .help = "requests after which none begins"},
    {"duration", .kind = OPTION_SECONDS, FIELD(duration_s), .fallback = "none", .max = 30 * 86400,
     .commands = CMD_BENCH_SERVE, .metavar = "TIME", .help = "time after which no request begins"},
    {"prompt_tokens", .kind = OPTION_TEXT, FIELD(prompt_tokens), .fallback = "512", .commands = CMD_BENCH_SERVE,
     .metavar = "LENGTHS", .help = "length of a prompt: N, A-B, exp:MEAN or lognormal:MEDIAN:SIGMA; in common words"},
    {"answer_tokens", .kind = OPTION_TEXT, FIELD(answer_tokens), .fallback = "128", .commands = CMD_BENCH_SERVE,
     .metavar = "LENGTHS", .help = "length of an answer, as max_tokens"},
    {"prefix_tokens", .kind = OPTION_TEXT, FIELD(prefix_tokens), .fallback = "2048", .commands = CMD_BENCH_SERVE,
     .metavar = "LENGTHS", .help = "with prefix and agent: length of what is shared"},
    {"prefixes", .kind = OPTION_INTEGER, FIELD(prefixes), .fallback = "1", .min = 1, .max = 1024,
     .commands = CMD_BENCH_SERVE, .metavar = "N", .help = "with prefix and agent: how many different ones there are"},
    {"turns", .kind = OPTION_TEXT, FIELD(turns), .fallback = "4-12", .commands = CMD_BENCH_SERVE, .metavar = "LENGTHS",
     .help = "with agent: turns of a dialogue"},
    {"tool_tokens", .kind = OPTION_TEXT, FIELD(tool_tokens), .fallback = "exp:256", .commands = CMD_BENCH_SERVE,
     .metavar = "LENGTHS", .help = "with agent: length of what a tool answers"},
    {"think_ms", .kind = OPTION_TEXT, FIELD(think_ms), .fallback = "exp:500", .commands = CMD_BENCH_SERVE,
     .metavar = "LENGTHS", .help = "with agent: milliseconds between an answer and the next turn"},
    {"endpoint", .kind = OPTION_CHOICE, FIELD(endpoint), .fallback = "chat", .choices = endpoints,
     .commands = CMD_BENCH_SERVE, .metavar = "KIND", .help = "/v1/chat/completions or /v1/completions"},
    {"ignore_eos", .kind = OPTION_FLAG, FIELD(ignore_eos), .fallback = "on", .commands = CMD_BENCH_SERVE,
     .help = "ask for answers of their whole length; off for servers that do not know the field"},

    {"policies", .kind = OPTION_TEXT, FIELD(policies), .fallback = "dense",
     .commands = MEASURERS | CMD_BENCH | CMD_INSPECT, .metavar = "NAME[:FIELD=VALUE...][,...]",
     .help = "attention policies to compare with dense (bench: to decode by): presets, with what is to be changed in "
             "them"},
    {"tasks", .kind = OPTION_TEXT, FIELD(tasks), .fallback = "passkey,kv,multikey,variables,words",
     .commands = MEASURERS, .metavar = "NAME[:KNOB=N...][,...]",
     .help = "what to ask: passkey, kv, multikey, variables, words; knobs are digits, distractors, hops, repeats, "
             "near, needles"},
    {"lengths", .kind = OPTION_LIST, FIELD(lengths), .fallback = "2048", .min = 256, .max = 1u << 24,
     .commands = MEASURERS, .metavar = "TOKENS[,TOKENS...]", .help = "of prompts, question and answer included"},
    {"questions", .kind = OPTION_INTEGER, FIELD(questions), .fallback = "100", .max = 1u << 20, .commands = CMD_EVAL,
     .metavar = "N", .help = "questions of each task at each length; 0: none"},
    {"per_haystack", .kind = OPTION_INTEGER, FIELD(per_haystack), .fallback = "25", .min = 1, .max = 4096,
     .commands = MEASURERS, .metavar = "N", .help = "questions that are asked about one prompt"},
    {"first_haystack", .kind = OPTION_INTEGER, FIELD(first_haystack), .fallback = "0", .max = 1u << 20,
     .commands = CMD_EVAL, .metavar = "N", .help = "number of the first prompt of each task, to divide work by"},
    {"question_rows", .kind = OPTION_CHOICE, FIELD(question_rows), .fallback = "decode", .choices = question_kinds,
     .commands = CMD_EVAL, .metavar = "KIND",
     .help = "whether questions are decoded rows, as answers are, or more of the prompt"},
    {"depths", .kind = OPTION_INTEGER, FIELD(depths), .fallback = "5", .min = 1, .max = 20, .commands = CMD_EVAL,
     .metavar = "N", .help = "rows of the maps of depth and length"},
    {"positions", .kind = OPTION_INTEGER, FIELD(positions), .fallback = "8", .max = 4096, .commands = CMD_EVAL,
     .metavar = "N", .help = "places of a text behind which rows are compared; 0: none"},
    {"rows", .kind = OPTION_INTEGER, FIELD(rows), .fallback = "32", .min = 1, .max = 4096, .commands = CMD_EVAL,
     .metavar = "N", .help = "rows compared behind each place"},
    {"recall_stride", .kind = OPTION_INTEGER, FIELD(recall_stride), .fallback = "16", .max = 4096, .commands = CMD_EVAL,
     .metavar = "N", .help = "every so many rows the lists of selections are examined; 0: never"},
    {"text", .kind = OPTION_TEXT, FIELD(text), .shown = "one made from the seed", .commands = CMD_EVAL,
     .metavar = "PATH", .help = "the text whose rows are compared"},
    {"trace", .kind = OPTION_TEXT, FIELD(trace), .shown = "none", .commands = CMD_EVAL, .metavar = "DIR",
     .help = "folder for plans, scores and masses as .npy"},
    {"resume", .kind = OPTION_TEXT, FIELD(resume), .shown = "none", .commands = CMD_EVAL, .metavar = "PATH",
     .help = "file that keeps what was measured, so that it is not measured again"},
    {"html", .kind = OPTION_TEXT, FIELD(html), .shown = "none", .commands = CMD_EVAL, .metavar = "PATH",
     .help = "write the report as a page too"},
    {"certify", .kind = OPTION_FLAG, FIELD(certify), .fallback = "off", .commands = CMD_EVAL,
     .help = "write the certificate of the policy that passes and reads least beside the model"},
    {"calibration", .kind = OPTION_TEXT, FIELD(calibration), .shown = "none", .commands = CMD_EVAL, .metavar = "PATH",
     .help = "with certify: a file of calibrate; a policy is certified from its crossover on"},

    {"output", 'o', OPTION_TEXT, FIELD(output), .commands = CMD_CALIBRATE, .required = CMD_CALIBRATE, .metavar = "PATH",
     .help = "file of head roles to write; what one that is there already holds is not measured again"},
    {"sparsity", .kind = OPTION_REAL, FIELD(sparsity), .fallback = "0.5", .real_max = 1,
     .commands = CMD_CALIBRATE | CMD_INSPECT, .metavar = "X", .help = "share of the KV heads that stream"},
    {"gates", .kind = OPTION_TEXT, FIELD(gates), .shown = "none", .commands = CMD_CALIBRATE, .metavar = "PATH",
     .help = "a gate for each KV head, as DuoAttention trains them: rank heads by these (a line for each layer, tabs)"},
    {"length", .kind = OPTION_TOKENS, FIELD(length), .fallback = "4096", .min = 256, .max = 1u << 24,
     .commands = CMD_CALIBRATE, .metavar = "TOKENS", .help = "of prompts by which heads are ranked and checked"},
    {"prompts", .kind = OPTION_INTEGER, FIELD(prompts), .fallback = "1", .min = 1, .max = 1024,
     .commands = CMD_CALIBRATE, .metavar = "N", .help = "prompts of each task; as many others for the check"},
    {"sink", .kind = OPTION_INTEGER, FIELD(sink), .fallback = "128", .max = 1u << 20, .commands = CMD_CALIBRATE,
     .metavar = "TOKENS", .help = "first tokens that a streaming head sees, a multiple of 64"},
    {"recent", .kind = OPTION_INTEGER, FIELD(recent), .fallback = "256", .min = 64, .max = 1u << 20,
     .commands = CMD_CALIBRATE, .metavar = "TOKENS", .help = "last tokens that it sees, a multiple of 64"},
    {"recent_prefill", .kind = OPTION_INTEGER, FIELD(recent_prefill), .fallback = "2048", .min = 64, .max = 1u << 20,
     .commands = CMD_CALIBRATE, .metavar = "TOKENS",
     .help = "last tokens that it sees in rows of prompts, a multiple of 64"},

    {"json", .kind = OPTION_FLAG, FIELD(json), .fallback = "off",
     .commands = CMD_INSPECT | PROMPTED | CMD_BENCH | CMD_BENCH_SERVE | MEASURERS, .help = "machine-readable output"},
};
const size_t config_n_options = sizeof config_options / sizeof *config_options;

const char *config_command_name(CommandId command)
{
    for (size_t i = 0; i < config_n_commands; i++)
        if (config_commands[i].id == command) return config_commands[i].name;
    return "longwave";
}

static char plain(char c)
{
    return c == '-' ? '_' : c;
}

const ConfigOption *option_find(const char *name, size_t n)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const char *own = config_options[i].name;
        size_t k = 0;
        while (k < n && own[k] && plain(name[k]) == own[k]) k++;
        if (k == n && !own[k]) return &config_options[i];
    }
    return NULL;
}

const ConfigOption *option_find_letter(char letter)
{
    for (size_t i = 0; i < config_n_options && letter; i++)
        if (config_options[i].letter == letter) return &config_options[i];
    return NULL;
}

enum { NAME_MAX_CHARS = 32 };

/* Levenshtein distance of two names that are at most NAME_MAX_CHARS long. */
static size_t edit_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[NAME_MAX_CHARS + 1];
    for (size_t j = 0; j <= n_b; j++) row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t replace = diagonal + (plain(a[i - 1]) != b[j - 1]);
            size_t skip = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = replace < skip ? replace : skip;
        }
    }
    return row[n_b];
}

const char *option_nearest(const char *name, size_t n, uint32_t commands, bool file_only)
{
    if (n > NAME_MAX_CHARS) return NULL;
    const char *best = NULL;
    size_t best_distance = n / 3 + 2; /* further away it is no typing mistake */
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *option = &config_options[i];
        if (!(option->commands & commands) || (file_only && !option->section)) continue;
        size_t distance = edit_distance(name, n, option->name, strlen(option->name));
        if (distance < best_distance) {
            best_distance = distance;
            best = option->name;
        }
    }
    return best;
}

void option_flag_text(const ConfigOption *option, char text[static 64])
{
    snprintf(text, 64, "--%s", option->name);
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
}

void option_environment_text(const ConfigOption *option, char text[static 64])
{
    snprintf(text, 64, "LONGWAVE_%s", option->name);
    for (char *c = text; *c; c++)
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
}
