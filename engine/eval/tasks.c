/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/tasks.h"

#include "engine/eval/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 18, MAX_NUMBER = MAX_DIGITS + 2, MAX_KEY = 96, MAX_TEXT = 256 };

/* What is asked about a needle. */
typedef struct Ask {
    char subject[MAX_TEXT]; /* behind "What is" */
    char lead[MAX_TEXT], answer[MAX_KEY];
} Ask;

/* One prompt on its way: which keys are given out is decided by a shuffled list of numbers. */
typedef struct Making {
    const TaskInput *input;
    const TaskKnobs *knobs;
    HaystackDraft draft;
    uint32_t *order; /* [n_keys] a permutation */
    uint32_t n_keys, n_used, n_needles;
} Making;

/* Bits, in the order of the table of knobs. */
enum { DIGITS = 1, DISTRACTORS = 2, HOPS = 4 };

struct TaskKind {
    const char *name;
    TaskKnobs defaults;
    uint32_t lacks; /* knobs that would change nothing */
    const char *instruction;
    DraftFiller filler;
    uint32_t n_keys; /* that it can tell apart */
    bool (*add)(Making *making, uint32_t needle, double depth, Ask *ask, Error *error);
};

static uint32_t next_key(Making *making)
{
    return making->order[making->n_used++];
}

/* The plain names, then pairs. */
static void name_of(uint32_t key, char *out)
{
    uint32_t n = words_names.n;
    if (key < n)
        snprintf(out, MAX_KEY, "%s", words_names.words[key]);
    else
        snprintf(out, MAX_KEY, "%s %s", words_names.words[key % n], words_names.words[key / n - 1]);
}

static void pair_of(uint32_t key, const char *separator, char *out)
{
    snprintf(out, MAX_KEY, "%s%s%s", words_adjectives.words[key % words_adjectives.n], separator,
             words_nouns.words[key / words_adjectives.n % words_nouns.n]);
}

/* With a blank in front, as it stands behind a lead. */
static void draw_number(Making *making, char *out)
{
    Rng *rng = &making->draft.rng;
    uint32_t n = making->knobs->digits;
    out[0] = ' ';
    for (uint32_t i = 0; i < n; i++) out[1 + i] = (char)('0' + (i ? rng_below(rng, 10) : 1 + rng_below(rng, 9)));
    out[1 + n] = '\0';
}

/*
 * Where the i-th line of a needle stands: beside the first one, or anywhere behind it, but not in the last tenth, where
 * every policy sees it.
 */
static double depth_of(Making *making, double depth, uint32_t i)
{
    static const double end = 0.9;
    bool stays = i == 0 || making->knobs->near || depth >= end;
    return stays ? depth : depth + (end - depth) * rng_unit(&making->draft.rng);
}

/* The needle, as often as the knob says. */
static bool add_needle(Making *making, uint32_t needle, double depth, const char *line, Error *error)
{
    for (uint32_t i = 0; i < making->knobs->repeats; i++)
        if (!draft_line(&making->draft, depth_of(making, depth, i), needle, error, "%s\n", line)) return false;
    return true;
}

static bool add_distractor(Making *making, const char *line, Error *error)
{
    return draft_line(&making->draft, rng_unit(&making->draft.rng), DRAFT_NO_NEEDLE, error, "%s\n", line);
}

/* Numbers that differ in all that is said of them. */
static bool add_passkey(Making *making, uint32_t needle, double depth, Ask *ask, Error *error)
{
    char line[2 * MAX_TEXT];
    const char *fact = words_facts.words[next_key(making)];
    draw_number(making, ask->answer);
    snprintf(ask->subject, MAX_TEXT, "%s", fact);
    snprintf(ask->lead, MAX_TEXT, "%c%s is", fact[0] - 'a' + 'A', fact + 1);
    snprintf(line, sizeof line, "%s%s.", ask->lead, ask->answer);
    return add_needle(making, needle, depth, line, error);
}

static void record_line(Making *making, char *key, char *number, char *line)
{
    pair_of(next_key(making), "-", key);
    draw_number(making, number);
    snprintf(line, MAX_TEXT, "%s:%s", key, number);
}

static bool add_records(Making *making, uint32_t needle, double depth, Ask *ask, Error *error)
{
    char key[MAX_KEY], number[MAX_NUMBER], line[MAX_TEXT];
    record_line(making, key, ask->answer, line);
    snprintf(ask->subject, MAX_TEXT, "the number of %s", key);
    snprintf(ask->lead, MAX_TEXT, "%s:", key);
    if (!add_needle(making, needle, depth, line, error)) return false;
    for (uint32_t i = 0; i < making->knobs->distractors; i++) {
        record_line(making, key, number, line);
        if (!add_distractor(making, line, error)) return false;
    }
    return true;
}

static bool is_asked_for(const Making *making, uint32_t key)
{
    for (uint32_t i = 0; i < making->n_needles; i++)
        if (making->order[i] == key) return true;
    return false;
}

/* Distractors share the adjective of what is asked for, or its noun. */
static bool add_multikey(Making *making, uint32_t needle, double depth, Ask *ask, Error *error)
{
    static const char start[] = "The secret number of the";
    char key[MAX_KEY], number[MAX_NUMBER], line[2 * MAX_TEXT];
    uint32_t id = next_key(making), n_adjectives = words_adjectives.n, n_nouns = words_nouns.n;
    pair_of(id, " ", key);
    draw_number(making, ask->answer);
    snprintf(ask->subject, MAX_TEXT, "the secret number of the %s", key);
    snprintf(ask->lead, MAX_TEXT, "%s %s is", start, key);
    snprintf(line, sizeof line, "%s%s.", ask->lead, ask->answer);
    if (!add_needle(making, needle, depth, line, error)) return false;
    for (uint32_t i = 0; i < making->knobs->distractors; i++) {
        uint32_t adjective = id % n_adjectives, noun = id / n_adjectives, shift = 1 + i / 2;
        if (i % 2)
            adjective = (adjective + shift) % n_adjectives;
        else
            noun = (noun + shift) % n_nouns;
        uint32_t other = noun * n_adjectives + adjective;
        if (is_asked_for(making, other)) continue;
        pair_of(other, " ", key);
        draw_number(making, number);
        snprintf(line, sizeof line, "%s %s is%s.", start, key, number);
        if (!add_distractor(making, line, error)) return false;
    }
    return true;
}

/* The copies of a line of a chain stay with it: what refers to it comes later. */
static bool add_at(Making *making, uint32_t needle, double depth, const char *line, Error *error)
{
    for (uint32_t i = 0; i < making->knobs->repeats; i++)
        if (!draft_line(&making->draft, depth, needle, error, "%s\n", line)) return false;
    return true;
}

/* let a = 5; let b = a; ... the last name is asked for. Each line comes behind the one that it refers to. */
static bool add_variables(Making *making, uint32_t needle, double depth, Ask *ask, Error *error)
{
    char name[MAX_KEY], before[MAX_KEY], line[MAX_TEXT];
    double at = depth, step = (1 - depth) / (making->knobs->hops + 1.0);
    pair_of(next_key(making), "_", name);
    draw_number(making, ask->answer);
    snprintf(line, sizeof line, "let %s =%s", name, ask->answer);
    if (!add_at(making, needle, at, line, error)) return false;
    for (uint32_t i = 0; i < making->knobs->hops; i++) {
        memcpy(before, name, sizeof before);
        pair_of(next_key(making), "_", name);
        at += making->knobs->near ? 0 : step * (0.25 + 0.75 * rng_unit(&making->draft.rng));
        snprintf(line, sizeof line, "let %s = %s", name, before);
        if (!add_at(making, needle, at, line, error)) return false;
    }
    snprintf(ask->subject, MAX_TEXT, "the number that %s stands for", name);
    snprintf(ask->lead, MAX_TEXT, "The number that %s stands for is", name);
    return true;
}

/* Somebody likes one thing more often than all others. */
static bool add_words(Making *making, uint32_t needle, double depth, Ask *ask, Error *error)
{
    char name[MAX_KEY];
    Rng *rng = &making->draft.rng;
    uint32_t favourite = rng_below(rng, words_foods.n), n_all = making->knobs->repeats + making->knobs->distractors;
    name_of(next_key(making), name);
    for (uint32_t i = 0; i < n_all; i++) {
        bool is_common = i < making->knobs->repeats;
        uint32_t food = is_common ? favourite : (favourite + 1 + rng_below(rng, words_foods.n - 1)) % words_foods.n;
        if (!draft_line(&making->draft, depth_of(making, depth, i), needle, error, "%s likes %s.\n", name,
                        words_foods.words[food]))
            return false;
    }
    snprintf(ask->subject, MAX_TEXT, "what %s likes most often", name);
    snprintf(ask->lead, MAX_TEXT, "%s likes", name);
    snprintf(ask->answer, MAX_KEY, " %s", words_foods.words[favourite]);
    return true;
}

enum { N_NAMES = 64 * 64, N_PAIRS = 64 * 88, N_FACTS = 40 };

static const TaskKind kinds[] = {
    {"passkey",
     {.digits = 5, .repeats = 2, .near = 1},
     DISTRACTORS | HOPS,
     "Remember the numbers that are hidden in the text.\n",
     words_noise,
     N_FACTS,
     add_passkey},
    {"kv",
     {.digits = 5, .repeats = 2, .needles = 10, .near = 1},
     HOPS,
     "Each line is a name and its number.\n",
     words_noise,
     N_PAIRS,
     add_records},
    {"multikey",
     {.digits = 5, .repeats = 2, .needles = 10, .near = 1},
     HOPS,
     "Secret numbers are hidden in the text.\n",
     words_prose,
     N_PAIRS,
     add_multikey},
    {"variables",
     {.digits = 5, .hops = 1, .repeats = 2, .needles = 5, .near = 1},
     DISTRACTORS,
     "Names stand for numbers, or for other names.\n",
     words_noise,
     N_PAIRS,
     add_variables},
    {"words",
     {.digits = 1, .repeats = 6, .needles = 10},
     DIGITS | HOPS,
     "The text says what people like.\n",
     words_prose,
     N_NAMES,
     add_words},
};

static const struct {
    const char *name;
    size_t offset;
    uint32_t min, max;
} knobs[] = {
    {"digits", offsetof(TaskKnobs, digits), 1, MAX_DIGITS},
    {"distractors", offsetof(TaskKnobs, distractors), 0, 1000},
    {"hops", offsetof(TaskKnobs, hops), 0, 16},
    {"repeats", offsetof(TaskKnobs, repeats), 1, 64},
    {"near", offsetof(TaskKnobs, near), 0, 1},
    {"needles", offsetof(TaskKnobs, needles), 0, 4096},
};

static const TaskKind *find_kind(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == n && !memcmp(kinds[i].name, name, n)) return &kinds[i];
    return NULL;
}

/* One "KNOB=N" of n bytes; given has a bit for each that came before. */
static bool parse_knob(const char *text, size_t n, TaskSpec *spec, uint32_t *given, Error *error)
{
    const char *equals = memchr(text, '=', n);
    size_t n_name = equals ? (size_t)(equals - text) : n;
    for (size_t i = 0; equals && i < sizeof knobs / sizeof *knobs; i++) {
        if (strlen(knobs[i].name) != n_name || memcmp(knobs[i].name, text, n_name)) continue;
        uint64_t value = 0;
        size_t at = n_name + 1;
        if (spec->kind->lacks >> i & 1)
            return error_set_param(error, ERR_INVALID, "tasks", "'%.*s': %s has no %s", (int)n, text, spec->kind->name,
                                   knobs[i].name);
        if (*given >> i & 1) return error_set_param(error, ERR_INVALID, "tasks", "'%.*s' comes twice", (int)n, text);
        *given |= 1u << i;
        for (; at < n && text[at] >= '0' && text[at] <= '9' && value <= knobs[i].max; at++)
            value = value * 10 + (uint64_t)(text[at] - '0');
        if (at < n || n_name + 1 == n || value < knobs[i].min || value > knobs[i].max)
            return error_set_param(error, ERR_INVALID, "tasks", "'%.*s': %s is a number from %u to %u", (int)n, text,
                                   knobs[i].name, knobs[i].min, knobs[i].max);
        *(uint32_t *)((char *)&spec->knobs + knobs[i].offset) = (uint32_t)value;
        return true;
    }
    return error_set_param(error, ERR_INVALID, "tasks",
                           "'%.*s' is not KNOB=N with digits, distractors, hops, repeats, near or needles", (int)n,
                           text);
}

bool task_parse(const char *text, size_t n, TaskSpec *ret_spec, Error *error)
{
    if (n >= TASK_MAX_TEXT)
        return error_set_param(error, ERR_INVALID, "tasks", "a task of more than %d bytes", TASK_MAX_TEXT - 1);
    const char *colon = memchr(text, ':', n), *end = text + n;
    const TaskKind *kind = find_kind(text, colon ? (size_t)(colon - text) : n);
    if (!kind)
        return error_set_param(error, ERR_INVALID, "tasks", "'%.*s' is none of passkey, kv, multikey, variables, words",
                               (int)n, text);
    TaskSpec spec = {.kind = kind, .knobs = kind->defaults};
    uint32_t given = 0;
    memcpy(spec.text, text, n);
    for (const char *at = colon, *next; at; at = next) {
        next = memchr(at + 1, ':', (size_t)(end - at - 1));
        if (!parse_knob(at + 1, (size_t)((next ? next : end) - at - 1), &spec, &given, error)) return false;
    }
    *ret_spec = spec;
    return true;
}

/* Keys are shuffled among the first that suffice, so that plain names come first; 0: there are not as many. */
static uint32_t keys_wanted(const Making *making)
{
    const TaskKind *kind = making->input->spec->kind;
    const TaskKnobs *k = making->knobs;
    uint32_t each = kind->add == add_records ? 1 + k->distractors : kind->add == add_variables ? 1 + k->hops : 1;
    uint64_t n = (uint64_t)each * making->n_needles;
    if (n > kind->n_keys) return 0;
    if (kind->n_keys != N_NAMES) return kind->n_keys;
    return n > words_names.n ? (uint32_t)n : words_names.n;
}

static bool shuffle_keys(Making *making, Error *error)
{
    uint32_t n = keys_wanted(making);
    if (!n)
        return error_set_param(error, ERR_INVALID, "tasks", "%s has no names for %u needles and what distracts",
                               making->input->spec->text, making->n_needles);
    making->order = malloc(n * sizeof *making->order);
    if (!making->order) return error_set(error, ERR_NO_MEMORY, "no memory for the keys of a prompt");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = rng_below(&making->draft.rng, i + 1);
        making->order[i] = making->order[j];
        making->order[j] = i;
    }
    making->n_keys = n;
    return true;
}

/* Where there are more questions than needles, the same is asked for in other words. */
static bool add_questions(Making *making, const Ask *asks, Error *error)
{
    static const char *const openers[] = {
        "What is %s?", "Tell me %s.",     "I want to know %s.",  "Do you know %s?",          "Please give me %s.",
        "Find %s.",    "We need %s now.", "Can you tell us %s?", "Look for %s in the text.", "The question is: %s?"};
    enum { N_OPENERS = sizeof openers / sizeof *openers };
    for (uint32_t i = 0; i < making->input->n_questions; i++) {
        char text[2 * MAX_TEXT];
        uint32_t needle = i % making->n_needles, again = i / making->n_needles;
        const char *opener = openers[again % N_OPENERS], *place = strstr(opener, "%s");
        const char *insist = again / N_OPENERS % 2 ? "Once more: " : "";
        snprintf(text, sizeof text, "%s%.*s%s%s", insist, (int)(place - opener), opener, asks[needle].subject,
                 place + 2);
        const DraftQuestion question = {text, asks[needle].lead, asks[needle].answer, needle};
        if (!draft_question(&making->draft, &question, error)) return false;
    }
    return true;
}

static bool fill_draft(Making *making, Error *error)
{
    const TaskKind *kind = making->input->spec->kind;
    uint32_t n = making->n_needles;
    Ask *asks = calloc(n, sizeof *asks);
    if (!asks) return error_set(error, ERR_NO_MEMORY, "no memory for the questions of a prompt");
    bool ok = shuffle_keys(making, error);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = kind->add(making, i, (i + rng_unit(&making->draft.rng)) / n, &asks[i], error);
    ok = ok && add_questions(making, asks, error);
    free(asks);
    return ok;
}

bool task_make(const TaskInput *input, Haystack *ret_haystack, Error *error)
{
    const TaskKind *kind = input->spec->kind;
    uint64_t purpose = (uint64_t)(kind - kinds) << 56 ^ (uint64_t)input->n_tokens << 24 ^ input->haystack;
    uint32_t n_needles = input->spec->knobs.needles;
    Making making = {.input = input, .knobs = &input->spec->knobs};
    making.n_needles = n_needles && n_needles < input->n_questions ? n_needles : input->n_questions;
    draft_init(&making.draft, input->tokenizer, input->frame, rng_for(input->seed, purpose));
    bool ok = fill_draft(&making, error) &&
              draft_make(&making.draft, kind->instruction, kind->filler, input->n_tokens, ret_haystack, error);
    if (!ok && error->code == ERR_TOO_LARGE) error_prefix(error, "task %s", input->spec->text);
    free(making.order);
    draft_done(&making.draft);
    return ok;
}
