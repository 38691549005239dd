/* SPDX-License-Identifier: Apache-2.0 */
/* Remembered ids through chat templates, and in SentencePiece vocabularies. */
#include "engine/text/chat_template.h"
#include "tests/engine/token_rig.h"
#include "tests/support/tiny_model.h"
#include "tests/support/token_cases.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static Error error;

/* ---- through templates ---- */

static TokenList encode_messages(const TokenRig *rig, const char *source, const char *json, bool remembers,
                                 Buffer *ret_text)
{
    ChatTemplate *chat_template;
    ChatPrompt chat;
    cJSON *messages = cJSON_Parse(json);
    TokenList list = {0};
    cr_assert(messages && chat_template_new(source, strlen(source), "", "", &chat_template, &error), "%s", error.text);
    ChatInput input = {.messages = messages, .add_generation_prompt = true};
    cr_assert(chat_template_render(chat_template, &input, 1 << 16, &chat, &error), "%s", error.text);
    TokenRecall recall = {
        .encode = {.text = chat.text.data, .n = chat.text.n, .trusted = chat.trusted, .n_trusted = chat.n_trusted},
        .answers = chat.answers,
        .n_answers = chat.n_answers};
    cr_assert(remembers ? token_memory_encode(rig->memory, &recall, &list, &error)
                        : tok_encode(rig->tokenizer, &recall.encode, &list, &error));
    buffer_init(ret_text, 1 << 16);
    cr_assert(buffer_append(ret_text, chat.text.data, chat.text.n, &error));
    chat_prompt_done(&chat);
    chat_template_free(chat_template);
    cJSON_Delete(messages);
    return list;
}

#define CHATML(content)                                                                                                \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{{ " content " }}{{ '<|im_end|>\n' }}{% endfor %}"  \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

/* What the template makes of 'user: hi' was answered with "the weather " byte by byte. */
static void answer_messages(const TokenRig *rig, const char *source)
{
    Buffer text;
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids("the weather ", ids);
    TokenList before = encode_messages(rig, source, "[{\"role\":\"user\",\"content\":\"hi\"}]", true, &text);
    token_memory_keep(rig->memory, token_memory_hash(rig->memory, &(TokenContext){0}, before.ids, before.n),
                      "the weather ", 12, ids, n);
    token_list_done(&before);
    buffer_done(&text);
}

static bool has_bytes(const TokenList *list, const char *text)
{
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids(text, ids);
    for (size_t i = 0; i + n <= list->n; i++)
        if (memcmp(list->ids + i, ids, n * sizeof *ids) == 0) return true;
    return false;
}

/* Whatever a template does with an answer, the ids stand for the text that it wrote, and no other part changes. */
Test(token_recall, templates_do_as_they_like)
{
    static const struct {
        const char *source;
        bool recalls;
    } cases[] = {
        {CHATML("m.content"), true},
        {CHATML("m.content | trim"), true},
        {CHATML("m.content.split('</think>')[-1]"), true},
        {CHATML("m.content + ''"), true},
        {CHATML("m.content | upper"), false},
        {CHATML("m.content | reverse"), false},
        {CHATML("m.content[1:]"), false},
        {CHATML("m.content[:5]"), false},
        {CHATML("' ' + m.content"), false},
        {CHATML("m.content | replace('e', '<|im_end|>')"), false},
        {CHATML("m.content | tojson"), false},
        {CHATML("m.content + m.content"), false},
        {CHATML("m.content ~ '|' ~ m.content"), true},        /* the first one stands where it stood */
        {CHATML("messages[loop.index0 - 1].content"), false}, /* one message's in the place of another */
        {"{{ messages | length }}{{ messages[-1].content }}", false},
    };
    static const char json[] = "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
                               "\"the weather \"},{\"role\":\"user\",\"content\":\"the weather \"}]";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenRig rig = token_rig_new(1 << 20, 1 << 16);
        Buffer text, same, out;
        answer_messages(&rig, cases[i].source);
        TokenList got = encode_messages(&rig, cases[i].source, json, true, &text);
        TokenList plain = encode_messages(&rig, cases[i].source, json, false, &same);
        cr_expect_eq(has_bytes(&got, "the weather"), cases[i].recalls, "%s", cases[i].source);
        cr_expect_not(has_bytes(&plain, "the weather"));
        buffer_init(&out, 1 << 16);
        for (size_t k = 0; k < got.n; k++) cr_assert(tok_piece(rig.tokenizer, got.ids[k], true, &out, &error));
        cr_expect_str_eq(out.data, text.data, "%s", cases[i].source);
        token_list_done(&got);
        token_list_done(&plain);
        buffer_done(&text);
        buffer_done(&same);
        buffer_done(&out);
        token_rig_free(&rig);
    }
}

/* ---- turns ---- */

static const char asked[] = "<|im_start|>user\nhi<|im_end|>\n<|im_start|><assistant>";

/* The prompt 'asked' was answered with this, byte by byte, and an end token. */
static void keep_turn(const TokenRig *rig, const char *said, uint64_t answer_hash)
{
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids(said, ids);
    TokenList before = token_encode_text(rig, asked, true);
    const TokenContext context = {0};
    const TokenTurn turn = {.context_hash = token_memory_hash(rig->memory, &context, before.ids, before.n),
                            .text_hash = token_memory_text_hash(rig->memory, &context, asked, strlen(asked)),
                            .answer_hash = answer_hash};
    ids[n++] = TINY_IM_END;
    token_memory_keep_turn(rig->memory, &turn, ids, n);
    token_list_done(&before);
}

/* How many ids of the turn come back, byte by byte, at its place. */
static size_t count_recalled(const TokenRig *rig, const char *shown, const char *said, const uint64_t *turns,
                             size_t n_turns)
{
    char marked[1000];
    TokenPrompt prompt;
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids(said, ids);
    snprintf(marked, sizeof marked, "%s%s<|im_end|>\n", asked, shown);
    token_prompt_init(&prompt, marked);
    prompt.recall.turns = turns;
    prompt.recall.n_turns = n_turns;
    TokenList list = token_encode(rig, &prompt, true), before = token_encode_text(rig, asked, true);
    size_t same = 0;
    while (same < n && before.n + same < list.n && list.ids[before.n + same] == ids[same]) same++;
    token_list_done(&list);
    token_list_done(&before);
    return same;
}

/* As far as the text shows it; whole, if the conversation is known to have it and blanks alone differ. */
Test(token_recall, turns_come_back_as_far_as_they_show)
{
    static const char said[] = "{think}\nthe weather{/think}\n{\"a\":1}";
    static const uint64_t known = 7, other = 8;
    static const struct {
        const char *shown;
        size_t n_known, n_plain; /* ids, if the conversation is known to have the turn, and if not */
    } cases[] = {
        {said, sizeof said - 1, sizeof said - 1},
        {"{think}\nthe weather{/think}\n\n{\"a\": 1}", sizeof said - 1, 28},
        {"{think} the weather {/think}{\"a\":1}", sizeof said - 1, 7},
        {"{think}\nthe weather", 19, 19}, /* what a stop string cut */
        {"{think}\nthe weather is fine{/think}\n{\"a\":1}", 19, 19},
        {"{\"a\":1}", 1, 1}, /* a brace is one token in any case */
    };
    TokenRig rig = token_rig_new(1 << 20, 1 << 16);
    keep_turn(&rig, said, known);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_known = count_recalled(&rig, cases[i].shown, said, &known, 1);
        size_t n_plain = count_recalled(&rig, cases[i].shown, said, &other, 1);
        cr_expect(n_known == cases[i].n_known && n_plain == cases[i].n_plain, "%s: %zu, %zu", cases[i].shown, n_known,
                  n_plain);
    }
    token_rig_free(&rig);
}

Test(token_recall, notes_are_found_by_their_hash)
{
    TokenRig rig = token_rig_new(1 << 20, 100);
    Buffer text;
    bool found;
    buffer_init(&text, 1 << 10);
    token_memory_keep_note(rig.memory, 5, "one", 3);
    token_memory_keep_note(rig.memory, 5, "two", 3);
    token_memory_keep_note(rig.memory, 6, "a note that is longer than an entry of this memory may be, by far and wide",
                           74);
    cr_assert(token_memory_note(rig.memory, 5, &text, &found, &error));
    cr_expect(found && !strcmp(text.data, "two"));
    cr_assert(token_memory_note(rig.memory, 6, &text, &found, &error));
    cr_expect_not(found);
    buffer_done(&text);
    token_rig_free(&rig);
}

/* ---- SentencePiece ---- */

static void spm_keys(GgufWriter *writer)
{
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
}

/* Behind remembered ids text goes on: no blank is put before it. */
Test(token_recall, sentencepiece_puts_no_blank_behind_an_answer)
{
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "\xE2\x96\x81",
                                         "a",
                                         "b",
                                         "ab",
                                         "\xE2\x96\x81"
                                         "a"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, -4, -3, -3, -1, -2};
    const VocabSpec spec = {.more = spm_keys,
                            .model = "llama",
                            .tokens = tokens,
                            .types = types,
                            .scores = scores,
                            .n_tokens = 8,
                            .n_types = 8,
                            .n_scores = 8};
    TestTokenizer test = test_tokenizer_open(&spec);
    cr_assert(test.tokenizer, "%s", test.error.text);
    TokenMemory *memory;
    cr_assert(token_memory_new(&(TokenMemoryParams){test.tokenizer, 1 << 16, 1 << 12}, &memory, &error));
    const TextRange answer = {3, 5}, trusted = {0, 3};
    TokenRecall recall = {
        .encode = {.text = "<s>abba", .n = 7, .trusted = &trusted, .n_trusted = 1}, .answers = &answer, .n_answers = 1};
    const uint32_t before[] = {1}, ids[] = {4, 5}, wanted[] = {1, 4, 5, 5, 4};
    token_memory_keep(memory, token_memory_hash(memory, &(TokenContext){0}, before, 1), "ab", 2, ids, 2);
    TokenList list = {0};
    cr_assert(token_memory_encode(memory, &recall, &list, &error), "%s", error.text);
    cr_assert_eq(list.n, 5);
    cr_assert_arr_eq(list.ids, wanted, sizeof wanted);
    token_list_done(&list);
    token_memory_free(memory);
    test_tokenizer_done(&test);
}
