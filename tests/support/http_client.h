/* SPDX-License-Identifier: Apache-2.0 */
/* A client that can be as rude as tests want: raw bytes over a blocking socket with a deadline. Aborts when memory is
 * out. */
#pragma once
#include "base/buffer.h"

typedef enum HttpEnd { HTTP_FOUND, HTTP_EOF, HTTP_TIMEOUT, HTTP_RESET } HttpEnd;

int http_connect(uint16_t port);
/* False: the other side has closed. */
bool http_send(int fd, const char *text);
/* A whole POST request; extra: more header lines, each with its line end, or "". */
void http_format_post(Buffer *out, const char *path, const char *extra, const char *body);
bool http_send_post(int fd, const char *path, const char *extra, const char *body);
/* Appends what arrives until the needle is in the buffer. needle NULL: until the other side closes. */
HttpEnd http_read(int fd, Buffer *in, const char *needle, uint32_t timeout_ms);
/* A request on a connection of its own, closed by the server after it; the answer, head and all. */
void http_ask(uint16_t port, const char *request, Buffer *in);
void http_post(uint16_t port, const char *path, const char *body, Buffer *in);
/* 0 when there is no status line. */
unsigned http_status(const Buffer *in);
size_t http_count(const Buffer *in, const char *needle);
