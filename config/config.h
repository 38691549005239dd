/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All options of all subcommands, as one plain struct that is immutable after config_load. One table in options.c makes
 * command line, environment (LONGWAVE_<NAME>), file ([section] key = value), help, example file and reference; later
 * sources win: defaults, file, environment, command line. Strings live as long as the Config. Any thread after load.
 */
#pragma once
#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"

/* Which subcommands take an option (bits of ConfigOption.commands). */
typedef enum CommandId {
    CMD_SERVE = 1,
    CMD_INSPECT = 2,
    CMD_GENERATE = 4,
    CMD_TOKENIZE = 8,
    CMD_BENCH = 16,
    CMD_EVAL = 32,
    CMD_CALIBRATE = 64,
    CMD_BENCH_SERVE = 128,
} CommandId;

/* Every subcommand. */
typedef struct ConfigCommand {
    CommandId id;
    const char *name;
    const char *what;
} ConfigCommand;
extern const ConfigCommand config_commands[];
extern const size_t config_n_commands;
const char *config_command_name(CommandId command);

enum { CONFIG_LIST_MAX = 16 };
typedef struct ConfigList {
    uint32_t n, at[CONFIG_LIST_MAX];
} ConfigList;

/* Of memory: a fraction of what there is, or bytes; the other one is 0. */
typedef struct ConfigShare {
    double fraction;
    uint64_t bytes;
} ConfigShare;

typedef enum ScheduleMode { SCHEDULE_FCFS, SCHEDULE_PRIORITY } ScheduleMode;
typedef enum CacheMode { CACHE_OFF, CACHE_ON, CACHE_EXACT } CacheMode; /* exact: decoded runs never match */

/* What bench serve asks for, and where. */
typedef enum WorkloadKind { WORKLOAD_RANDOM, WORKLOAD_PREFIX, WORKLOAD_AGENT } WorkloadKind;
typedef enum EndpointKind { ENDPOINT_CHAT, ENDPOINT_COMPLETIONS } EndpointKind;

/* What rows the questions of eval are. */
typedef enum QuestionRows { QUESTIONS_DECODED, QUESTIONS_PREFILLED } QuestionRows;

typedef struct Config {
    Arena arena;
    const char *config; /* path of the file that was read; NULL: none */
    /* model */
    const char *model;  /* NULL: not given */
    const char *device; /* auto, cpu, cuda, cuda:N */
    ConfigShare gpu_memory;
    bool deterministic;
    bool has_kv_type, has_prefill_chunk, has_max_batch_tokens; /* given: the device has no say then */
    const char *alias;     /* several names are separated by commas; NULL: the file's general.name */
    uint32_t context;      /* 0: the model's */
    uint32_t threads;      /* 0: all available */
    uint64_t host_memory;  /* bytes of all keys and values together */
    uint64_t swap_memory;  /* bytes of copies of those that had to give way */
    uint64_t cache_memory; /* bytes of pages that only the prefix cache holds; 0: what is free */
    uint32_t audit;        /* tokens of an answer between two that are computed dense too; 0: none */
    bool baselines;        /* of eval, for requests */
    const char *attention; /* a preset, or auto */
    const char *tool_format, *reasoning_format; /* how the model writes calls of tools and reasoning; NULL: found out */
    const char *roles;                          /* NAME=PATH[,NAME=PATH...]; NULL: none */
    const char *kv_type; /* one name, or CLASS=TYPE[,CLASS=TYPE...]: the engine knows which there are */
    /* server */
    const char *host; /* or "unix:PATH" */
    uint16_t port;
    const char *api_key_file;
    const char *api_key;
    const char *cors_origins;  /* with commas between; NULL: none */
    const char *allowed_hosts; /* the same */
    uint64_t max_body;         /* bytes */
    uint32_t max_queue;
    uint64_t max_queue_tokens;
    bool page;                                   /* at / */
    const char *session_dir;                     /* NULL: no sessions */
    uint32_t max_output_tokens;                  /* 0: the context */
    uint32_t drain_timeout_s, request_timeout_s; /* 0: none */
    /* batching */
    uint32_t prefill_chunk, max_batch, max_batch_tokens, max_stall_ms;
    ScheduleMode schedule;
    CacheMode cache;
    /* logging */
    LogLevel log_level;
    LogFormat log_format;
    bool log_prompts;
    /* generate, tokenize, inspect */
    const char *prompt; /* -p */
    const char *file;   /* -f: read the prompt from a file, "-" is stdin */
    bool raw;           /* generate: no chat template */
    bool special;       /* tokenize: control tokens in the text count as such */
    bool json;
    uint32_t max_tokens; /* -n; 0: what the context has room for */
    float temperature, top_p, min_p;
    uint32_t top_k; /* 0: all */
    float typical_p, top_n_sigma, xtc_probability, xtc_threshold;
    float dynatemp_range, dynatemp_exponent;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t repeat_last_n; /* 0: the penalties count nothing */
    float dry_multiplier, dry_base;
    uint32_t dry_allowed_length, dry_penalty_last_n;
    uint32_t mirostat; /* 0, 1 or 2 */
    float mirostat_tau, mirostat_eta;
    uint64_t seed;
    bool has_seed;
    const char *shape; /* inspect --shape */
    bool tensors;      /* inspect --tensors: list them all */
    bool plan;         /* inspect: what fits */
    bool wavelength;   /* inspect: what wavelength windows prune */
    float wavelength_k;
    const char *rope; /* KIND=FACTOR; NULL: the model's own */
    /* bench */
    ConfigList prefill, depth; /* tokens */
    ConfigList batch;          /* sequences */
    uint32_t decode, repetitions;
    const char *synthetic; /* SHAPE:TYPE */
    const char *row;       /* of the kernels' table; NULL: the best */
    bool kernels;
    /* bench serve */
    WorkloadKind workload;
    EndpointKind endpoint;
    const char *replay; /* path; NULL: none */
    uint32_t clients, prefixes;
    float rate;        /* dialogues a second; 0: closed loop */
    uint64_t requests; /* 0: as many as duration_s allows */
    uint32_t duration_s;
    const char *prompt_tokens, *answer_tokens, *prefix_tokens, *tool_tokens, *turns, *think_ms; /* load/lengths.h */
    bool ignore_eos;
    /* eval */
    const char *policies, *tasks; /* lists with commas, see engine/eval/ */
    ConfigList lengths;           /* tokens */
    uint32_t questions, per_haystack, first_haystack, depths, positions, rows, recall_stride;
    QuestionRows question_rows;
    const char *text, *trace, *resume, *html; /* paths; NULL: none */
    bool certify;
    const char *calibration;
    /* calibrate */
    const char *gates, *output; /* paths; NULL: none */
    float sparsity;
    uint32_t length, prompts, sink, recent, recent_prefill;
} Config;

/*
 * argv without the program's and subcommand's name. Fails with an error naming the option (and file and line), or sets
 * *ret_help when --help was there; *ret_config then holds the defaults. A key that the table lacks is an error with the
 * nearest known name. After true, config_done is due.
 */
LW_CHECK bool config_load(CommandId command, int argc, char **argv, Config *ret_config, bool *ret_help, Error *error);
void config_done(Config *config);

/*
 * Calls visit with every option of the command that differs between the two; reloads: a running process can take it.
 */
void config_compare(CommandId command, const Config *a, const Config *b,
                    void (*visit)(void *arg, const char *name, bool reloads), void *arg);

/*
 * Help text of one subcommand; an example file; the reference in Markdown; the manual pages longwave(1) and
 * longwave.conf(5); completion for bash: all from the table.
 */
void config_print_help(CommandId command, const char *program);
void config_print_example(void);
void config_print_reference(void);
void config_print_man(void);
void config_print_man_conf(void);
void config_print_completion(void);
