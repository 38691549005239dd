/* SPDX-License-Identifier: Apache-2.0 */
#include "server/hosts.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_HOSTS = 64, MAX_HOST_BYTES = 253 };

struct Hosts {
    bool all;
    size_t n;
    char *text; /* what the names point into */
    const char *names[MAX_HOSTS];
};

static bool is_name(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
    size_t n = strspn(text, letters);
    return n && !text[n] && n <= MAX_HOST_BYTES && text[0] != '.' && text[n - 1] != '.';
}

static bool add_name(Hosts *hosts, const char *text, Error *error)
{
    if (!strcmp(text, "*")) {
        hosts->all = true;
        return true;
    }
    if (!is_name(text))
        return error_set_param(
            error, ERR_INVALID, "allowed_hosts",
            "allowed_hosts: '%.100s' is no name such as llm.example.org, without a port or a last dot, and not *",
            text);
    if (hosts->n == MAX_HOSTS)
        return error_set_param(error, ERR_TOO_LARGE, "allowed_hosts", "allowed_hosts has more than %d names",
                               MAX_HOSTS);
    hosts->names[hosts->n++] = text;
    return true;
}

bool hosts_new(const char *list, Hosts **ret_hosts, Error *error)
{
    Hosts *hosts = calloc(1, sizeof *hosts);
    if (hosts) hosts->text = strdup(list ? list : "");
    if (!hosts || !hosts->text) {
        free(hosts);
        return error_set(error, ERR_NO_MEMORY, "no memory for allowed_hosts");
    }
    char *rest = NULL;
    for (char *one = strtok_r(hosts->text, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest))
        if (!add_name(hosts, one, error)) {
            hosts_free(hosts);
            return false;
        }
    *ret_hosts = hosts;
    return true;
}

void hosts_free(Hosts *hosts)
{
    if (!hosts) return;
    free(hosts->text);
    free(hosts);
}

/* host[:port] or [address][:port], without the port, the brackets and the dot that ends a full name; false: too long.
 */
static bool read_name(const char *host, char name[static MAX_HOST_BYTES + 1])
{
    bool is_bracketed = *host == '[';
    host += is_bracketed;
    size_t n = strcspn(host, is_bracketed ? "]" : ":");
    if (n > MAX_HOST_BYTES) return false;
    memcpy(name, host, n);
    if (n && name[n - 1] == '.') n--;
    name[n] = '\0';
    return true;
}

static bool is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

static bool is_of_this_machine(const char *name)
{
    static const char own[] = ".localhost";
    size_t n = strlen(name), n_own = strlen(own);
    return !strcasecmp(name, own + 1) || (n > n_own && !strcasecmp(name + n - n_own, own));
}

bool hosts_allow(const Hosts *hosts, const char *host, bool is_guarded)
{
    char name[MAX_HOST_BYTES + 1];
    if (!host || hosts->all || (!hosts->n && !is_guarded)) return true;
    if (!read_name(host, name)) return false;
    if (is_address(name) || is_of_this_machine(name)) return true;
    for (size_t i = 0; i < hosts->n; i++)
        if (!strcasecmp(hosts->names[i], name)) return true;
    return false;
}
