/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tok_impl.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* White space is spelled as the Unicode property: PCRE2's \s has U+180E beside it, which the models' own rules lack. */
#define SPACE "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define GPT2                                                                                                           \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
/* Llama 3 and its kin differ in how many digits make a word. */
#define LLAMA3(digits)                                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE                                 \
    "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
/* Words end where lower case turns to upper case; marks and letters without case go with both. */
#define CASED_WORD(upper, lower)                                                                                       \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]" upper "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" lower
#define CASED(ending, digits)                                                                                          \
    CASED_WORD("*", "+")                                                                                               \
    ending "|" CASED_WORD("+", "*") ending "|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACE                  \
                                           "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE ")|" SPACE "+"

static const TokPreRow rows[] = {
    {"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {"dbrx", {LLAMA3("\\p{N}{1,3}")}, false, false},
    {"gpt-2", {GPT2}, false, false},
    {"gpt-4o", {CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")}, false, false},
    {"llama-bpe", {LLAMA3("\\p{N}{1,3}")}, true, true},
    {"qwen2", {LLAMA3("\\p{N}")}, false, false},
    {"smollm", {"\\p{N}", GPT2}, false, false},
    {"tekken", {CASED("", "\\p{N}")}, true, true},
};

struct TokPre {
    pcre2_code *codes[TOK_MAX_PATTERNS + 1]; /* NULL ends them */
};

typedef struct PreRun {
    pcre2_match_data *match;
    pcre2_match_context *context;
    TokWordFn on_word;
    void *arg;
} PreRun;

bool tok_pre_find(GgufString name, const TokPreRow **ret_row, Error *error)
{
    char known[128] = "", shown[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].name) == name.n && !memcmp(rows[i].name, name.data, name.n)) {
            *ret_row = &rows[i];
            return true;
        }
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", rows[i].name);
    }
    gguf_printable(shown, sizeof shown, name);
    return error_set_param(error, ERR_UNSUPPORTED, "tokenizer.ggml.pre",
                           "key 'tokenizer.ggml.pre': the pre-tokenizer '%s' is not known (known: %s)", shown, known);
}

bool tok_pre_new(const TokPreRow *row, TokPre **ret_pre, Error *error)
{
    TokPre *pre = calloc(1, sizeof *pre);
    if (!pre) return error_set(error, ERR_NO_MEMORY, "no memory for a pre-tokenizer");
    for (int i = 0; i < TOK_MAX_PATTERNS && row->patterns[i]; i++) {
        int code;
        size_t at;
        pre->codes[i] =
            pcre2_compile((PCRE2_SPTR)row->patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (pre->codes[i]) continue;
        tok_pre_free(pre);
        bool no_memory = code == PCRE2_ERROR_HEAP_FAILED;
        return error_set(error, no_memory ? ERR_NO_MEMORY : ERR_INTERNAL,
                         "pattern %d of pre-tokenizer '%s': PCRE2 error %d at offset %zu", i, row->name, code, at);
    }
    *ret_pre = pre;
    return true;
}

void tok_pre_free(TokPre *pre)
{
    if (!pre) return;
    for (int i = 0; i < TOK_MAX_PATTERNS; i++) pcre2_code_free(pre->codes[i]);
    free(pre);
}

/* What a pattern matches is cut out of the text; both the matches and what lies between go to the next pattern. */
static bool split(const PreRun *run, pcre2_code *const *code, const char *text, size_t n, Error *error)
{
    if (!*code) return run->on_word(run->arg, text, n, error);
    size_t done = 0;
    while (done < n) {
        int rc = pcre2_match(*code, (PCRE2_SPTR)text, n, done, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, run->match,
                             run->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return error_set(error, rc == PCRE2_ERROR_NOMEMORY ? ERR_NO_MEMORY : ERR_TOO_LARGE,
                             "the pre-tokenizer gave up at byte %zu of %zu: PCRE2 error %d", done, n, rc);
        const size_t *hit = pcre2_get_ovector_pointer(run->match);
        size_t start = hit[0], end = hit[1];
        if (start > done && !split(run, code + 1, text + done, start - done, error)) return false;
        if (!split(run, code + 1, text + start, end - start, error)) return false;
        done = end;
    }
    return done == n || split(run, code + 1, text + done, n - done, error);
}

bool tok_pre_split(const TokPre *pre, const char *text, size_t n, TokWordFn on_word, void *arg, Error *error)
{
    PreRun run = {.match = pcre2_match_data_create(1, NULL),
                  .context = pcre2_match_context_create(NULL),
                  .on_word = on_word,
                  .arg = arg};
    bool ok = false;
    if (run.match && run.context) {
        /* The patterns look at a byte only a few times in one match; a run of blanks is walked back once. */
        size_t steps = 1000 + 8 * (n < UINT32_MAX / 16 ? n : UINT32_MAX / 16);
        pcre2_set_match_limit(run.context, (uint32_t)steps);
        pcre2_set_heap_limit(run.context, 1024); /* KiB: no pattern nests, so it needs no more for a long text */
        ok = split(&run, pre->codes, text, n, error);
    } else {
        error_set(error, ERR_NO_MEMORY, "no memory for the pre-tokenizer");
    }
    pcre2_match_context_free(run.context);
    pcre2_match_data_free(run.match);
    return ok;
}
