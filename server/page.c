/* SPDX-License-Identifier: Apache-2.0 */
/* The page for browsers at /, which page/make_page.py makes. It holds nothing of the server, so no key is needed. */
#include "server/api.h"

#include <string.h>

enum { MAX_PAGE_BYTES = 1 << 20 };

/* The document, its ETag with the quotes, and the Content-Security-Policy, which has hashes of what is in it. */
extern const char page_text[], page_etag[], page_security_policy[];

/* Tags cannot hold quotes, so ours is found whole or not at all, weak or strong. */
static bool has_it(const Exchange *exchange)
{
    const char *tags = exchange_header(exchange, "If-None-Match");
    return tags && (!strcmp(tags, "*") || strstr(tags, page_etag));
}

void api_page(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    Error error;
    if (!server->limits.has_page) {
        (void)error_set(&error, ERR_NOT_FOUND, "unknown URL: GET /; the page is switched off");
        server_reply_error(exchange, HTTP_ERR_URL, &error);
        return;
    }
    const HttpHeader headers[] = {{"ETag", page_etag},
                                  {"Cache-Control", "no-cache"},
                                  {"Content-Security-Policy", page_security_policy},
                                  {"X-Content-Type-Options", "nosniff"},
                                  {"X-Frame-Options", "DENY"},
                                  {"Referrer-Policy", "no-referrer"},
                                  {"Cross-Origin-Resource-Policy", "same-origin"},
                                  {NULL, NULL}};
    Buffer body;
    buffer_init(&body, MAX_PAGE_BYTES);
    if (buffer_append_text(&body, page_text, &error)) /* a 304 has its length, and nothing of it is sent */
        exchange_reply(exchange, &(HttpReply){.status = has_it(exchange) ? 304 : 200,
                                              .content_type = "text/html; charset=utf-8",
                                              .body = &body,
                                              .headers = headers});
    else
        server_reply_error(exchange, (int)error.code, &error);
    buffer_done(&body);
}
