/* SPDX-License-Identifier: Apache-2.0 */
#include "server/hosts.h"
#include "server/name_list.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_HOST_BYTES = 253 };

struct Hosts {
    NameList names;
};

static bool is_name(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
    size_t n = strspn(text, letters);
    return n && !text[n] && n <= MAX_HOST_BYTES && text[0] != '.' && text[n - 1] != '.';
}

static const NameListKind kind = {"allowed_hosts", "name", "llm.example.org, without a port or a last dot", is_name};

bool hosts_new(const char *list, Hosts **ret_hosts, Error *error)
{
    Hosts *hosts = calloc(1, sizeof *hosts);
    if (!hosts) return error_set(error, ERR_NO_MEMORY, "no memory for allowed_hosts");
    if (!name_list_read(&hosts->names, &kind, list, error)) {
        hosts_free(hosts);
        return false;
    }
    *ret_hosts = hosts;
    return true;
}

void hosts_free(Hosts *hosts)
{
    if (!hosts) return;
    name_list_done(&hosts->names);
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
    if (!host || hosts->names.all || (!hosts->names.n && !is_guarded)) return true;
    if (!read_name(host, name)) return false;
    return is_address(name) || is_of_this_machine(name) || name_list_has(&hosts->names, name);
}
