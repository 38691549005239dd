/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load/dialogue.h"
#include "server/json_out.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 512 << 20, MAX_PREFIX_BYTES = 256 << 20, WORDS_A_LINE = 12 };
#define PREFIX_PURPOSE (UINT64_C(1) << 63) /* of seeds; dialogues count from 0 */

static const char *const words[] = {
    "the",     "and",       "that",    "with",    "for",      "this",   "from",    "have",       "they",    "which",
    "one",     "were",      "all",     "there",   "when",     "their",  "more",    "about",      "other",   "some",
    "time",    "could",     "people",  "only",    "into",     "over",   "after",   "first",      "new",     "work",
    "because", "any",       "these",   "give",    "day",      "most",   "world",   "under",      "school",  "still",
    "last",    "need",      "house",   "feel",    "three",    "state",  "never",   "become",     "between", "high",
    "really",  "something", "another", "family",  "own",      "leave",  "old",     "while",      "mean",    "keep",
    "student", "why",       "let",     "great",   "same",     "big",    "group",   "begin",      "seem",    "country",
    "help",    "talk",      "where",   "turn",    "problem",  "every",  "start",   "hand",       "might",   "show",
    "part",    "against",   "place",   "such",    "again",    "few",    "case",    "week",       "company", "system",
    "each",    "right",     "program", "hear",    "question", "during", "play",    "government", "run",     "small",
    "number",  "off",       "always",  "move",    "night",    "live",   "point",   "believe",    "hold",    "today",
    "bring",   "happen",    "next",    "without", "before",   "large",  "million", "must",       "home",    "water",
    "room",    "mother",    "area",    "money",   "story",    "young",  "fact",    "month",
};
enum { N_WORDS = sizeof words / sizeof *words };

static const Buffer nothing;

static bool append_words(Rng *rng, uint32_t n, uint32_t a_line, Buffer *out, Error *error)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *word = words[rng_below(rng, N_WORDS)];
        if (i && !buffer_append(out, i % a_line ? " " : "\n", 1, error)) return false;
        if (!buffer_append(out, word, strlen(word), error)) return false;
    }
    return true;
}

/* ---- prefixes ---- */

static bool make_prefixes(Workload *workload, Error *error)
{
    const WorkloadParams *params = &workload->params;
    workload->prefixes = calloc(params->n_prefixes, sizeof *workload->prefixes);
    if (!workload->prefixes) return error_set(error, ERR_NO_MEMORY, "no memory for %u prefixes", params->n_prefixes);
    for (uint32_t i = 0; i < params->n_prefixes; i++) {
        Rng rng = rng_for(params->seed, PREFIX_PURPOSE + i);
        buffer_init(&workload->prefixes[i], MAX_PREFIX_BYTES);
        uint32_t n = lengths_draw(&params->prefix, &rng);
        if (!append_words(&rng, n, n, &workload->prefixes[i], error) ||
            !buffer_append_text(&workload->prefixes[i], "\n\n", error))
            return false;
    }
    return true;
}

bool workload_new(const WorkloadParams *params, Workload **ret_workload, Error *error)
{
    Workload *workload = calloc(1, sizeof *workload);
    if (!workload) return error_set(error, ERR_NO_MEMORY, "no memory for a workload");
    workload->params = *params;
    bool shares = !params->replay && params->kind != WORKLOAD_RANDOM;
    if (shares && !make_prefixes(workload, error)) {
        workload_free(workload);
        return false;
    }
    *ret_workload = workload;
    return true;
}

void workload_free(Workload *workload)
{
    if (!workload) return;
    for (uint32_t i = 0; workload->prefixes && i < workload->params.n_prefixes; i++)
        buffer_done(&workload->prefixes[i]);
    free(workload->prefixes);
    free(workload);
}

/* ---- dialogues ---- */

void dialogue_init(Dialogue *dialogue)
{
    *dialogue = (Dialogue){0};
    buffer_init(&dialogue->text, MAX_TEXT_BYTES);
}

void dialogue_done(Dialogue *dialogue)
{
    buffer_done(&dialogue->text);
}

static bool add_message(Dialogue *dialogue, const Workload *workload, const char *role, const Buffer *text,
                        Error *error)
{
    JsonOut out;
    if (!workload->params.is_chat)
        return (dialogue->text.n == 0 || buffer_append_text(&dialogue->text, "\n\n", error)) &&
               buffer_append(&dialogue->text, text->data, text->n, error);
    json_begin(&out, &dialogue->text);
    json_rawf(&out, "%s{\"role\":\"%s\",\"content\":", dialogue->text.n ? "," : "", role);
    json_string_n(&out, text->n ? text->data : "", text->n);
    json_raw(&out, "}");
    return json_end(&out, error);
}

/* What the user says: n words behind a text. So are results of tools, whose own role would have to name a call. */
static bool add_words(Dialogue *dialogue, const Workload *workload, const Buffer *before, uint32_t n, uint32_t a_line,
                      Error *error)
{
    Buffer text;
    buffer_init(&text, MAX_PREFIX_BYTES);
    bool ok = buffer_append(&text, before->data, before->n, error) &&
              append_words(&dialogue->rng, n, a_line, &text, error) &&
              add_message(dialogue, workload, "user", &text, error);
    buffer_done(&text);
    return ok;
}

static bool begin_replayed(Dialogue *dialogue, const Workload *workload, const ReplayEntry *entry, Error *error)
{
    dialogue->n_turns = 1;
    dialogue->answer_tokens = entry->answer_tokens;
    if (!entry->prompt)
        return add_words(dialogue, workload, &nothing, entry->prompt_tokens, entry->prompt_tokens, error);
    const Buffer text = {.data = entry->prompt, .n = strlen(entry->prompt)};
    return add_message(dialogue, workload, "user", &text, error);
}

bool dialogue_begin(Dialogue *dialogue, const Workload *workload, uint64_t index, Error *error)
{
    const WorkloadParams *params = &workload->params;
    dialogue->rng = rng_for(params->seed, index);
    dialogue->turn = 0;
    buffer_clear(&dialogue->text);
    if (params->replay) return begin_replayed(dialogue, workload, &params->replay->entries[index], error);
    dialogue->n_turns = params->kind == WORKLOAD_AGENT ? lengths_draw(&params->turns, &dialogue->rng) : 1;
    /* In one message: not every template knows a system's. */
    bool shares = params->kind != WORKLOAD_RANDOM;
    const Buffer *prefix = shares ? &workload->prefixes[rng_below(&dialogue->rng, params->n_prefixes)] : &nothing;
    uint32_t n = lengths_draw(&params->prompt, &dialogue->rng);
    dialogue->answer_tokens = lengths_draw(&params->answer, &dialogue->rng);
    return add_words(dialogue, workload, prefix, n, n, error);
}

bool dialogue_write(const Dialogue *dialogue, const Workload *workload, Buffer *body, Error *error)
{
    const WorkloadParams *params = &workload->params;
    JsonOut out;
    json_begin(&out, body);
    json_raw(&out, "{\"model\":");
    json_string(&out, params->model);
    json_rawf(&out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,\"max_tokens\":%u",
              dialogue->answer_tokens);
    if (params->ignores_eos) json_raw(&out, ",\"ignore_eos\":true");
    if (params->is_chat) {
        json_raw(&out, ",\"messages\":[");
        json_bytes(&out, dialogue->text.data, dialogue->text.n);
        json_raw(&out, "]}");
    } else {
        json_raw(&out, ",\"prompt\":");
        json_string_n(&out, dialogue->text.n ? dialogue->text.data : "", dialogue->text.n);
        json_raw(&out, "}");
    }
    return json_end(&out, error);
}

bool dialogue_is_last(const Dialogue *dialogue)
{
    return dialogue->turn + 1 >= dialogue->n_turns;
}

bool dialogue_answer(Dialogue *dialogue, const Workload *workload, const Buffer *answer, Error *error)
{
    static char heading[] = "Result of the tool:\n";
    const WorkloadParams *params = &workload->params;
    dialogue->turn++;
    dialogue->answer_tokens = lengths_draw(&params->answer, &dialogue->rng);
    uint32_t n = lengths_draw(&params->tool, &dialogue->rng);
    return add_message(dialogue, workload, "assistant", answer, error) &&
           add_words(dialogue, workload, &(Buffer){.data = heading, .n = sizeof heading - 1}, n, WORDS_A_LINE, error);
}

uint32_t dialogue_think_ms(Dialogue *dialogue, const Workload *workload)
{
    return lengths_draw(&workload->params.think_ms, &dialogue->rng);
}
