/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a server as a load reads them, however their bytes come. */
#include "server/load/http_reader.h"
#include "server/load/sse_reader.h"
#include "server/load/stream_event.h"

#include <criterion/criterion.h>
#include <string.h>

static bool collect(void *arg, const char *bytes, size_t n, Error *error)
{
    return buffer_append(arg, bytes, n, error);
}

/* Feeds pieces of so many bytes; the body goes to body. */
static bool feed(HttpReader *reader, const char *text, size_t piece, Buffer *body, Error *error)
{
    size_t n = strlen(text);
    http_reader_restart(reader);
    buffer_clear(body);
    for (size_t i = 0; i < n; i += piece)
        if (!http_reader_feed(reader, text + i, n - i < piece ? n - i : piece, collect, body, error)) return false;
    return true;
}

static const struct {
    const char *text, *body;
    int status;
    bool keeps, ends_with_connection;
    uint32_t retry_after_s;
} answers[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, true, false, 0},
    {"HTTP/1.1 429 Too Many\r\ncontent-length:2\r\nRETRY-AFTER:  7\r\n\r\n{}", "{}", 429, true, false, 7},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n00a;x=y\r\nlo, world.\r\n0\r\nTrailer: "
     "1\r\n\r\n",
     "hello, world.", 200, true, false, 0},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", "x", 200, false,
     false, 0},
    {"HTTP/1.0 200 OK\r\n\r\nto the end", "to the end", 200, false, true, 0},
    {"HTTP/1.1 503 No\nContent-Length: 0\n\n", "", 503, true, false, 0},
    {"HTTP/1.1 204 None\r\n\r\n", "", 204, true, false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \t\r\n\r\n1\r\nx\r\n0\r\n\r\n", "x", 200, true, false, 0},
    {"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close \r\nContent-Length: 0\r\n\r\n", "", 200, false, false, 0},
    {"HTTP/1.1 200 OK\r\nConnection: x-close,closed\r\nContent-Length: 0\r\n\r\n", "", 200, true, false, 0},
};

Test(load_http_reader, an_answer_is_the_same_however_it_is_cut)
{
    HttpReader reader;
    Buffer body;
    Error error;
    http_reader_init(&reader);
    buffer_init(&body, 1 << 20);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (size_t piece = 1; piece < 80; piece++) {
            cr_assert(feed(&reader, answers[i].text, piece, &body, &error), "%zu in %zu: %s", i, piece, error.text);
            cr_expect(reader.status == answers[i].status && reader.keeps == answers[i].keeps);
            cr_expect(reader.retry_after_s == answers[i].retry_after_s);
            cr_expect(body.n == strlen(answers[i].body) && (!body.n || !memcmp(body.data, answers[i].body, body.n)));
            cr_expect((reader.state == HTTP_READ_DONE) == !answers[i].ends_with_connection, "%zu", i);
            cr_expect(http_reader_close(&reader, &error));
        }
    buffer_done(&body);
    http_reader_done(&reader);
}

Test(load_http_reader, what_is_no_answer_is_refused)
{
    static const char *const rows[] = {
        "SSH-2.0-x\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1 999 x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
    };
    HttpReader reader;
    Buffer body;
    http_reader_init(&reader);
    buffer_init(&body, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Error error = {0};
        cr_expect(!feed(&reader, rows[i], 4, &body, &error) && error.text[0], "%s", rows[i]);
    }
    buffer_done(&body);
    http_reader_done(&reader);
}

Test(load_http_reader, an_answer_that_is_cut_off_is_not_whole)
{
    HttpReader reader;
    Buffer body;
    Error error;
    http_reader_init(&reader);
    buffer_init(&body, 1 << 20);
    const char *whole = answers[2].text;
    for (size_t n = 0; n < strlen(whole); n++) {
        http_reader_restart(&reader);
        cr_assert(n == 0 || http_reader_feed(&reader, whole, n, collect, &body, &error));
        cr_expect(!http_reader_close(&reader, &error), "after %zu bytes", n);
    }
    static char head[70 << 10] = "HTTP/1.1 200 OK\r\n";
    memset(head + 17, 'x', sizeof head - 18);
    cr_expect(!feed(&reader, head, 100, &body, &error), "a header line without an end");
    for (size_t i = 17 + 98; i + 2 < sizeof head; i += 100) memcpy(head + i, "\r\n", 2);
    cr_expect(!feed(&reader, head, 100, &body, &error), "headers without an end");
    static char early[70 << 10];
    for (size_t i = 0; i + 25 < sizeof early; i += 25) memcpy(early + i, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    cr_expect(!feed(&reader, early, 100, &body, &error), "answers of 1xx without an end");
    buffer_done(&body);
    http_reader_done(&reader);
}

static bool join_event(void *arg, const char *data, size_t n, Error *error)
{
    cr_assert(data[n] == '\0' || n == 0);
    return buffer_append(arg, data, n, error) && buffer_append_text(arg, "|", error);
}

Test(load_sse_reader, events_are_the_same_however_they_are_cut)
{
    static const char stream[] = ": ping\n\ndata: a\n\ndata:b\r\nevent: x\r\ndata:  c\r\n\r\n\n\nid: "
                                 "1\n\ndata:\n\ndata:\ndata:\n\ndata: [DONE]\n\n"
                                 "data: never ended";
    SseReader reader;
    Buffer found;
    Error error;
    sse_reader_init(&reader);
    buffer_init(&found, 1000);
    for (size_t piece = 1; piece < sizeof stream; piece++) {
        sse_reader_restart(&reader);
        buffer_clear(&found);
        for (size_t i = 0, n = sizeof stream - 1; i < n; i += piece)
            cr_assert(sse_reader_feed(&reader, stream + i, n - i < piece ? n - i : piece, join_event, &found, &error));
        cr_expect(strcmp(found.data, "a|b\n c|[DONE]|") == 0, "in %zu: %s", piece, found.data);
    }
    buffer_done(&found);
    sse_reader_done(&reader);
}

static StreamEvent read_event(const char *text, Buffer *content)
{
    StreamEvent event = {0};
    Error error;
    cr_assert(stream_event_read(text, strlen(text), content, &event, &error), "%s: %s", text, error.text);
    return event;
}

Test(load_stream_event, tokens_content_and_usage)
{
    Buffer content;
    buffer_init(&content, 1000);
    cr_expect(
        !read_event("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}", &content)
             .has_tokens);
    cr_expect(read_event("{\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}", &content).has_tokens);
    cr_expect(read_event("{\"choices\":[{\"text\":\"lo\"}]}", &content).has_tokens);
    cr_expect(read_event("{\"choices\":[{\"delta\":{\"reasoning_content\":\"x\"}}]}", &content).has_tokens);
    cr_expect(read_event("{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}", &content).has_tokens);
    cr_expect(!read_event("{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", NULL).has_tokens);
    StreamEvent last = read_event("{\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,"
                                  "\"prompt_tokens_details\":{\"cached_tokens\":8}}}",
                                  NULL);
    cr_expect(last.has_usage && !last.has_tokens && !last.is_end);
    cr_expect(last.prompt_tokens == 12 && last.answer_tokens == 3 && last.cached_tokens == 8);
    cr_expect(read_event("[DONE]", NULL).is_end);
    cr_expect(strcmp(content.data, "Hello") == 0);
    buffer_done(&content);
}

Test(load_stream_event, failures_are_told)
{
    static const struct {
        const char *text, *said;
    } rows[] = {{"{\"error\":{\"message\":\"out of luck\"}}", "out of luck"},
                {"{\"error\":\"plain\"}", "plain"},
                {"{\"choices\":", "an event of the stream is not valid JSON"},
                {"[1]", "object"}};
    StreamEvent event;
    Error error;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect(!stream_event_read(rows[i].text, strlen(rows[i].text), NULL, &event, &error), "%s", rows[i].text);
        cr_expect(strstr(error.text, rows[i].said) != NULL, "%s: %s", rows[i].text, error.text);
    }
    stream_event_refusal("{\"error\":{\"message\":\"queue full\"}}", 34, 429, &error);
    cr_expect(strcmp(error.text, "status 429: queue full") == 0, "%s", error.text);
    stream_event_refusal("<html>", 6, 502, &error);
    cr_expect(strcmp(error.text, "status 502: <html>") == 0, "%s", error.text);
    stream_event_refusal(NULL, 0, 500, &error);
    cr_expect(strcmp(error.text, "status 500: ") == 0, "%s", error.text);
}
