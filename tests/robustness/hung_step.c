/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole server with its real engine thread, on an engine whose step can be made to hang: the health routes turn 503
 * and the service manager's watchdog starves, until the step goes on. A step that is only long, and shows each layer,
 * is none that hangs. Closes with 'N passed, N failed'.
 */
#include "tests/support/fake_engine.h"
#include "tests/support/http_client.h"
#include "tests/support/joined_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STALL_MS = 400 };

typedef enum StepKind { STEP_QUICK, STEP_HANGS, STEP_IS_LONG } StepKind;

typedef struct World {
    Engine *engine;
    JoinedServer *joined;
    _Atomic int step; /* StepKind */
    int notified;     /* socket that hears of the watchdog */
} World;

static World world;
static unsigned n_passed, n_failed;

static void check(bool ok, const char *what)
{
    n_passed += ok;
    n_failed += !ok;
    if (!ok) printf("wrong: %s\n", what);
}

static void need(bool ok, const char *what)
{
    if (ok) return;
    printf("cannot go on: %s\n", what);
    exit(1);
}

static void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static uint32_t next_token(void *arg, const uint32_t *tokens, uint32_t n)
{
    (void)arg;
    return tokens[n - 1];
}

static void work(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    (void)n_rows;
    (void)n_layers;
    (void)depth;
    while (atomic_load(&world.step) != STEP_QUICK) {
        nap_ms(5);
        if (atomic_load(&world.step) == STEP_IS_LONG) fake_engine_pulse(world.engine);
    }
    nap_ms(2);
}

static void start(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int n = snprintf(name, sizeof name, "@longwave-hung-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)n - 1);
    world.notified = socket(AF_UNIX, SOCK_DGRAM, 0);
    need(!bind(world.notified, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
         "bind");
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "150000", 1);
    world.engine = fake_engine_new(&(FakeEngineParams){.context = 512, .next = next_token, .work = work});
    JoinedParams params = {
        .worker = {.engine = world.engine, .max_queue = 8, .max_batch = 2, .prefill_chunk = 16},
        .model = {.context = 512, .tokenizer = engine_tokenizer(world.engine)},
    };
    Error error = {0};
    server_defaults(&params.server);
    params.server.stall_ms = STALL_MS;
    need(joined_start(&params, &world.joined, &error), error.text);
}

static bool answers(const char *path, unsigned status, const char *needle)
{
    Buffer in;
    char request[128];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    http_ask(joined_port(world.joined), request, &in);
    bool ok = http_status(&in) == status && strstr(in.data, needle);
    if (!ok) printf("%s: %s\n", path, in.data);
    buffer_done(&in);
    return ok;
}

/* Messages to the service manager within the time that begin with the word. */
static unsigned told_within(unsigned ms, const char *word)
{
    char text[256];
    unsigned n = 0;
    for (unsigned i = 0; i < ms / 10; i++, nap_ms(10)) {
        ssize_t got;
        while ((got = recv(world.notified, text, sizeof text, MSG_DONTWAIT)) > 0)
            n += (size_t)got >= strlen(word) && !memcmp(text, word, strlen(word));
    }
    return n;
}

static unsigned feeds_within(unsigned ms)
{
    return told_within(ms, "WATCHDOG=1");
}

/* Stops the whole process for so long, as a machine does that is moved to another place. */
static void hold_ms(unsigned ms)
{
    pid_t self = getpid(), child = fork();
    need(child >= 0, "fork");
    if (!child) {
        kill(self, SIGSTOP);
        nap_ms(ms);
        kill(self, SIGCONT);
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child, "wait");
}

static void try_hung_step(void)
{
    Buffer in;
    buffer_init(&in, 1 << 20);
    int fd = http_connect(joined_port(world.joined));
    need(http_send_post(fd, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":200,\"stream\":true}"), "post");
    check(http_read(fd, &in, "data: ", 5000) == HTTP_FOUND, "a stream begins");
    check(answers("/livez", 200, "ok") && answers("/readyz", 200, "ok"), "a busy engine is alive");
    atomic_store(&world.step, STEP_HANGS);
    hold_ms(3 * STALL_MS);
    check(answers("/livez", 200, "ok"), "who was held with the whole process has not hung for that time");
    atomic_store(&world.step, STEP_IS_LONG);
    nap_ms(2 * STALL_MS);
    check(answers("/livez", 200, "ok"), "a long step that shows life is none that hangs");
    check(feeds_within(STALL_MS) > 1, "the watchdog is fed in a long step");
    atomic_store(&world.step, STEP_HANGS);
    (void)feeds_within(STALL_MS + 300);
    check(feeds_within(STALL_MS) == 0, "a hung step starves the watchdog");
    check(answers("/livez", 503, "engine_stalled"), "/livez tells of a hung step");
    check(answers("/readyz", 503, "engine_stalled"), "/readyz tells of a hung step");
    check(answers("/metrics", 200, "longwave_engine_idle_seconds"), "the metrics are there all the same");
    atomic_store(&world.step, STEP_QUICK);
    check(http_read(fd, &in, "data: [DONE]", 10000) == HTTP_FOUND, "the stream goes on to its end");
    check(answers("/livez", 200, "ok") && feeds_within(STALL_MS) > 1, "all is well again");
    close(fd);
    buffer_done(&in);
}

/* A long answer gets the time that it takes, a hung step does not. */
static void try_hung_drain(void)
{
    static const char more[] = "EXTEND_TIMEOUT_USEC=";
    Buffer in;
    buffer_init(&in, 1 << 20);
    int fd = http_connect(joined_port(world.joined));
    need(http_send_post(fd, "/v1/completions", "", "{\"prompt\":\"abc\",\"max_tokens\":200,\"stream\":true}"), "post");
    check(http_read(fd, &in, "data: ", 5000) == HTTP_FOUND, "a stream begins");
    atomic_store(&world.step, STEP_IS_LONG);
    joined_drain(world.joined);
    check(told_within(STALL_MS + 300, more) > 1, "a drain asks for time");
    atomic_store(&world.step, STEP_HANGS);
    (void)told_within(STALL_MS + 300, more);
    check(told_within(STALL_MS, more) == 0, "a hung step gets no more time to drain");
    atomic_store(&world.step, STEP_QUICK);
    check(http_read(fd, &in, "data: [DONE]", 10000) == HTTP_FOUND, "the stream goes on to its end");
    close(fd);
    buffer_done(&in);
}

int main(void)
{
    start();
    check(feeds_within(2 * STALL_MS) > 5 && answers("/livez", 200, "ok"), "an idle engine is alive for ever");
    try_hung_step();
    try_hung_drain();
    check(!joined_stop(world.joined), "no handle is left in the loop");
    engine_close(world.engine);
    close(world.notified);
    printf("hung_step: %u passed, %u failed\n", n_passed, n_failed);
    return n_failed > 0;
}
