/* SPDX-License-Identifier: Apache-2.0 */
#include "server/prompt_map.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct World {
    Buffer file;
    Gguf *gguf;
    Tokenizer *tokenizer;
    TokenList tokens;
    cJSON *messages;
    PromptMap *map;
} World;

/* The text as a prompt, every byte of it trusted. */
static void world_init(World *world, const char *text, const char *messages)
{
    Error error;
    TinyModel tiny = tiny_model_default();
    TextRange all = {0, strlen(text)};
    *world = (World){0};
    buffer_init(&world->file, SIZE_MAX / 2);
    cr_assert(tiny_model_build(&tiny, &world->file, &error));
    cr_assert(gguf_open_memory(world->file.data, world->file.n, "tiny", &world->gguf, &error), "%s", error.text);
    cr_assert(tok_new(world->gguf, &world->tokenizer, &error), "%s", error.text);
    TokEncode encode = {.text = text, .n = all.end, .trusted = &all, .n_trusted = 1};
    cr_assert(tok_encode(world->tokenizer, &encode, &world->tokens, &error), "%s", error.text);
    if (messages) {
        world->messages = cJSON_Parse(messages);
        cr_assert_not_null(world->messages);
    }
    cr_assert(prompt_map_new(world->tokenizer, &world->tokens, world->messages, &world->map, &error), "%s", error.text);
}

static void world_done(World *world)
{
    prompt_map_free(world->map);
    cJSON_Delete(world->messages);
    token_list_done(&world->tokens);
    tok_free(world->tokenizer);
    gguf_close(world->gguf);
    buffer_done(&world->file);
}

/* The first token that begins at or behind the text's byte n. */
static uint32_t token_at(const World *world, size_t n)
{
    Buffer piece;
    Error error;
    uint32_t token = 0;
    size_t bytes = 0;
    buffer_init(&piece, 1 << 20);
    for (; bytes < n && token < world->tokens.n; token++) {
        buffer_clear(&piece);
        cr_assert(tok_piece(world->tokenizer, world->tokens.ids[token], true, &piece, &error));
        bytes += piece.n;
    }
    buffer_done(&piece);
    cr_assert_eq(bytes, n, "no token begins at byte %zu", n);
    return token;
}

static void expect(const World *world, const char *text, const char *at, uint32_t message, uint32_t character)
{
    PromptPlace place = prompt_map_find(world->map, token_at(world, (size_t)(at - text)));
    cr_expect(place.message == message && place.character == character, "'%s' is in message %d at %u, not in %d at %u",
              at, (int)place.message, place.character, (int)message, character);
}

#define TURN(role, content) "<|im_start|>" role "\n" content "<|im_end|>\n"

Test(prompt_map, tokens_have_their_place_in_messages)
{
    static const char text[] = "<|im_start|>" TURN("user", "d\xC3\xA9j\xC3\xA0 vu?")
        TURN("assistant", "yes") "<|im_start|>user\nyes no<|im_end|>";
    World world;
    world_init(&world, text,
               "[{\"content\":\"d\xC3\xA9j\xC3\xA0 vu?\"},{\"content\":\" "
               "yes\\n\"},{\"content\":null},{\"content\":\"yes no\"}]");
    expect(&world, text, text, PROMPT_MAP_NONE, 0);
    expect(&world, text, strstr(text, "user"), PROMPT_MAP_NONE, 24);
    expect(&world, text, strstr(text, "d\xC3\xA9j"), 0, 0);
    expect(&world, text, strstr(text, " vu?"), 0, 4);
    expect(&world, text, strstr(text, "yes"), 1, 1); /* the template took the blank before it away */
    expect(&world, text, strstr(text, "yes no"), 3, 0);
    expect(&world, text, strstr(text, " no<"), 3, 3);
    expect(&world, text, strchr(text, 0), 3, 16);
    PromptPlace behind = prompt_map_find(world.map, UINT32_MAX);
    cr_expect(behind.message == 3 && behind.character == 16);
    world_done(&world);
}

Test(prompt_map, a_prompt_without_messages_counts_from_its_start)
{
    static const char text[] = "\xC3\xA9\xC3\xA9 abc";
    World world;
    world_init(&world, text, NULL);
    expect(&world, text, strstr(text, " abc"), PROMPT_MAP_NONE, 2);
    world_done(&world);
}

Test(prompt_map, blanks_around_a_content_may_have_stayed)
{
    static const char text[] = "<|im_start|>user\n  hi \t<|im_end|>hi \n.<|im_end|>\t no";
    World world;
    world_init(&world, text, "[{\"content\":\"  hi \\t\"},{\"content\":\"\\n hi \\n\"},{\"content\":\"\\r\\t no\"}]");
    expect(&world, text, strstr(text, "  hi"), 0, 0);
    expect(&world, text, strstr(text, " hi \t"), 0, 1);
    expect(&world, text, strstr(text, "hi \n"), 1, 2); /* the blanks that it begins with are not there */
    expect(&world, text, strstr(text, ".<"), 1, 6);
    expect(&world, text, strstr(text, " no"), 2, 2);
    world_done(&world);
}

/* A text of words, for free(), and so many messages with this content, looked up in it in no more than 5 s. */
static char *map_many(World *world, int n_messages, const char *content)
{
    enum { TEXT_BYTES = 1 << 20 };
    char *text = malloc(TEXT_BYTES + 1), *messages = malloc((size_t)n_messages * 32);
    cr_assert(text && messages);
    memset(text, 'e', TEXT_BYTES);
    for (int i = 0; i < TEXT_BYTES; i += 9) text[i] = ' ';
    text[TEXT_BYTES] = '\0';
    size_t n = (size_t)sprintf(messages, "[");
    for (int i = 0; i < n_messages; i++)
        n += (size_t)sprintf(messages + n, "%s{\"content\":\"%s\"}", i ? "," : "", content);
    sprintf(messages + n, "]");
    clock_t began = clock();
    world_init(world, text, messages);
    cr_expect_lt((double)(clock() - began) / CLOCKS_PER_SEC, 5);
    free(messages);
    return text;
}

/* Each content that is nowhere would search all of the text. */
Test(prompt_map, contents_that_a_template_hides_take_no_long_search)
{
    World world;
    char *text = map_many(&world, 20000, "eeeeeeeeeex");
    world_done(&world);
    free(text);
}

/* Where a template takes blanks away, what is as it was sent is nowhere, message after message. */
Test(prompt_map, contents_that_a_template_trims_take_no_long_search)
{
    enum { MESSAGES = 100000 };
    World world;
    char *text = map_many(&world, MESSAGES, "eeeeeeee  ");
    expect(&world, text, text + 9 * MESSAGES, MESSAGES - 1, 8);
    world_done(&world);
    free(text);
}
