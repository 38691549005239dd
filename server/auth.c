/* SPDX-License-Identifier: Apache-2.0 */
#include "server/auth.h"
#include "base/sha256.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_KEYS = 1024,
    MAX_KEY_BYTES = 512,
    MAX_LINE_BYTES = 2048,
    ALL_RIGHTS = RIGHT_WATCH | RIGHT_USE | RIGHT_ADMIN
};

#define MAX_LIMIT 1000000000000.0
#define DIGEST_MARK "sha256="

typedef struct Key {
    uint8_t digest[SHA256_BYTES];
    Account *account; /* of the list */
    unsigned rights;
} Key;

struct Auth {
    size_t n_keys, n_accounts;
    Key keys[MAX_KEYS];
    Account *accounts[MAX_KEYS];
};

static const struct {
    const char *name;
    unsigned rights;
} scopes[] = {{"user", RIGHT_USE}, {"monitor", RIGHT_WATCH}, {"admin", ALL_RIGHTS}};

static const struct {
    const char *name;
    size_t offset;
} limit_rows[] = {{"requests", offsetof(AccountLimits, requests)},
                  {"tokens", offsetof(AccountLimits, tokens)},
                  {"concurrent", offsetof(AccountLimits, concurrent)}};

/* A line of the file. */
typedef struct Entry {
    char name[ACCOUNT_NAME_BYTES + 1];
    const char *key;
    unsigned rights;
    AccountLimits limits;
} Entry;

static bool invalid(Error *error, const char *text, const char *what)
{
    return error_set_param(error, ERR_INVALID, "api_key_file", text, what);
}

/* ---- one key ---- */

static bool read_hex(const char *hex, uint8_t digest[static SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(hex) != 2 * SHA256_BYTES || hex[strspn(hex, "0123456789abcdefABCDEF")]) return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        size_t high = (size_t)(strchr(digits, hex[2 * i] | 0x20) - digits);
        size_t low = (size_t)(strchr(digits, hex[2 * i + 1] | 0x20) - digits);
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool read_digest(const char *key, uint8_t digest[static SHA256_BYTES], Error *error)
{
    size_t n = strlen(key), n_mark = strlen(DIGEST_MARK);
    if (!n || n > MAX_KEY_BYTES)
        return error_set_param(error, ERR_INVALID, "api_key", "an API key has 1 to %d bytes, not %zu", MAX_KEY_BYTES,
                               n);
    if (strncmp(key, DIGEST_MARK, n_mark)) {
        sha256(key, n, digest);
        return true;
    }
    return read_hex(key + n_mark, digest) ||
           error_set_param(error, ERR_INVALID, "api_key", "'%s' is not followed by 64 hex digits", DIGEST_MARK);
}

static bool find_account(Auth *auth, const Entry *entry, Account **ret_account, Error *error)
{
    for (size_t i = 0; i < auth->n_accounts; i++) {
        if (strcmp(auth->accounts[i]->name, entry->name)) continue;
        *ret_account = auth->accounts[i];
        if (!memcmp(&auth->accounts[i]->limits, &entry->limits, sizeof entry->limits)) return true;
        return invalid(error, "'%.64s' has other limits in a line above", entry->name);
    }
    Account *account = account_new(entry->name, &entry->limits);
    if (!account) return error_set(error, ERR_NO_MEMORY, "no memory for API keys");
    *ret_account = auth->accounts[auth->n_accounts++] = account;
    return true;
}

static bool add_key(Auth *auth, const Entry *entry, Error *error)
{
    if (auth->n_keys == MAX_KEYS)
        return error_set_param(error, ERR_TOO_LARGE, "api_key_file", "more than %d API keys", MAX_KEYS);
    Key *key = &auth->keys[auth->n_keys];
    if (!read_digest(entry->key, key->digest, error) || !find_account(auth, entry, &key->account, error)) return false;
    for (size_t i = 0; i < auth->n_keys; i++)
        if (!memcmp(auth->keys[i].digest, key->digest, SHA256_BYTES))
            return invalid(error, "the key of '%.64s' is there twice", entry->name);
    key->rights = entry->rights;
    auth->n_keys++;
    return true;
}

/* ---- a line ---- */

static bool read_limit(Entry *entry, const char *word, const char *value, size_t row, Error *error)
{
    char *end;
    double number = strtod(value, &end);
    if (!*value || *end || value[strspn(value, "0123456789")] || number < 1 || number > MAX_LIMIT)
        return invalid(error, "'%.100s' is no whole number from 1 on", word);
    *(uint64_t *)(void *)((char *)&entry->limits + limit_rows[row].offset) = (uint64_t)number;
    return true;
}

static bool read_word(Entry *entry, const char *word, Error *error)
{
    size_t n = strcspn(word, "=");
    const char *value = word[n] ? word + n + 1 : "";
    for (size_t i = 0; i < sizeof limit_rows / sizeof *limit_rows; i++)
        if (strlen(limit_rows[i].name) == n && !strncmp(limit_rows[i].name, word, n))
            return read_limit(entry, word, value, i, error);
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes && !strncmp(word, "scope=", 6); i++)
        if (!strcmp(scopes[i].name, value)) {
            entry->rights = scopes[i].rights;
            return true;
        }
    /* The word may be a part of a key: it is not repeated. */
    return invalid(error, "%s",
                   "what follows the key must be scope=user, scope=monitor, scope=admin, requests=N, tokens=N "
                   "or concurrent=N");
}

/* Letters, digits and a few marks: names stand in metrics and logs. */
static bool set_name(Entry *entry, const char *name, size_t n, Error *error)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-";
    if (!n || n > ACCOUNT_NAME_BYTES || strspn(name, allowed) < n)
        return error_set_param(error, ERR_INVALID, "api_key_file",
                               "a key's name has 1 to %d letters, digits and . _ @ -", ACCOUNT_NAME_BYTES);
    memcpy(entry->name, name, n);
    entry->name[n] = '\0';
    return true;
}

static bool read_line(Auth *auth, char *line, Error *error)
{
    static const char blanks[] = " \t";
    Entry entry = {.rights = RIGHT_USE};
    char *rest = NULL, *start = strtok_r(line, blanks, &rest), *colon = strchr(start, ':');
    if (colon && !set_name(&entry, start, (size_t)(colon - start), error)) return false;
    if (!colon) snprintf(entry.name, sizeof entry.name, "key-%zu", auth->n_keys + 1);
    entry.key = colon ? colon + 1 : start;
    for (char *word; (word = strtok_r(NULL, blanks, &rest));)
        if (!read_word(&entry, word, error)) return false;
    return add_key(auth, &entry, error);
}

static bool read_keys(Auth *auth, FILE *file, const char *path, Error *error)
{
    char line[MAX_LINE_BYTES];
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        size_t n = strcspn(line, "\r\n");
        if (!line[n] && !feof(file))
            return error_set_param(error, ERR_INVALID, "api_key_file", "%.200s line %u is too long", path, number);
        line[n] = '\0';
        const char *start = line + strspn(line, " \t");
        if (!*start || *start == '#') continue;
        if (!read_line(auth, line, error)) return error_prefix(error, "%.200s line %u", path, number);
    }
    return !ferror(file) ||
           error_set_param(error, ERR_IO, "api_key_file", "cannot read '%.200s': %s", path, strerror(errno));
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
    Entry entry = {.name = "api-key", .key = key, .rights = ALL_RIGHTS};
    if (!auth) return error_set(error, ERR_NO_MEMORY, "no memory for API keys");
    if ((key_file && !load_file(auth, key_file, error)) || (key && !add_key(auth, &entry, error))) {
        auth_free(auth);
        return false;
    }
    *ret_auth = auth;
    return true;
}

void auth_take_over(Auth *auth, const Auth *old)
{
    for (size_t i = 0; i < auth->n_accounts; i++)
        for (size_t j = 0; j < old->n_accounts; j++) {
            Account *own = auth->accounts[i], *kept = old->accounts[j];
            if (strcmp(own->name, kept->name)) continue;
            kept->limits = own->limits;
            auth->accounts[i] = account_ref(kept);
            for (size_t k = 0; k < auth->n_keys; k++)
                if (auth->keys[k].account == own) auth->keys[k].account = kept;
            account_unref(own);
            break;
        }
}

void auth_free(Auth *auth)
{
    if (!auth) return;
    for (size_t i = 0; i < auth->n_accounts; i++) account_unref(auth->accounts[i]);
    free(auth);
}

/* ---- a request ---- */

bool auth_check(const Auth *auth, const char *header, AuthGrant *ret_grant)
{
    static const char scheme[] = "Bearer ";
    uint8_t digest[SHA256_BYTES];
    const Key *found = NULL;
    if (!auth->n_keys) {
        *ret_grant = (AuthGrant){NULL, ALL_RIGHTS};
        return true;
    }
    if (!header || strncasecmp(header, scheme, strlen(scheme))) return false;
    const char *given = header + strlen(scheme);
    given += strspn(given, " ");
    sha256(given, strlen(given), digest);
    for (size_t i = 0; i < auth->n_keys; i++)
        if (bytes_equal_constant_time(digest, auth->keys[i].digest, SHA256_BYTES)) found = &auth->keys[i];
    if (found) *ret_grant = (AuthGrant){found->account, found->rights};
    return found;
}

const Account *auth_account(const Auth *auth, size_t i)
{
    return i < auth->n_accounts ? auth->accounts[i] : NULL;
}
