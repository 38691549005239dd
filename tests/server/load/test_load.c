/* SPDX-License-Identifier: Apache-2.0 */
/* When requests go out and from when their times count, against a server on the load's own loop. */
#include "server/load/load.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n"

/* Answers any bytes that come after delay_ms; sleep_ms: block_ms after an answer the whole loop sleeps so long. */
typedef struct Server {
    uv_loop_t loop;
    uv_tcp_t listener;
    uint32_t delay_ms, block_ms, sleep_ms;
    LinkPeer peer;
} Server;

typedef struct Visitor {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    Server *server;
    char bytes[8192];
} Visitor;

static void on_block(uv_timer_t *timer)
{
    usleep(((Visitor *)timer->data)->server->sleep_ms * 1000);
}

static void on_answer(uv_timer_t *timer)
{
    static char text[256];
    Visitor *visitor = timer->data;
    int n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(ANSWER), ANSWER);
    const uv_buf_t buffer = uv_buf_init(text, (unsigned)n);
    uv_write(&visitor->write, (uv_stream_t *)&visitor->tcp, &buffer, 1, NULL);
    if (visitor->server->sleep_ms) uv_timer_start(timer, on_block, visitor->server->block_ms, 0);
}

static void on_bytes_wanted(uv_handle_t *handle, size_t wanted, uv_buf_t *ret_buffer)
{
    Visitor *visitor = handle->data;
    (void)wanted;
    *ret_buffer = uv_buf_init(visitor->bytes, sizeof visitor->bytes);
}

static void on_visitor_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_timer_closed(uv_handle_t *handle)
{
    Visitor *visitor = handle->data;
    uv_close((uv_handle_t *)&visitor->tcp, on_visitor_closed);
}

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    Visitor *visitor = stream->data;
    (void)buffer;
    if (n > 0)
        uv_timer_start(&visitor->timer, on_answer, visitor->server->delay_ms, 0);
    else if (n < 0 && !uv_is_closing((uv_handle_t *)&visitor->timer))
        uv_close((uv_handle_t *)&visitor->timer, on_timer_closed);
}

static void on_visitor(uv_stream_t *listener, int status)
{
    Visitor *visitor = calloc(1, sizeof *visitor);
    cr_assert(!status && visitor);
    visitor->server = listener->data;
    uv_tcp_init(listener->loop, &visitor->tcp);
    uv_timer_init(listener->loop, &visitor->timer);
    visitor->tcp.data = visitor->timer.data = visitor;
    cr_assert(!uv_accept(listener, (uv_stream_t *)&visitor->tcp));
    uv_read_start((uv_stream_t *)&visitor->tcp, on_bytes_wanted, on_bytes);
}

static Server *listen_here(uint32_t delay_ms)
{
    Server *server = calloc(1, sizeof *server);
    struct sockaddr_in address;
    int size = sizeof server->peer.addresses[0];
    cr_assert(server && !uv_loop_init(&server->loop) && !uv_tcp_init(&server->loop, &server->listener));
    server->delay_ms = delay_ms;
    server->listener.data = server;
    uv_ip4_addr("127.0.0.1", 0, &address);
    cr_assert(!uv_tcp_bind(&server->listener, (struct sockaddr *)&address, 0));
    cr_assert(!uv_listen((uv_stream_t *)&server->listener, 4096, on_visitor));
    uv_unref((uv_handle_t *)&server->listener);
    server->peer.loop = &server->loop;
    uv_tcp_getsockname(&server->listener, (struct sockaddr *)&server->peer.addresses[0], &size);
    server->peer.n_addresses = 1;
    return server;
}

static void stop(Server *server)
{
    uv_close((uv_handle_t *)&server->listener, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    cr_expect(!uv_loop_close(&server->loop));
    free(server);
}

static Lengths exactly(uint32_t n)
{
    return (Lengths){.a = n, .b = n, .max = n};
}

static LoadReport run(Server *server, LoadParams params, uint32_t n_turns, uint32_t think_ms)
{
    const WorkloadParams asked = {.kind = n_turns > 1 ? WORKLOAD_AGENT : WORKLOAD_RANDOM,
                                  .prompt = exactly(2),
                                  .answer = exactly(1),
                                  .prefix = exactly(2),
                                  .tool = exactly(2),
                                  .turns = exactly(n_turns),
                                  .think_ms = exactly(think_ms),
                                  .n_prefixes = 1,
                                  .is_chat = true,
                                  .model = "m",
                                  .seed = 7};
    Workload *workload;
    LoadReport report;
    Error error;
    cr_assert(workload_new(&asked, &workload, &error), "%s", error.text);
    params.peer = &server->peer;
    params.workload = workload;
    params.host = "here";
    params.duration_usec = UINT64_MAX;
    cr_assert(load_run(&params, &report, &error), "%s", error.text);
    cr_expect(report.n_answered == params.n_requests && report.n_sent == params.n_requests, "%s",
              report.errors[0].error.text);
    workload_free(workload);
    return report;
}

Test(load, what_waits_for_a_client_counts_from_its_time)
{
    Server *server = listen_here(50);
    LoadReport report = run(server, (LoadParams){.n_clients = 1, .rate = 1000, .n_requests = 10}, 1, 0);
    /* All are due within some 10 ms, and each takes 50 ms. */
    cr_expect(samples_summarize(&report.whole).max >= 400e3);
    cr_expect(samples_summarize(&report.first_token).max >= 400e3);
    cr_expect(samples_summarize(&report.send_delay).max >= 350e3);
    cr_expect(report.peak_streams == 1 && report.seconds >= 0.49);
    load_report_done(&report);
    stop(server);
}

Test(load, arrivals_closer_than_a_timer_can_tell_wait_for_their_client)
{
    enum { N = 40, DELAY_MS = 10 };
    Server *server = listen_here(DELAY_MS);
    LoadReport report = run(server, (LoadParams){.n_clients = 1, .rate = 1e5, .n_requests = N}, 1, 0);
    /* All are due within a millisecond or two. One asks at a time, so the last waits for all others. */
    SampleSummary delay = samples_summarize(&report.send_delay);
    cr_expect(delay.n == N && report.peak_streams == 1 && report.n_dialogues == N);
    cr_expect(delay.max >= 1e3 * ((N - 1) * DELAY_MS - 5) && delay.p50 >= 1e3 * (N / 2 - 1) * DELAY_MS - 5e3, "%g, %g",
              delay.max, delay.p50);
    load_report_done(&report);
    stop(server);
}

/* Again if the machine stood still where it may not: before the client has its answer. */
Test(load, a_turn_is_due_when_its_client_has_thought)
{
    double delay_usec = 0;
    for (int i = 0; i < 10 && delay_usec < 150e3; i++) {
        Server *server = listen_here(0);
        server->block_ms = 80;
        server->sleep_ms = 300;
        LoadReport report = run(server, (LoadParams){.n_clients = 1, .n_requests = 2}, 2, 100);
        delay_usec = samples_summarize(&report.send_delay).max;
        load_report_done(&report);
        stop(server);
    }
    cr_expect(delay_usec >= 150e3, "the timer that came late is no thinking");
}

Test(load, the_next_address_is_tried)
{
    Server *server = listen_here(0);
    struct sockaddr_in closed;
    socklen_t size = sizeof closed;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, and nobody listens */
    uv_ip4_addr("127.0.0.1", 0, &closed);
    cr_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&closed, size));
    cr_assert(!getsockname(fd, (struct sockaddr *)&closed, &size));
    server->peer.addresses[2] = server->peer.addresses[0];
    memcpy(&server->peer.addresses[0], &closed, sizeof closed);
    memcpy(&server->peer.addresses[1], &closed, sizeof closed);
    server->peer.n_addresses = 3;
    LoadReport report = run(server, (LoadParams){.n_clients = 4, .n_requests = 12}, 1, 0);
    cr_expect(server->peer.first == 2);
    load_report_done(&report);
    close(fd);
    stop(server);
}
