/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/token_memory.h"
#include "tests/engine/token_rig.h"
#include "tests/support/alloc_count.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Error error;

#define Q1 "<|im_start|>user\nthe water<|im_end|>\n<|im_start|>assistant\n"
#define Q2 "<|im_end|>\n<|im_start|>user\nand the world<|im_end|>\n<|im_start|>assistant\n"

Test(token_memory, a_conversation_gets_the_ids_it_emitted)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    token_answer(&rig, Q1, "the weather is with the world");
    TokenList got = token_encode_text(&rig, Q1 "[the weather is with the world]" Q2, true);
    TokenList wanted = PIECES(&rig, Q1, "~the weather is with the world", Q2);
    TokenList plain = token_encode_text(&rig, Q1 "[the weather is with the world]" Q2, false);
    cr_expect_gt(got.n, plain.n);
    token_list_done(&plain);
    token_expect_same(&got, &wanted, "one turn");
    /* The next answer follows what the first one was. */
    token_answer(&rig, Q1 "[the weather is with the world]" Q2, "today");
    got = token_encode_text(&rig, Q1 "[the weather is with the world]" Q2 "[today]" Q2, true);
    wanted = PIECES(&rig, Q1, "~the weather is with the world", Q2, "~today", Q2);
    token_expect_same(&got, &wanted, "two turns");
    cr_expect_eq(token_memory_stats(rig.memory).n_entries, 2);
    token_rig_free(&rig);
}

Test(token_memory, anything_else_is_tokenized_as_ever)
{
    static const char *const others[] = {
        Q1 "the weather" Q2, /* a user's, or the template's own */
        "<|im_start|>user\nthe weather<|im_end|>\n<|im_start|>assistant\n[the weather]" Q2, /* another question */
        "<|im_start|>user\nthe water<|im_end|>\n<|im_start|>system\n[the weather]" Q2,
        Q1 "[the weathe]" Q2,
        Q1 "[the weather.]" Q2,
        Q1 "[ the weather]" Q2,
        Q1 "[the][ weather]" Q2,
        Q1 "[the weather][the weather]x", /* the second one has another place: see below */
        "[the weather]",
        Q1 "[]",
    };
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    token_answer(&rig, Q1, "the weather");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        TokenList got = token_encode_text(&rig, others[i], true), wanted = token_encode_text(&rig, others[i], false);
        if (strstr(others[i], "]x")) {
            token_list_done(&wanted);
            wanted = PIECES(&rig, Q1, "~the weather", "the weatherx");
        }
        token_expect_same(&got, &wanted, others[i]);
    }
    token_rig_free(&rig);
}

Test(token_memory, salts_do_not_mix)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    token_answer(&rig, Q1, "the weather");
    for (size_t n_salt = 0; n_salt < 3; n_salt++) {
        TokenPrompt prompt;
        token_prompt_init(&prompt, Q1 "[the weather]" Q2);
        prompt.recall.context = (TokenContext){"\0\0", n_salt};
        TokenList got = token_encode(&rig, &prompt, true);
        TokenList wanted = n_salt ? token_encode(&rig, &prompt, false) : PIECES(&rig, Q1, "~the weather", Q2);
        token_expect_same(&got, &wanted, "salt");
    }
    token_rig_free(&rig);
}

/* Templates strip answers. What lies within a token that goes beyond the end is text again. */
Test(token_memory, blanks_at_the_end_may_be_gone)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    token_answer(&rig, Q1, "the sun \n\n");
    TokenList got = token_encode_text(&rig, Q1 "[the sun]" Q2, true), wanted = PIECES(&rig, Q1, "~the sun", Q2);
    token_expect_same(&got, &wanted, "stripped");
    got = token_encode_text(&rig, Q1 "[the sun \n\n]" Q2, true);
    wanted = PIECES(&rig, Q1, "~the sun \n\n", Q2);
    token_expect_same(&got, &wanted, "not stripped");
    uint32_t the = tok_find(rig.tokenizer, "the", 3), blanks = tok_find(rig.tokenizer, "\xC4\xA0\xC4\xA0", 4);
    cr_assert(the != TOK_NONE && blanks != TOK_NONE);
    TokenList before = token_encode_text(&rig, Q1, true);
    uint64_t hash = token_memory_hash(rig.memory, &(TokenContext){0}, before.ids, before.n);
    const uint32_t ids[] = {TINY_FIRST_BYTE + 't', TINY_FIRST_BYTE + 'h', TINY_FIRST_BYTE + 'e', blanks};
    token_memory_keep(rig.memory, hash, "the  ", 5, ids, 4);
    token_list_done(&before);
    got = token_encode_text(&rig, Q1 "[the ]x", true);
    wanted = PIECES(&rig, Q1, "~the", " x");
    token_expect_same(&got, &wanted, "half of a token");
    token_rig_free(&rig);
}

Test(token_memory, only_ids_that_are_the_text_are_kept)
{
    static const uint32_t h = TINY_FIRST_BYTE + 'h', e = TINY_FIRST_BYTE + 'e';
    TokenRig rig = token_rig_new(1 << 20, 200);
    uint32_t llo = tok_find(rig.tokenizer, "llo", 3);
    cr_assert_neq(llo, TOK_NONE);
    const struct {
        const char *text;
        size_t n;
        uint32_t ids[4];
        uint32_t n_ids;
        bool is_kept;
    } cases[] = {
        {"hello", 5, {h, e, llo, TINY_IM_END}, 4, true},
        {"he", 2, {h, e, llo, TINY_IM_END}, 4, true},   /* cut off by a stop string, between tokens */
        {"hel", 3, {h, e, llo, TINY_IM_END}, 4, false}, /* within one */
        {"hello", 5, {h, e, TINY_IM_END, llo}, 4, false},
        {"hello", 5, {TINY_IM_START, h, e, llo}, 4, false},
        {"hello!", 6, {h, e, llo}, 3, false},
        {"xello", 5, {h, e, llo}, 3, false},
        {"\xEF\xBF\xBD", 3, {TINY_FIRST_BYTE + 0xC3}, 1, true}, /* dead bytes show as U+FFFD */
        {"\xEF\xBF\xBD", 3, {TINY_FIRST_BYTE + 0xC3, TINY_IM_END}, 2, true},
        {"\xEF\xBF\xBDh", 4, {TINY_FIRST_BYTE + 0xC3, h, TINY_FIRST_BYTE + 0xC3}, 3, true},
        {"\xEF\xBF\xBDh", 4, {TINY_FIRST_BYTE, h}, 2, true}, /* so does NUL */
        {"h", 1, {h, TINY_FIRST_BYTE + 0xC3}, 2, true},
        {"", 0, {TINY_FIRST_BYTE + 0xC3}, 1, false},
        {"\xC3", 1, {TINY_FIRST_BYTE + 0xC3}, 1, false},
        {"\xC3\xA9", 2, {TINY_FIRST_BYTE + 0xC3, TINY_FIRST_BYTE + 0xA9}, 2, true},
        {"", 0, {h}, 1, false},
        {NULL, 0, {h}, 0, false},
        {"he", 2, {h, UINT32_MAX}, 2, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t before = token_memory_stats(rig.memory).n_entries;
        token_memory_keep(rig.memory, i, cases[i].text, cases[i].n, cases[i].ids, cases[i].n_ids);
        cr_expect_eq(token_memory_stats(rig.memory).n_entries, before + cases[i].is_kept, "case %zu", i);
    }
    char text[101] = {0};
    uint32_t ids[100];
    memset(text, 'x', 100);
    size_t before = token_memory_stats(rig.memory).n_entries;
    token_memory_keep(rig.memory, 99, text, 100, ids, token_byte_ids(text, ids));
    cr_expect_eq(token_memory_stats(rig.memory).n_entries, before, "too long");
    token_rig_free(&rig);
}

/* As when max_tokens ends an answer within a character, or a model of random weights speaks. */
Test(token_memory, what_was_no_text_comes_back_as_it_was)
{
    static const uint32_t dead = TINY_FIRST_BYTE + 0xE2, nul = TINY_FIRST_BYTE, h = TINY_FIRST_BYTE + 'h';
    static const uint32_t ids[] = {h, dead, dead + 0x82 - 0xE2, h, nul, dead, TINY_IM_END};
    static const char shown[] = "h\xEF\xBF\xBDh\xEF\xBF\xBD\xEF\xBF\xBD";
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    TokenList wanted = token_encode_text(&rig, Q1, false), end = token_encode_text(&rig, Q2, false);
    uint64_t hash = token_memory_hash(rig.memory, &(TokenContext){0}, wanted.ids, wanted.n);
    token_memory_keep(rig.memory, hash, shown, strlen(shown), ids, 7);
    for (size_t i = 0; i < 6; i++) cr_assert(token_list_push(&wanted, ids[i], &error));
    for (size_t i = 0; i < end.n; i++) cr_assert(token_list_push(&wanted, end.ids[i], &error));
    TokenList got = token_encode_text(&rig, Q1 "[h\xEF\xBF\xBDh\xEF\xBF\xBD\xEF\xBF\xBD]" Q2, true);
    token_expect_same(&got, &wanted, "dead bytes");
    token_list_done(&end);
    token_rig_free(&rig);
}

Test(token_memory, it_forgets_what_was_not_used_longest)
{
    enum { N = 100 };
    char question[N][80], prompt[120];
    TokenRig rig = token_rig_new(3000, 1000);
    for (int i = 0; i < N; i++) {
        snprintf(question[i], sizeof question[i], "<|im_start|>user\n%d<|im_end|>\n<|im_start|>assistant\n", i);
        token_answer(&rig, question[i], "the weather");
        TokenMemoryStats stats = token_memory_stats(rig.memory);
        cr_expect(stats.n_bytes <= 3000 && (i < 20 || stats.n_entries > 10));
        snprintf(prompt, sizeof prompt, "%s[the weather]", question[0]); /* asked again and again */
        TokenList list = token_encode_text(&rig, prompt, true), wanted = PIECES(&rig, question[0], "~the weather");
        token_expect_same(&list, &wanted, prompt);
    }
    for (int i = 1; i < N; i += 49) {
        bool is_known = i == N - 1;
        snprintf(prompt, sizeof prompt, "%s[the weather]", question[i]);
        TokenList list = token_encode_text(&rig, prompt, true);
        TokenList wanted =
            is_known ? PIECES(&rig, question[i], "~the weather") : token_encode_text(&rig, prompt, false);
        token_expect_same(&list, &wanted, prompt);
    }
    token_rig_free(&rig);
}

/* Many choices of one prompt are all known, the newest of more than enough. */
Test(token_memory, one_context_has_so_many_answers)
{
    char text[24], prompt[120];
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    for (int twice = 0; twice < 2; twice++)
        for (int i = 0; i < 100; i++) {
            snprintf(text, sizeof text, "the %d", i);
            token_answer(&rig, Q1, text);
        }
    cr_expect_eq(token_memory_stats(rig.memory).n_entries, 32);
    for (int i = 60; i < 100; i += 39) {
        snprintf(text, sizeof text, "~the %d", i);
        snprintf(prompt, sizeof prompt, Q1 "[%s]", text + 1);
        TokenList list = token_encode_text(&rig, prompt, true);
        TokenList wanted = i == 99 ? PIECES(&rig, Q1, text) : token_encode_text(&rig, prompt, false);
        token_expect_same(&list, &wanted, prompt);
    }
    token_rig_free(&rig);
}

/* ---- random texts ---- */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static void random_prompt(char *marked, size_t n)
{
    static const char *const words[] = {"the ",     "weather", " is",  "\n\n", "  ", "water",        "a",
                                        "\xC3\xA9", "world",   "x 12", " ",    "t",  "<|im_start|>", "<|im_end|>"};
    bool is_open = false;
    for (size_t at = 0; at + 20 < n;) {
        if (below(4) == 0) {
            marked[at++] = is_open ? ']' : '[';
            is_open = !is_open;
        }
        const char *word = words[below(is_open ? 12 : 14)];
        memcpy(marked + at, word, strlen(word));
        at += strlen(word);
        marked[at] = '\0';
    }
    if (is_open) strcat(marked, "]");
}

static void expect_decodes(const TokenRig *rig, const TokenList *list, const TokenPrompt *prompt)
{
    Buffer out;
    buffer_init(&out, 1 << 16);
    for (size_t i = 0; i < list->n; i++) cr_assert(tok_piece(rig->tokenizer, list->ids[i], true, &out, &error));
    cr_expect(out.n == prompt->recall.encode.n && !memcmp(out.data, prompt->text, out.n), "%s", prompt->text);
    buffer_done(&out);
}

/* Without memories nothing changes; with them the ids are another spelling of the same text. */
Test(token_memory, random_prompts_keep_their_text)
{
    char marked[600];
    TokenPrompt prompt;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        state = seed;
        TokenRig rig = token_rig_new(1 << 20, 1 << 16);
        random_prompt(marked, sizeof marked);
        token_prompt_init(&prompt, marked);
        TokenList plain = token_encode(&rig, &prompt, false), got = token_encode(&rig, &prompt, true);
        token_expect_same(&got, &plain, marked);
        /* Each answer in turn is remembered, behind what is remembered before it. */
        for (size_t i = 0; i < prompt.recall.n_answers; i++) {
            TextRange *range = &prompt.answers[i];
            TokenPrompt before = prompt;
            uint32_t ids[TOKEN_RIG_MAX_IDS], n_ids = 0;
            before.recall.encode.trusted = before.trusted;
            before.recall.answers = before.answers;
            before.recall.encode.text = before.text;
            before.recall.encode.n = range->start;
            before.recall.n_answers = i;
            for (size_t at = range->start; at < range->end; at++)
                ids[n_ids++] = TINY_FIRST_BYTE + (uint8_t)prompt.text[at];
            TokenList list = token_encode(&rig, &before, true);
            token_memory_keep(rig.memory, token_memory_hash(rig.memory, &(TokenContext){0}, list.ids, list.n),
                              prompt.text + range->start, range->end - range->start, ids, n_ids);
            token_list_done(&list);
        }
        got = token_encode(&rig, &prompt, true);
        expect_decodes(&rig, &got, &prompt);
        cr_expect(prompt.recall.n_answers == 0 || token_memory_stats(rig.memory).recalled_tokens > 0);
        token_list_done(&got);
        token_rig_free(&rig);
    }
}

/* A prompt of one piece with thousands of unknown answers is not tokenized thousands of times. */
Test(token_memory, unknown_answers_cost_no_more_than_the_text_again)
{
    enum { N = 200000 };
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    char *text = malloc(N);
    TextRange *answers = malloc(N / 8 * sizeof *answers);
    cr_assert(text && answers);
    memset(text, 'a', N);
    for (size_t i = 0; i < N / 8; i++) {
        text[8 * i] = ' ';
        answers[i] = (TextRange){8 * i + 2, 8 * i + 6};
    }
    TokenRecall recall = {.encode = {.text = text, .n = N}, .answers = answers, .n_answers = N / 8};
    TokenList got = {0}, wanted = {0};
    cr_assert(token_memory_encode(rig.memory, &recall, &got, &error));
    cr_assert(tok_encode(rig.tokenizer, &recall.encode, &wanted, &error));
    token_expect_same(&got, &wanted, "many unknown answers");
    free(text);
    free(answers);
    token_rig_free(&rig);
}

/* ---- memory, threads ---- */

Test(token_memory, every_allocation_may_fail)
{
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    TokenPrompt prompt;
    token_answer(&rig, Q1, "the weather");
    token_prompt_init(&prompt, Q1 "[the weather]" Q2);
    const char *failed = "";
    for (uint64_t n = 1; failed; n++) {
        TokenList list = {0};
        alloc_fail_at(n);
        bool ok = token_memory_encode(rig.memory, &prompt.recall, &list, &error);
        failed = alloc_failed();
        alloc_fail_at(0);
        cr_expect(ok || (error.code == ERR_NO_MEMORY && list.n == 0));
        cr_expect(ok == !failed);
        token_list_done(&list);
    }
    failed = "";
    for (uint64_t n = 1; failed; n++) {
        TokenMemory *memory = NULL;
        alloc_fail_at(n);
        bool ok = token_memory_new(&(TokenMemoryParams){rig.tokenizer, 1 << 16, 1 << 12}, &memory, &error);
        const uint32_t id = TINY_FIRST_BYTE + 'a';
        if (ok) token_memory_keep(memory, 1, "a", 1, &id, 1);
        failed = alloc_failed();
        alloc_fail_at(0);
        cr_expect(ok || error.code == ERR_NO_MEMORY);
        token_memory_free(memory);
    }
    token_rig_free(&rig);
}

typedef struct Hammer {
    const TokenRig *rig;
    uint32_t number;
} Hammer;

static void *hammer(void *arg)
{
    const Hammer *hammer = arg;
    TokenPrompt prompt;
    Error own;
    token_prompt_init(&prompt, Q1 "[the weather]" Q2);
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids("the weather", ids);
    for (uint32_t i = 0; i < 300; i++) {
        TokenList list = {0};
        if (!token_memory_encode(hammer->rig->memory, &prompt.recall, &list, &own)) abort();
        token_memory_keep(
            hammer->rig->memory,
            token_memory_hash(hammer->rig->memory, &(TokenContext){0}, list.ids, (i + hammer->number) % 40),
            "the weather", 11, ids, n);
        token_list_done(&list);
    }
    return NULL;
}

Test(token_memory, threads_share_it)
{
    enum { N = 4 };
    pthread_t threads[N];
    Hammer hammers[N];
    TokenRig rig = token_rig_new(2000, 1000);
    for (uint32_t i = 0; i < N; i++) {
        hammers[i] = (Hammer){&rig, i};
        cr_assert_eq(pthread_create(&threads[i], NULL, hammer, &hammers[i]), 0);
    }
    for (uint32_t i = 0; i < N; i++) pthread_join(threads[i], NULL);
    cr_expect_leq(token_memory_stats(rig.memory).n_bytes, 2000);
    token_rig_free(&rig);
}
