/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/replay.h"
#include "base/array.h"
#include "server/api_json.h"

#include <errno.h>
#include <stdio.h>

enum { MAX_ENTRIES = 1 << 22, MAX_LINE_BYTES = 64 << 20 };
#define MAX_SECONDS (30.0 * 86400)

static bool read_tokens(const cJSON *object, const char *key, uint32_t *ret_tokens, Error *error)
{
    int64_t value;
    const cJSON *item = json_member(object, key);
    if (!item) return error_set_param(error, ERR_INVALID, key, "'%s' is missing", key);
    if (!json_get_int(item, key, 1, REPLAY_MAX_TOKENS, &value, error)) return false;
    *ret_tokens = (uint32_t)value;
    return true;
}

static bool read_entry(const cJSON *object, uint64_t last_usec, ReplayEntry *entry, Error *error)
{
    double at = 0;
    const char *prompt = NULL;
    if (!json_get_object(object, "the line", error)) return false;
    const cJSON *time = json_member(object, "at"), *text = json_member(object, "prompt");
    if (!time) return error_set_param(error, ERR_INVALID, "at", "'at' is missing");
    if (!json_get_real(time, "at", 0, MAX_SECONDS, &at, error)) return false;
    entry->at_usec = (uint64_t)(at * 1e6 + 0.5);
    if (entry->at_usec < last_usec)
        return error_set_param(error, ERR_INVALID, "at", "'at' is earlier than in the line before");
    if (text && !json_get_string(text, "prompt", &prompt, error)) return false;
    if (!text && !read_tokens(object, "prompt_tokens", &entry->prompt_tokens, error)) return false;
    if (!read_tokens(object, "answer_tokens", &entry->answer_tokens, error)) return false;
    entry->prompt = prompt ? strdup(prompt) : NULL;
    return !prompt || entry->prompt || error_set(error, ERR_NO_MEMORY, "no memory for a prompt");
}

/* Nothing but blanks is passed over. */
static bool read_line(const char *line, size_t n, Replay *replay, Error *error)
{
    cJSON *json;
    if (strspn(line, " \t\r\n") == n) return true;
    if (n > MAX_LINE_BYTES) return error_set(error, ERR_TOO_LARGE, "more than %d bytes", MAX_LINE_BYTES);
    if (!json_parse_as("the line", line, n, &json, error)) return false;
    ReplayEntry entry = {0};
    uint64_t last_usec = replay->n ? replay->entries[replay->n - 1].at_usec : 0;
    bool ok = read_entry(json, last_usec, &entry, error);
    cJSON_Delete(json);
    if (ok && !array_reserve(&replay->entries, &replay->capacity, (uint64_t)replay->n + 1, MAX_ENTRIES,
                             sizeof *replay->entries)) {
        free(entry.prompt);
        ok = error_set(error, ERR_TOO_LARGE, "more than %d requests, or no memory for them", MAX_ENTRIES);
    }
    if (ok) replay->entries[replay->n++] = entry;
    return ok;
}

bool replay_load(const char *path, Replay *ret_replay, Error *error)
{
    Replay replay = {0};
    FILE *file = fopen(path, "r");
    if (!file) return error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    bool ok = true;
    while (ok && (n = getline(&line, &room, file)) >= 0) {
        number++;
        ok = read_line(line, (size_t)n, &replay, error) || error_prefix(error, "%s: line %zu", path, number);
    }
    if (ok && ferror(file)) ok = error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
    if (ok && replay.n == 0) ok = error_set(error, ERR_INVALID, "%s: there is no request in it", path);
    free(line);
    fclose(file);
    if (!ok) {
        replay_done(&replay);
        return false;
    }
    *ret_replay = replay;
    return true;
}

void replay_done(Replay *replay)
{
    for (uint32_t i = 0; i < replay->n; i++) free(replay->entries[i].prompt);
    free(replay->entries);
    *replay = (Replay){0};
}
