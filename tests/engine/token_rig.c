/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/engine/token_rig.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocab.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

TokenRig token_rig_new(size_t max_bytes, size_t max_entry_bytes)
{
    TokenRig rig;
    GgufWriter writer;
    gguf_writer_init(&writer);
    tiny_vocab_write(&writer, "smollm", false);
    buffer_init(&rig.file, 1 << 20);
    gguf_writer_finish(&writer, &rig.file);
    gguf_writer_done(&writer);
    cr_assert(gguf_open_memory(rig.file.data, rig.file.n, "tiny", &rig.gguf, &error), "%s", error.text);
    cr_assert(tok_new(rig.gguf, &rig.tokenizer, &error), "%s", error.text);
    cr_assert(token_memory_new(&(TokenMemoryParams){rig.tokenizer, max_bytes, max_entry_bytes}, &rig.memory, &error));
    return rig;
}

void token_rig_free(TokenRig *rig)
{
    token_memory_free(rig->memory);
    tok_free(rig->tokenizer);
    gguf_close(rig->gguf);
    buffer_done(&rig->file);
}

uint32_t token_byte_ids(const char *text, uint32_t *ids)
{
    uint32_t n = 0;
    for (; text[n]; n++) ids[n] = TINY_FIRST_BYTE + (uint8_t)text[n];
    return n;
}

void token_prompt_init(TokenPrompt *prompt, const char *marked)
{
    size_t n = 0;
    TokenRecall *recall = &prompt->recall;
    *recall = (TokenRecall){.answers = prompt->answers};
    for (; *marked; marked++) {
        switch (*marked) {
        case '[':
            prompt->answers[recall->n_answers].start = n;
            break;
        case ']':
            prompt->answers[recall->n_answers++].end = n;
            break;
        case '<':
            prompt->trusted[recall->encode.n_trusted].start = n;
            prompt->text[n++] = '<';
            break;
        case '>':
            prompt->text[n++] = '>';
            prompt->trusted[recall->encode.n_trusted++].end = n;
            break;
        default:
            prompt->text[n++] = *marked;
        }
    }
    recall->encode.text = prompt->text;
    recall->encode.n = n;
    recall->encode.trusted = prompt->trusted;
    recall->encode.add_special = true;
}

TokenList token_encode(const TokenRig *rig, const TokenPrompt *prompt, bool remembers)
{
    TokenList list = {0};
    bool ok = remembers ? token_memory_encode(rig->memory, &prompt->recall, &list, &error)
                        : tok_encode(rig->tokenizer, &prompt->recall.encode, &list, &error);
    cr_assert(ok, "%s", error.text);
    return list;
}

TokenList token_encode_text(const TokenRig *rig, const char *marked, bool remembers)
{
    TokenPrompt prompt;
    token_prompt_init(&prompt, marked);
    return token_encode(rig, &prompt, remembers);
}

void token_expect_same(TokenList *got, TokenList *wanted, const char *what)
{
    cr_expect(got->n == wanted->n && !memcmp(got->ids, wanted->ids, got->n * sizeof *got->ids), "%s: %zu ids, not %zu",
              what, got->n, wanted->n);
    token_list_done(got);
    token_list_done(wanted);
}

void token_answer(const TokenRig *rig, const char *prompt, const char *text)
{
    uint32_t ids[TOKEN_RIG_MAX_IDS], n = token_byte_ids(text, ids);
    TokenList before = token_encode_text(rig, prompt, true);
    ids[n++] = TINY_IM_END;
    token_memory_keep(rig->memory, token_memory_hash(rig->memory, &(TokenContext){0}, before.ids, before.n), text,
                      strlen(text), ids, n);
    token_list_done(&before);
}

TokenList token_pieces(const TokenRig *rig, const char *const *texts, size_t n)
{
    TokenList list = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t ids[TOKEN_RIG_MAX_IDS];
        if (texts[i][0] == '~') {
            for (uint32_t at = 0, n_ids = token_byte_ids(texts[i] + 1, ids); at < n_ids; at++)
                cr_assert(token_list_push(&list, ids[at], &error));
        } else {
            TokenPrompt prompt;
            token_prompt_init(&prompt, texts[i]);
            cr_assert(tok_encode(rig->tokenizer, &prompt.recall.encode, &list, &error));
        }
    }
    return list;
}
