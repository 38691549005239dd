/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same clients against a server in which nothing is a stand-in: real scheduler, real engine of a tiny model with
 * threads of its own, a prefix cache, too little memory for all at once, and sessions that are saved and restored
 * meanwhile. For ThreadSanitizer: loop thread, engine thread, its helpers, libuv's pool, the disk's thread.
 */
#include "tests/support/http_client.h"
#include "tests/support/joined_server.h"
#include "tests/support/tiny_model.h"
#include "tests/tsan/clients.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { N_TURNS = 20 };

typedef struct Saver {
    pthread_t thread;
    uint16_t port;
    atomic_bool ends;
    uint32_t n_saved, n_restored, n_wrong;
} Saver;

static unsigned post(uint16_t port, const char *path, const char *body)
{
    Buffer in;
    http_post(port, path, body, &in);
    unsigned status = http_status(&in);
    buffer_done(&in);
    return status;
}

/* What is saved was computed just before; memory may be short for what comes back. */
static void *save(void *arg)
{
    static const char prompt[] = "{\"prompt\":\"the water with the weather and the world\",\"max_tokens\":1}";
    Saver *saver = arg;
    while (!atomic_load(&saver->ends)) {
        saver->n_wrong += post(saver->port, "/v1/completions", prompt) != 200;
        unsigned saved = post(saver->port, "/v1/sessions/one/save", prompt);
        unsigned restored = post(saver->port, "/v1/sessions/one/restore", "{}");
        saver->n_saved += saved == 200;
        saver->n_restored += restored == 200;
        saver->n_wrong += saved != 200 && saved != 404; /* 404: pages were wanted by others meanwhile */
        saver->n_wrong += restored != 200 && restored != 404 && restored != 429;
    }
    return NULL;
}

static void drain(void *joined)
{
    joined_drain(joined);
}

static void need(bool ok, const char *what)
{
    if (ok) return;
    printf("cannot go on: %s\n", what);
    exit(1);
}

static Engine *open_engine(void)
{
    char path[128];
    Error error;
    Engine *engine;
    TinyModel tiny = tiny_model_default();
    need(tiny_model_temp(&tiny, path, sizeof path, &error), error.text);
    const EngineParams params = {.model_path = path,
                                 .max_sequences = 4,
                                 .max_batch_rows = 64,
                                 .max_logit_rows = 16,
                                 .n_threads = 2,
                                 .kv_types = {{KV_INT8, KV_INT8, KV_INT8}},
                                 .world = 1};
    need(engine_open(&params, &engine, &error), error.text);
    unlink(path);
    return engine;
}

int main(void)
{
    char folder[] = "/tmp/longwave_joined_XXXXXX", file[64];
    Error error;
    need(mkdtemp(folder) != NULL, "no folder");
    Engine *engine = open_engine();
    JoinedParams params = {
        .worker = {.engine = engine,
                   .max_queue = 1000,
                   .max_batch = 4,
                   .prefill_chunk = 32,
                   .cache = CACHE_ON,
                   .session_dir = folder},
        .model = {.context = engine_context(engine),
                  .tokenizer = engine_tokenizer(engine),
                  .chat_template = engine_chat_template(engine)},
    };
    JoinedServer *joined;
    server_defaults(&params.server);
    params.server.ping_ms = 20;
    need(joined_start(&params, &joined, &error), error.text);
    Saver saver = {.port = joined_port(joined)};
    need(!pthread_create(&saver.thread, NULL, save, &saver), "no thread");
    uint32_t wrong = clients_run(joined_port(joined), N_TURNS) ? 1 : 0;
    atomic_store(&saver.ends, true);
    pthread_join(saver.thread, NULL);
    fprintf(stderr, "%u sessions saved, %u restored, %u wrong\n", saver.n_saved, saver.n_restored, saver.n_wrong);
    wrong += saver.n_wrong || !saver.n_saved || !saver.n_restored;
    bool drains_well = !clients_drain(joined_port(joined), drain, joined);
    wrong += joined_stop(joined) || !drains_well;
    wrong += engine_kv_usage(engine).used_bytes != 0;
    engine_close(engine);
    snprintf(file, sizeof file, "%s/one.session", folder);
    unlink(file);
    wrong += rmdir(folder) != 0;
    printf("tsan_joined: %u passed, %u failed\n", 5 - wrong, wrong);
    return wrong != 0;
}
