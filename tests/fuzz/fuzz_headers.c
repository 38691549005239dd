/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decides who may ask and under which name: headers of strangers (traceparent, x-request-id, Authorization, those
 * of CORS) and the key file. The first byte says which. What is accepted has its form, and goes out as it came in.
 */
#include "server/auth.h"
#include "server/cors.h"
#include "server/hosts.h"
#include "server/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void try_trace(char *text)
{
    Trace trace, again;
    char parent[TRACE_PARENT_BYTES + 1];
    trace_read(text, &trace);
    if (!*trace.trace_id) return;
    must(!strncmp(text + 3, trace.trace_id, 32) && strncmp(text + 36, trace.span_id, 16) != 0);
    trace_write(&trace, parent);
    must(strlen(parent) == TRACE_PARENT_BYTES);
    trace_read(parent, &again);
    must(!strcmp(trace.trace_id, again.trace_id) && !strcmp(trace.flags, again.flags));
}

static void try_request_id(char *text)
{
    if (!request_id_is_valid(text)) return;
    must(*text && strlen(text) <= REQUEST_ID_BYTES && !strpbrk(text, " \t\r\n\"\\"));
}

/* No header that could end its line. */
static void check_header(void *arg, const char *name, const char *value)
{
    (void)arg;
    must(*name && !strpbrk(value, "\r\n"));
}

/* list, origin, method and headers, each a line. */
static void try_cors(char *text)
{
    char *part[4] = {NULL}, *rest = text;
    Cors *cors;
    Error error;
    for (size_t i = 0; i < 4 && rest; i++) part[i] = strsep(&rest, "\n");
    for (size_t i = 1; i < 4; i++) /* the HTTP side lets no such header in */
        for (char *c = part[i]; c && *c; c++)
            if (*c == '\r') *c = ' ';
    if (!cors_new(part[0], &cors, &error)) {
        must(!strcmp(error.param, "cors_origins") && *error.text);
        return;
    }
    Hosts *hosts;
    if (hosts_new(part[0], &hosts, &error)) {
        must(hosts_allow(hosts, "127.0.0.1:1", true) && hosts_allow(hosts, NULL, true));
        (void)hosts_allow(hosts, part[1], true);
        hosts_free(hosts);
    }
    const CorsAsk ask = {.origin = part[1], .method = part[2], .headers = part[3]};
    cors_answer(cors, &ask, "POST, OPTIONS", check_header, NULL);
    cors_answer(cors, &ask, NULL, check_header, NULL);
    cors_free(cors);
}

static void check_account(const Account *account)
{
    AccountHeader headers[ACCOUNT_MAX_HEADERS];
    size_t n_name = strlen(account->name), n = account_headers(account, 1, headers);
    must(n_name >= 1 && n_name <= ACCOUNT_NAME_BYTES && !strpbrk(account->name, " \"\\\r\n"));
    must(n <= ACCOUNT_MAX_HEADERS);
    for (size_t i = 0; i < n; i++) check_header(NULL, headers[i].name, headers[i].value);
}

/* The first line is an Authorization, the rest a key file. */
static void try_keys(char *text)
{
    char path[64], *file = text, *header = strsep(&file, "\n");
    Auth *auth;
    Error error;
    const Account *account;
    AuthGrant grant;
    int fd = memfd_create("keys", MFD_CLOEXEC);
    if (fd < 0) return;
    size_t n = file ? strlen(file) : 0;
    must(!n || write(fd, file, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (auth_load(path, NULL, &auth, &error)) {
        for (size_t i = 0; (account = auth_account(auth, i)); i++) check_account(account);
        must(auth_account(auth, 0));
        if (auth_check(auth, header, &grant)) must(grant.account && grant.rights && header);
        must(!auth_check(auth, NULL, &grant));
        auth_free(auth);
    } else {
        must(error.code != ERR_NONE && *error.text);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static void (*const kinds[])(char *text) = {try_trace, try_request_id, try_cors, try_keys};
    if (!n || n > 1 << 16) return 0;
    char *text = malloc(n);
    must(text);
    memcpy(text, data + 1, n - 1);
    text[n - 1] = '\0';
    if (n > 1 && text[n - 2] == '\n') text[n - 2] = '\0'; /* of a seed that is a file of text */
    kinds[data[0] % 4](text);
    free(text);
    return 0;
}
