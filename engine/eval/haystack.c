/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/haystack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE_BYTES = 4096 };

typedef struct DraftLine {
    size_t start, end; /* in the draft's ids */
    double depth;
    uint32_t needle;
} DraftLine;

void haystack_done(Haystack *haystack)
{
    for (uint32_t i = 0; i < haystack->n_questions; i++) free(haystack->questions[i].tokens);
    free(haystack->questions);
    token_list_done(&haystack->tokens);
    *haystack = (Haystack){0};
}

void draft_init(HaystackDraft *draft, const Tokenizer *tokenizer, const PromptFrame *frame, Rng rng)
{
    *draft = (HaystackDraft){.tokenizer = tokenizer, .frame = frame, .rng = rng};
    buffer_init(&draft->text, MAX_LINE_BYTES);
}

void draft_done(HaystackDraft *draft)
{
    token_list_done(&draft->ids);
    free(draft->lines);
    haystack_done(&draft->made);
    buffer_done(&draft->text);
}

static bool encode(const Tokenizer *tokenizer, const char *text, size_t n, TokenList *list, Error *error)
{
    return tok_encode(tokenizer, &(TokEncode){.text = text, .n = n}, list, error);
}

/* Makes room for one more element; *items stays when memory is out. */
static bool grow(void **items, uint32_t n, uint32_t *capacity, size_t size, Error *error)
{
    if (n < *capacity) return true;
    uint32_t wanted = *capacity ? 2 * *capacity : 64;
    void *more = realloc(*items, wanted * size);
    if (!more) return error_set(error, ERR_NO_MEMORY, "no memory for the lines of a prompt");
    *items = more;
    *capacity = wanted;
    return true;
}

bool draft_line(HaystackDraft *draft, double depth, uint32_t needle, Error *error, const char *fmt, ...)
{
    char text[MAX_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) return error_set(error, ERR_TOO_LARGE, "a line of a prompt is too long");
    void *lines = draft->lines;
    bool has_room = grow(&lines, draft->n_lines, &draft->lines_capacity, sizeof(DraftLine), error);
    draft->lines = lines;
    size_t start = draft->ids.n;
    if (!has_room || !encode(draft->tokenizer, text, (size_t)n, &draft->ids, error)) return false;
    draft->lines[draft->n_lines++] = (DraftLine){start, draft->ids.n, depth, needle};
    return true;
}

/*
 * The answer's tokens are what differs when the text goes on with it, so that a token on the border of the two is part
 * of the answer.
 */
static bool encode_answer(const Tokenizer *tokenizer, const char *lead, const char *answer, TokenList *list,
                          uint32_t *ret_n_answer, Error *error)
{
    TokenList alone = {0};
    char text[MAX_LINE_BYTES];
    int n = snprintf(text, sizeof text, "%s%s", lead, answer);
    size_t before = list->n, same = 0;
    if (n < 0 || (size_t)n >= sizeof text) return error_set(error, ERR_TOO_LARGE, "a question is too long");
    if (!encode(tokenizer, lead, strlen(lead), &alone, error)) return false;
    bool ok = encode(tokenizer, text, (size_t)n, list, error);
    while (ok && same < alone.n && same < list->n - before && alone.ids[same] == list->ids[before + same]) same++;
    token_list_done(&alone);
    if (ok) *ret_n_answer = (uint32_t)(list->n - before - same);
    return ok;
}

static bool append(TokenList *list, const uint32_t *ids, size_t n, Error *error)
{
    for (size_t i = 0; i < n; i++)
        if (!token_list_push(list, ids[i], error)) return false;
    return true;
}

bool draft_question(HaystackDraft *draft, const DraftQuestion *question, Error *error)
{
    TokenList list = {0};
    uint32_t n_answer = 0;
    void *questions = draft->made.questions;
    bool ok = grow(&questions, draft->made.n_questions, &draft->questions_capacity, sizeof(EvalQuestion), error);
    draft->made.questions = questions;
    ok = ok && encode(draft->tokenizer, question->text, strlen(question->text), &list, error) &&
         append(&list, draft->frame->after.ids, draft->frame->after.n, error) &&
         encode_answer(draft->tokenizer, question->lead, question->answer, &list, &n_answer, error);
    if (ok && (n_answer == 0 || n_answer == list.n))
        ok = error_set(error, ERR_UNSUPPORTED, "the tokenizer leaves nothing to ask for in '%s%s'", question->lead,
                       question->answer);
    if (!ok) {
        token_list_done(&list);
        return false;
    }
    draft->made.questions[draft->made.n_questions++] = (EvalQuestion){
        .tokens = list.ids, .n_tokens = (uint32_t)list.n, .n_answer = n_answer, .needle = question->needle};
    return true;
}

/* Stable: lines of equal depth stay in the order in which they came, which is that of their tokens. */
static int compare_lines(const void *a, const void *b)
{
    const DraftLine *left = a, *right = b;
    if (left->depth != right->depth) return left->depth < right->depth ? -1 : 1;
    return left->start < right->start ? -1 : left->start > right->start;
}

/* Up to n tokens of one more line. */
static bool add_filler(HaystackDraft *draft, DraftFiller filler, size_t n, Error *error)
{
    TokenList line = {0};
    buffer_clear(&draft->text);
    bool ok = filler(&draft->rng, &draft->text, error) &&
              encode(draft->tokenizer, draft->text.data, draft->text.n, &line, error) &&
              append(&draft->made.tokens, line.ids, line.n < n ? line.n : n, error);
    token_list_done(&line);
    return ok;
}

/* Whole lines until there are goal tokens; none goes beyond the limit. */
static bool fill_to(HaystackDraft *draft, DraftFiller filler, size_t goal, size_t limit, Error *error)
{
    while (draft->made.tokens.n < goal)
        if (!add_filler(draft, filler, limit - draft->made.tokens.n, error)) return false;
    return true;
}

/*
 * n_filler: tokens between the lines, of which the part before each is as large as its depth says. at [n_needles]: the
 * first position of each needle.
 */
static bool lay_out(HaystackDraft *draft, DraftFiller filler, size_t n_filler, uint32_t *at, Error *error)
{
    TokenList *tokens = &draft->made.tokens;
    size_t begin = tokens->n, placed = 0;
    for (uint32_t i = 0; i < draft->n_lines; i++) {
        const DraftLine *line = &draft->lines[i];
        size_t limit = begin + placed + n_filler, goal = begin + placed + (size_t)(line->depth * (double)n_filler);
        if (!fill_to(draft, filler, goal, limit, error)) return false;
        if (line->needle != DRAFT_NO_NEEDLE && tokens->n < at[line->needle]) at[line->needle] = (uint32_t)tokens->n;
        if (!append(tokens, draft->ids.ids + line->start, line->end - line->start, error)) return false;
        placed += line->end - line->start;
    }
    return fill_to(draft, filler, begin + placed + n_filler, begin + placed + n_filler, error);
}

/* Positions take the place of the questions' needles. */
static bool place_lines(HaystackDraft *draft, DraftFiller filler, size_t n_filler, Error *error)
{
    uint32_t n_needles = 0;
    for (uint32_t i = 0; i < draft->n_lines; i++)
        if (draft->lines[i].needle != DRAFT_NO_NEEDLE && draft->lines[i].needle >= n_needles)
            n_needles = draft->lines[i].needle + 1;
    uint32_t *at = malloc(((size_t)n_needles + 1) * sizeof *at);
    if (!at) return error_set(error, ERR_NO_MEMORY, "no memory for %u needles", n_needles);
    memset(at, 0xFF, ((size_t)n_needles + 1) * sizeof *at);
    if (draft->n_lines) qsort(draft->lines, draft->n_lines, sizeof *draft->lines, compare_lines);
    bool ok = lay_out(draft, filler, n_filler, at, error);
    for (uint32_t i = 0; ok && i < draft->made.n_questions; i++) {
        EvalQuestion *question = &draft->made.questions[i];
        if (question->needle >= n_needles)
            ok = error_set(error, ERR_INTERNAL, "question %u asks for needle %u of %u", i, question->needle, n_needles);
        else
            question->needle = at[question->needle];
    }
    free(at);
    return ok;
}

bool draft_make(HaystackDraft *draft, const char *instruction, DraftFiller filler, uint32_t n_tokens,
                Haystack *ret_haystack, Error *error)
{
    TokenList *tokens = &draft->made.tokens;
    size_t tail = 0;
    for (uint32_t i = 0; i < draft->made.n_questions; i++)
        if (draft->made.questions[i].n_tokens > tail) tail = draft->made.questions[i].n_tokens;
    if (!append(tokens, draft->frame->before.ids, draft->frame->before.n, error) ||
        !encode(draft->tokenizer, instruction, strlen(instruction), tokens, error))
        return false;
    size_t fixed = tokens->n + draft->ids.n + tail;
    if (fixed > n_tokens)
        return error_set(error, ERR_TOO_LARGE, "%u questions and what they ask for take %zu tokens, more than %u",
                         draft->made.n_questions, fixed, n_tokens);
    if (!place_lines(draft, filler, n_tokens - fixed, error)) return false;
    *ret_haystack = draft->made;
    draft->made = (Haystack){0};
    return true;
}
