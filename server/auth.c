/* SPDX-License-Identifier: Apache-2.0 */
#include "server/auth.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_KEYS = 1024, MAX_KEY_BYTES = 512 };

struct Auth {
    size_t n_keys;
    char *keys[MAX_KEYS];
};

static bool add_key(Auth *auth, const char *key, Error *error)
{
    size_t n = strlen(key);
    if (!n || n > MAX_KEY_BYTES)
        return error_set_param(error, ERR_INVALID, "api_key", "an API key has 1 to %d bytes, not %zu", MAX_KEY_BYTES,
                               n);
    if (auth->n_keys == MAX_KEYS)
        return error_set_param(error, ERR_TOO_LARGE, "api_key_file", "more than %d API keys", MAX_KEYS);
    char *copy = strdup(key);
    if (!copy) return error_set(error, ERR_NO_MEMORY, "no memory for API keys");
    auth->keys[auth->n_keys++] = copy;
    return true;
}

static bool read_keys(Auth *auth, FILE *file, const char *path, Error *error)
{
    char line[2 * MAX_KEY_BYTES];
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        size_t n = strcspn(line, "\r\n");
        if (!line[n] && !feof(file))
            return error_set_param(error, ERR_INVALID, "api_key_file", "%.200s line %u is too long", path, number);
        while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t')) n--; /* a client cannot send them */
        line[n] = '\0';
        const char *start = line + strspn(line, " \t");
        if (!*start || *start == '#') continue;
        const char *colon = strchr(start, ':');
        if (!add_key(auth, colon ? colon + 1 : start, error))
            return error_prefix(error, "%.200s line %u", path, number);
    }
    return true;
}

/* "credential:NAME" is a file that the service manager passes (LoadCredential= of systemd). */
static bool find_file(const char *path, char found[static PATH_MAX], Error *error)
{
    static const char prefix[] = "credential:";
    const char *name = path + sizeof prefix - 1, *folder = getenv("CREDENTIALS_DIRECTORY");
    bool is_credential = !strncmp(path, prefix, sizeof prefix - 1);
    if (is_credential && (!*name || strchr(name, '/') || !strcmp(name, "..")))
        return error_set_param(error, ERR_INVALID, "api_key_file", "'%.200s': a credential has a name without '/'",
                               path);
    if (is_credential && !folder)
        return error_set_param(error, ERR_NOT_FOUND, "api_key_file",
                               "'%.200s': the service manager passes no credentials", path);
    int n = is_credential ? snprintf(found, PATH_MAX, "%s/%s", folder, name) : snprintf(found, PATH_MAX, "%s", path);
    return (n > 0 && n < PATH_MAX) ||
           error_set_param(error, ERR_INVALID, "api_key_file", "'%.200s...' is too long", path);
}

static bool load_file(Auth *auth, const char *given, Error *error)
{
    char path[PATH_MAX];
    if (!find_file(given, path, error)) return false;
    FILE *file = fopen(path, "re");
    if (!file) return error_set_param(error, ERR_IO, "api_key_file", "cannot open '%.200s': %s", path, strerror(errno));
    bool ok = read_keys(auth, file, path, error);
    fclose(file);
    if (ok && !auth->n_keys) return error_set_param(error, ERR_INVALID, "api_key_file", "'%.200s' has no key", path);
    return ok;
}

bool auth_load(const char *key_file, const char *key, Auth **ret_auth, Error *error)
{
    Auth *auth = calloc(1, sizeof *auth);
    if (!auth) return error_set(error, ERR_NO_MEMORY, "no memory for API keys");
    if ((key_file && !load_file(auth, key_file, error)) || (key && !add_key(auth, key, error))) {
        auth_free(auth);
        return false;
    }
    *ret_auth = auth;
    return true;
}

void auth_free(Auth *auth)
{
    if (!auth) return;
    for (size_t i = 0; i < auth->n_keys; i++) free(auth->keys[i]);
    free(auth);
}

/* Time depends on the lengths alone. */
static bool equal_constant_time(const char *given, size_t n_given, const char *key)
{
    size_t n_key = strlen(key);
    size_t difference = n_given ^ n_key;
    for (size_t i = 0; i < n_given; i++) difference |= (unsigned char)(given[i] ^ key[i % n_key]);
    return difference == 0;
}

bool auth_allows(const Auth *auth, const char *header)
{
    if (!auth->n_keys) return true;
    if (!header || strncasecmp(header, "Bearer ", 7)) return false;
    const char *given = header + 7 + strspn(header + 7, " ");
    size_t n = strlen(given);
    bool allowed = false;
    for (size_t i = 0; i < auth->n_keys; i++) allowed |= equal_constant_time(given, n, auth->keys[i]);
    return allowed;
}
