/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/server_fixture.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/server_state.h"
#include "tests/support/tiny_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct Fixture {
    FixtureOptions options;
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t command;
    atomic_bool drain, halt, ended;
    atomic_uint port;
    Server *server;
    Buffer file;
    Gguf *gguf;
    Tokenizer *tokenizer;
    ChatTemplate *chat_template;
    AnswerStyle style;
    ServedModel model;
};

static const char *const names[] = {"tiny", "alias/tiny", FIXTURE_LONG_NAME};

static void need(bool ok, const char *what, const Error *error)
{
    if (ok) return;
    fprintf(stderr, "fixture: %s: %s\n", what, error->text);
    abort();
}

FixtureOptions fixture_defaults(void)
{
    FixtureOptions options = {.step_usec = 1000, .max_queue = 8, .context = 512};
    server_defaults(&options.params);
    options.params.port = 0;
    options.params.max_body_bytes = 1 << 20;
    options.params.head_timeout_ms = options.params.body_timeout_ms = 1000;
    options.params.drain_timeout_ms = 5000;
    return options;
}

static const ServedPolicy policies[] = {{"dense", NULL}, {"dense", "half"}};

static void load_model(Fixture *fixture)
{
    Error error = {0};
    GgufString source;
    TinyModel tiny = tiny_model_default();
    if (fixture->options.chat) tiny.chat = fixture->options.chat;
    buffer_init(&fixture->file, SIZE_MAX / 2);
    need(tiny_model_build(&tiny, &fixture->file, &error), "model", &error);
    need(gguf_open_memory(fixture->file.data, fixture->file.n, "tiny", &fixture->gguf, &error), "gguf", &error);
    need(tok_new(fixture->gguf, &fixture->tokenizer, &error), "tokenizer", &error);
    need(gguf_get_string(fixture->gguf, "tokenizer.chat_template", &source, &error), "template", &error);
    need(chat_template_new(source.data, source.n, "", "<|im_end|>", &fixture->chat_template, &error), "template",
         &error);
    need(answer_style_find(fixture->chat_template, fixture->tokenizer, NULL, NULL, &fixture->style, &error), "style",
         &error);
    fixture->model = (ServedModel){
        .names = names,
        .n_names = 3,
        .architecture = "llama",
        .fingerprint = "fp_test",
        .kv_type = "f16",
        .device = "fake",
        .kv_page_tokens = 64,
        .n_kv_pages = 100,
        .size_bytes = fixture->file.n,
        .created_unix = 1700000000,
        .context = fixture->options.context,
        .tokenizer = fixture->tokenizer,
        .chat_template = fixture->chat_template,
        .style = &fixture->style,
        .policies = {policies, 2, 0},
    };
}

void fixture_tell_loading(Fixture *fixture, double fraction)
{
    server_tell_loading(fixture->server, fraction);
}

static void on_command(uv_async_t *async)
{
    Fixture *fixture = async->data;
    if (atomic_load(&fixture->halt))
        server_stop(fixture->server);
    else if (atomic_load(&fixture->drain))
        server_drain(fixture->server);
}

static void *run(void *arg)
{
    Fixture *fixture = arg;
    Error error = {0};
    uv_loop_init(&fixture->loop);
    uv_async_init(&fixture->loop, &fixture->command, on_command);
    fixture->command.data = fixture;
    fixture->options.params.loop = &fixture->loop;
    fake_worker_configure(fixture->tokenizer, fixture->options.step_usec);
    need(server_start(&fixture->options.params, &fixture->server, &error), "start", &error);
    WorkerParams worker = {.max_queue = fixture->options.max_queue, .session_dir = fixture->options.session_dir};
    if (!fixture->options.loading)
        need(server_attach(fixture->server, &fixture->model, &worker, &error), "attach", &error);
    static CompileWait others;
    for (int i = 0; fixture->options.compiles_never && i < COMPILE_PLACES; i++)
        fixture->server->to_compile.running[i] = &others;
    atomic_store(&fixture->port, server_port(fixture->server));
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&fixture->command, NULL);
    server_free(fixture->server);
    if (uv_loop_close(&fixture->loop)) abort(); /* a handle was forgotten */
    atomic_store(&fixture->ended, true);
    return NULL;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

Fixture *fixture_start(const FixtureOptions *options)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) abort();
    fixture->options = *options;
    log_configure(options->log_level, LOG_JSON);
    load_model(fixture);
    if (pthread_create(&fixture->thread, NULL, run, fixture)) abort();
    while (!atomic_load(&fixture->port)) nap();
    return fixture;
}

uint16_t fixture_port(const Fixture *fixture)
{
    return (uint16_t)atomic_load(&fixture->port);
}

void fixture_drain(Fixture *fixture)
{
    atomic_store(&fixture->drain, true);
    uv_async_send(&fixture->command);
}

void fixture_halt(Fixture *fixture)
{
    atomic_store(&fixture->halt, true);
    uv_async_send(&fixture->command);
}

bool fixture_ended(Fixture *fixture, uint32_t timeout_ms)
{
    uint64_t deadline = clock_now_usec() + timeout_ms * UINT64_C(1000);
    while (!atomic_load(&fixture->ended) && clock_now_usec() < deadline) nap();
    return atomic_load(&fixture->ended);
}

void fixture_stop(Fixture *fixture)
{
    if (!atomic_load(&fixture->ended)) fixture_halt(fixture);
    pthread_join(fixture->thread, NULL);
    chat_template_free(fixture->chat_template);
    tok_free(fixture->tokenizer);
    gguf_close(fixture->gguf);
    buffer_done(&fixture->file);
    free(fixture);
}
