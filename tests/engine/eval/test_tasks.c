/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/tasks.h"
#include "engine/eval/words.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static Error error;
static const char *const all_tasks[] = {"passkey",
                                        "kv:distractors=2",
                                        "multikey:distractors=3",
                                        "variables:hops=2:needles=4",
                                        "words:distractors=3",
                                        "words:near=1:needles=0",
                                        "passkey:digits=18:repeats=1:near=0"};
enum { N_TASKS = sizeof all_tasks / sizeof *all_tasks };

typedef struct Rig {
    Engine *engine;
    PromptFrame frame;
} Rig;

static Rig rig_open(bool chat)
{
    Rig rig = {.engine = ENGINE_RIG(engine_rig_params(kv_types_all(KV_F16), 1, 16), "context=16384")};
    cr_assert(prompt_frame_init(engine_tokenizer(rig.engine), chat ? engine_chat_template(rig.engine) : NULL,
                                &rig.frame, &error),
              "%s", error.text);
    return rig;
}

static void rig_close(Rig *rig)
{
    prompt_frame_done(&rig->frame);
    engine_close(rig->engine);
}

static TaskSpec spec_of(const char *text)
{
    TaskSpec spec;
    cr_assert(task_parse(text, strlen(text), &spec, &error), "%s", error.text);
    return spec;
}

static Haystack make(const Rig *rig, const char *task, uint32_t n_tokens, uint32_t n_questions, uint64_t seed)
{
    TaskSpec spec = spec_of(task);
    const TaskInput input = {.tokenizer = engine_tokenizer(rig->engine),
                             .frame = &rig->frame,
                             .spec = &spec,
                             .seed = seed,
                             .n_tokens = n_tokens,
                             .n_questions = n_questions};
    Haystack haystack;
    cr_assert(task_make(&input, &haystack, &error), "%s", error.text);
    return haystack;
}

static char *text_of(const Rig *rig, const uint32_t *ids, size_t n)
{
    Buffer out;
    buffer_init(&out, 1 << 24);
    for (size_t i = 0; i < n; i++) cr_assert(tok_piece(engine_tokenizer(rig->engine), ids[i], true, &out, &error));
    cr_assert(buffer_append_text(&out, "", &error));
    return buffer_take(&out);
}

/* The haystack and its longest question fill the length to the token. */
Test(test_tasks, prompts_have_exactly_the_length)
{
    for (int chat = 0; chat < 2; chat++) {
        Rig rig = rig_open(chat);
        for (uint32_t t = 0; t < N_TASKS; t++)
            for (uint32_t n = 6000; n <= 9001; n += 3001) {
                Haystack haystack = make(&rig, all_tasks[t], n, 7, 3);
                uint32_t longest = 0;
                cr_assert_eq(haystack.n_questions, 7);
                for (uint32_t i = 0; i < 7; i++)
                    if (haystack.questions[i].n_tokens > longest) longest = haystack.questions[i].n_tokens;
                cr_assert_eq(haystack.tokens.n + longest, n, "%s: %zu + %u, not %u", all_tasks[t], haystack.tokens.n,
                             longest, n);
                haystack_done(&haystack);
            }
        rig_close(&rig);
    }
}

/* Where the needle is said to be, a line begins that holds the answer (of a chain and of a count: one that leads to
 * it). */
Test(test_tasks, answers_stand_where_they_are_said_to_be)
{
    Rig rig = rig_open(true);
    for (uint32_t t = 0; t < N_TASKS; t++) {
        Haystack haystack = make(&rig, all_tasks[t], 12000, 9, t);
        for (uint32_t i = 0; i < haystack.n_questions; i++) {
            const EvalQuestion *q = &haystack.questions[i];
            cr_assert_lt(q->needle, haystack.tokens.n);
            char *answer = text_of(&rig, q->tokens + q->n_tokens - q->n_answer, q->n_answer);
            char *rest = text_of(&rig, haystack.tokens.ids + q->needle, haystack.tokens.n - q->needle);
            char *before = text_of(&rig, haystack.tokens.ids, q->needle);
            char *line = strstr(rest, "\n"), *found = strstr(rest, answer);
            cr_assert(line && found && found < line, "%s: '%s' is not in '%.*s'", all_tasks[t], answer, 60, rest);
            cr_assert_eq(before[strlen(before) - 1], '\n', "%s", all_tasks[t]);
            free(answer);
            free(rest);
            free(before);
        }
        haystack_done(&haystack);
    }
    rig_close(&rig);
}

/* Without knobs that let needles share: one for each question, in every part of the prompt alike. */
Test(test_tasks, needles_are_spread_over_all_depths)
{
    Rig rig = rig_open(false);
    Haystack haystack = make(&rig, "passkey:repeats=1", 16000, 30, 1);
    uint32_t by_depth[5] = {0};
    for (uint32_t i = 0; i < 30; i++) by_depth[haystack.questions[i].needle * 5 / 16000]++;
    for (int d = 0; d < 5; d++) cr_assert(by_depth[d] >= 4 && by_depth[d] <= 8, "%u at depth %d", by_depth[d], d);
    haystack_done(&haystack);
    rig_close(&rig);
}

Test(test_tasks, the_seed_decides_alone)
{
    Rig rig = rig_open(true);
    for (uint32_t t = 0; t < N_TASKS; t++) {
        Haystack a = make(&rig, all_tasks[t], 8000, 5, 11), b = make(&rig, all_tasks[t], 8000, 5, 11);
        Haystack c = make(&rig, all_tasks[t], 8000, 5, 12);
        size_t n = a.tokens.n < c.tokens.n ? a.tokens.n : c.tokens.n;
        cr_assert_eq(a.tokens.n, b.tokens.n);
        cr_assert_arr_eq(a.tokens.ids, b.tokens.ids, a.tokens.n * sizeof *a.tokens.ids);
        cr_assert(memcmp(a.tokens.ids, c.tokens.ids, n * sizeof *a.tokens.ids) != 0, "%s", all_tasks[t]);
        for (uint32_t i = 0; i < 5; i++)
            cr_assert_arr_eq(a.questions[i].tokens, b.questions[i].tokens, a.questions[i].n_tokens * sizeof(uint32_t));
        haystack_done(&a);
        haystack_done(&b);
        haystack_done(&c);
    }
    rig_close(&rig);
}

/* No key that is asked for stands with another number anywhere. */
Test(test_tasks, distractors_do_not_contradict)
{
    Rig rig = rig_open(false);
    Haystack haystack = make(&rig, "multikey:distractors=20:needles=0:repeats=1", 16000, 8, 2);
    char *text = text_of(&rig, haystack.tokens.ids, haystack.tokens.n);
    for (uint32_t i = 0; i < 8; i++) {
        const EvalQuestion *q = &haystack.questions[i];
        char *question = text_of(&rig, q->tokens, q->n_tokens), *lead = strstr(question, "The secret number");
        uint32_t n_said = 0;
        cr_assert(lead);
        char *end = strstr(lead, " is") + 3;
        *end = '\0';
        for (char *at = text; (at = strstr(at, lead)); at++) n_said++;
        cr_assert_eq(n_said, 1, "'%s' is said %u times", lead, n_said);
        free(question);
    }
    free(text);
    haystack_done(&haystack);
    rig_close(&rig);
}

Test(test_tasks, what_cannot_be_is_refused)
{
    static const char *const bad[] = {"",
                                      "needle",
                                      "passkey:",
                                      "passkey:digits",
                                      "passkey:digits=",
                                      "passkey:digits=0",
                                      "passkey:digits=19",
                                      "passkey:digits=5x",
                                      "passkey:size=3",
                                      "kv:near=2",
                                      "words:repeats=99999999999999999999",
                                      "kv:digits=1:",
                                      "kv:digits=1:digits=2",
                                      "passkey:distractors=3",
                                      "passkey:hops=1",
                                      "kv:hops=1",
                                      "multikey:hops=0",
                                      "variables:distractors=1",
                                      "words:digits=3",
                                      "words:hops=1"};
    TaskSpec spec;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (Error){0};
        cr_assert_not(task_parse(bad[i], strlen(bad[i]), &spec, &error), "'%s'", bad[i]);
        cr_assert_str_eq(error.param, "tasks");
    }
    char longer[TASK_MAX_TEXT + 1];
    memset(longer, 'a', sizeof longer);
    cr_assert_not(task_parse(longer, TASK_MAX_TEXT, &spec, &error));
    Rig rig = rig_open(false);
    TaskInput input = {
        .tokenizer = engine_tokenizer(rig.engine), .frame = &rig.frame, .spec = &spec, .n_questions = 30};
    Haystack haystack;
    spec = spec_of("passkey");
    input.n_tokens = 400;
    cr_assert_not(task_make(&input, &haystack, &error));
    cr_assert_eq(error.code, ERR_TOO_LARGE);
    input.n_tokens = 100000;
    input.n_questions = 41; /* there are 40 things that can have a number */
    cr_assert_not(task_make(&input, &haystack, &error));
    cr_assert_eq(error.code, ERR_INVALID);
    spec = spec_of("kv:distractors=1000:needles=0");
    cr_assert_not(task_make(&input, &haystack, &error));
    rig_close(&rig);
}

/* What the tables of keys promise. */
Test(test_tasks, words_are_enough_and_all_different)
{
    const WordList *lists[] = {&words_names, &words_adjectives, &words_nouns, &words_foods, &words_facts};
    for (int l = 0; l < 5; l++)
        for (uint32_t i = 0; i < lists[l]->n; i++)
            for (uint32_t j = 0; j < i; j++) cr_assert_str_neq(lists[l]->words[i], lists[l]->words[j]);
    cr_assert_eq(words_names.n, 64);
    cr_assert_eq(words_facts.n, 40);
    cr_assert_eq(words_adjectives.n, 64);
    cr_assert_geq(words_nouns.n, 88);
}
