/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tsan/clients.h"
#include "tests/support/http_client.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { N_CLIENTS = 12, N_DRAINED = 6 };

typedef struct Client {
    pthread_t thread;
    uint16_t port;
    uint32_t random, n_turns;
    uint32_t n_complete, n_left, n_wrong;
} Client;

static uint32_t next_random(Client *client)
{
    client->random = client->random * 1664525u + 1013904223u;
    return client->random >> 8;
}

static void nap_usec(uint32_t usec)
{
    nanosleep(&(struct timespec){.tv_nsec = usec * 1000L}, NULL);
}

static void expect(Client *client, const char *path, const char *body, unsigned status, const char *end)
{
    Buffer in;
    http_post(client->port, path, body, &in);
    bool ok = http_status(&in) == status && http_count(&in, end) == 1;
    client->n_complete += ok;
    client->n_wrong += !ok;
    if (!ok) fprintf(stderr, "%s %s: %.300s\n", path, body, in.data);
    buffer_done(&in);
}

static void leave(Client *client)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"abc\",\"max_tokens\":400,\"stream\":true}",
        "{\"prompt\":\"abc\",\"max_tokens\":400}",
        "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3,\"max_tokens\":50,\"stream\":true,\"request_id\":\"x\"}",
    };
    int fd = http_connect(client->port);
    if (fd < 0) return;
    (void)!http_send_post(fd, "/v1/completions", "", bodies[next_random(client) % 3]);
    nap_usec(next_random(client) % 5000);
    close(fd);
    client->n_left++;
}

static void *run(void *arg)
{
    Client *client = arg;
    for (uint32_t i = 0; i < client->n_turns; i++) {
        switch (next_random(client) % 7) {
        case 0:
            expect(client, "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":20,\"stream\":true}", 200,
                   "data: [DONE]");
            break;
        case 1:
            expect(client, "/v1/chat/completions",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":9,\"logprobs\":true,\"top_"
                   "logprobs\":3}",
                   200, "\"timings\"");
            break;
        case 2:
            expect(client, "/tokenize", "{\"content\":\"a\"}", 200, "\"count\":1");
            break;
        case 3:
            expect(client, "/v1/completions", "{\"prompt\":[1e9]}", 400, "invalid_value");
            break;
        case 4:
            expect(client, "/v1/abort", "{\"request_id\":\"nobody\"}", 200, "{\"aborted\":0}");
            break;
        default:
            leave(client);
        }
    }
    return NULL;
}

uint32_t clients_run(uint16_t port, uint32_t n_turns)
{
    static Client clients[N_CLIENTS];
    uint32_t n_wrong = 0, n_complete = 0, n_left = 0;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        clients[i] = (Client){.port = port, .random = i * 977 + 1, .n_turns = n_turns};
        if (pthread_create(&clients[i].thread, NULL, run, &clients[i])) return 1;
    }
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        n_wrong += clients[i].n_wrong;
        n_complete += clients[i].n_complete;
        n_left += clients[i].n_left;
    }
    fprintf(stderr, "%u complete, %u left early, %u wrong\n", n_complete, n_left, n_wrong);
    return n_wrong + !n_complete + !n_left;
}

uint32_t clients_drain(uint16_t port, void (*drain)(void *arg), void *arg)
{
    int fds[N_DRAINED];
    uint32_t n_wrong = 0;
    for (int i = 0; i < N_DRAINED; i++) {
        Buffer in;
        buffer_init(&in, 1 << 20);
        fds[i] = http_connect(port);
        (void)!http_send_post(
            fds[i], "/v1/chat/completions", "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":30,\"stream\":true}");
        n_wrong += http_read(fds[i], &in, "\"role\":\"assistant\"", 10000) != HTTP_FOUND;
        buffer_done(&in);
    }
    drain(arg);
    for (int i = 0; i < N_DRAINED; i++) {
        Buffer in;
        buffer_init(&in, 1 << 20);
        n_wrong += http_read(fds[i], &in, "data: [DONE]", 20000) != HTTP_FOUND;
        close(fds[i]);
        buffer_done(&in);
    }
    return n_wrong;
}
