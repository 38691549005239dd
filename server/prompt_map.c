/* SPDX-License-Identifier: Apache-2.0 */
#include "server/prompt_map.h"

#include <stdlib.h>
#include <string.h>

/* A content that is not there costs a search through all that follows: a hostile template must not make many of them.
 */
enum { MAX_TEXT_BYTES = 1 << 30, MAX_MISSES = 16, MAX_TOKEN_CHARS = UINT8_MAX };

struct PromptMap {
    uint32_t n_tokens, n_messages;
    uint8_t *chars;  /* [n_tokens] code points of each; more than 255 count as so many */
    uint32_t *start; /* [n_messages] code points before each content; one that was not found starts where its turn is */
};

static uint32_t count_chars(const char *text, size_t n)
{
    uint32_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return chars;
}

static bool decode(PromptMap *map, const Tokenizer *tokenizer, const TokenList *tokens, Buffer *text, Error *error)
{
    TokStream stream = {0};
    for (size_t i = 0; i < tokens->n; i++) {
        size_t before = text->n;
        if (!tok_stream_push(&stream, tokenizer, tokens->ids[i], true, text, error)) return false;
        uint32_t chars = text->n > before ? count_chars(text->data + before, text->n - before) : 0;
        map->chars[i] = (uint8_t)(chars < MAX_TOKEN_CHARS ? chars : MAX_TOKEN_CHARS);
    }
    return true;
}

/* A search through the prompt's text that only goes forward. */
typedef struct Seek {
    const char *text;
    size_t n, at;
    uint32_t chars; /* before at */
    uint32_t misses;
} Seek;

static bool seek(Seek *seek, const char *needle, size_t n)
{
    const char *from = seek->text + seek->at;
    const char *found = memmem(from, seek->n - seek->at, needle, n);
    if (!found) return false;
    seek->chars += count_chars(from, (size_t)(found - from));
    seek->at = (size_t)(found - seek->text);
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/*
 * Code points before the content, whether or not the template has taken the blanks around it away: what it begins with
 * counts as being there. Blanks are single code points.
 */
static uint32_t find_content(Seek *state, const char *content)
{
    size_t n = strlen(content), lead = 0, end = n;
    while (lead < n && is_blank(content[lead])) lead++;
    while (end > lead && is_blank(content[end - 1])) end--;
    if (state->misses >= MAX_MISSES || lead == end) return state->chars;
    if (!seek(state, content + lead, end - lead)) {
        state->misses++;
        return state->chars;
    }
    uint32_t start = state->chars > lead ? state->chars - (uint32_t)lead : 0;
    state->chars += count_chars(content + lead, end - lead);
    state->at += end - lead;
    for (; end < n && state->at < state->n && state->text[state->at] == content[end]; end++) {
        state->chars++;
        state->at++;
    }
    return start;
}

static void find_messages(PromptMap *map, const Buffer *text, const cJSON *messages)
{
    Seek state = {.text = text->data ? text->data : "", .n = text->n};
    uint32_t i = 0;
    for (const cJSON *message = messages ? messages->child : NULL; message; message = message->next) {
        const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
        map->start[i++] = find_content(&state, cJSON_IsString(content) ? content->valuestring : "");
    }
}

bool prompt_map_new(const Tokenizer *tokenizer, const TokenList *tokens, const cJSON *messages, PromptMap **ret_map,
                    Error *error)
{
    PromptMap *map = calloc(1, sizeof *map);
    size_t n_messages = messages ? (size_t)cJSON_GetArraySize(messages) : 0;
    Buffer text;
    if (!map) return error_set(error, ERR_NO_MEMORY, "no memory for a request");
    buffer_init(&text, MAX_TEXT_BYTES);
    map->n_tokens = (uint32_t)tokens->n;
    map->n_messages = (uint32_t)n_messages;
    map->chars = malloc(tokens->n + 1);
    map->start = calloc(n_messages + 1, sizeof *map->start);
    bool ok = map->chars && map->start ? decode(map, tokenizer, tokens, &text, error)
                                       : error_set(error, ERR_NO_MEMORY, "no memory for a request");
    if (ok) find_messages(map, &text, messages);
    buffer_done(&text);
    if (ok)
        *ret_map = map;
    else
        prompt_map_free(map);
    return ok;
}

void prompt_map_free(PromptMap *map)
{
    if (!map) return;
    free(map->chars);
    free(map->start);
    free(map);
}

PromptPlace prompt_map_find(const PromptMap *map, uint32_t token)
{
    PromptPlace place = {.message = PROMPT_MAP_NONE};
    for (uint32_t i = 0; i < token && i < map->n_tokens; i++) place.character += map->chars[i];
    uint32_t n = 0;
    while (n < map->n_messages && map->start[n] <= place.character) n++;
    if (!n) return place;
    place.message = n - 1;
    place.character -= map->start[n - 1];
    return place;
}
