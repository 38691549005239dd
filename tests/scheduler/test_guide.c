/* SPDX-License-Identifier: Apache-2.0 */
/* Choices that follow a grammar: what they say, how much of it is computed at once, and how they end. */
#include "engine/sample/grammar/vocab.h"
#include "scheduler/guide.h"
#include "tests/scheduler/rig.h"
#include "tests/support/grammar_rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Anything may come next. */
static void flatten(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    for (uint32_t i = 0; i < tiny_model_vocab(); i++) row[i] = fminf(row[i], 1);
    row[(n * 7 + tokens[n - 1]) % tiny_model_vocab()] = 1.5f;
}

typedef struct World {
    Rig *rig;
    GrammarVocab *vocab;
    GrammarRig grammar;
} World;

static World open_world_with(const char *pattern, const char *gbnf, bool makes_digests)
{
    World world = {
        .rig = rig_open(&(RigParams){.engine = {.edit = flatten, .makes_digests = makes_digests}, .cache = true})};
    Error error;
    cr_assert(grammar_vocab_of(engine_tokenizer(world.rig->engine), &world.vocab, &error), "%s", error.text);
    if (pattern) grammar_rig_regex(&world.grammar, pattern, world.vocab);
    if (gbnf) grammar_rig_gbnf(&world.grammar, gbnf, world.vocab);
    return world;
}

static World open_world(const char *pattern, const char *gbnf)
{
    return open_world_with(pattern, gbnf, false);
}

static void close_world(World *world)
{
    rig_free(world->rig);
    grammar_rig_done(&world->grammar);
    grammar_vocab_free(world->vocab);
}

static Request *follow(const World *world, RequestId id, uint64_t seed)
{
    Request *request = request_of(id, "go");
    request->sampling.temperature = 1.5f;
    request->sampling.seed = seed;
    request->max_tokens = 200;
    request->grammar = grammar_take(world->grammar.grammar);
    return request;
}

static const ChoiceRecord *run_one(World *world, Request *request)
{
    RequestId id = request->id;
    rig_submit(world->rig, request);
    cr_assert_eq(rig_run(world->rig), SCHED_IDLE);
    cr_assert_eq(world->rig->recorder.requests[id].n_done, 1, "%s", world->rig->recorder.requests[id].error.text);
    return &world->rig->recorder.requests[id].choices[0];
}

Test(guide, every_choice_is_a_text_of_the_grammar)
{
    World world = open_world("[ab\xC3\xA9]{3,9}(x|\\d{2})?", NULL);
    for (RequestId id = 1; id <= 10; id++) {
        Request *request = follow(&world, id, id);
        request->n_choices = 3;
        run_one(&world, request);
        for (uint32_t i = 0; i < 3; i++) {
            const ChoiceRecord *choice = &world.rig->recorder.requests[id].choices[i];
            cr_expect(grammar_rig_takes(&world.grammar, choice->text), "'%s'", choice->text);
            cr_expect_eq(choice->finish, FINISH_STOP);
        }
    }
    close_world(&world);
}

/* Masks go to where the rows are, and tokens that are known need none. */
Test(guide, digests_give_what_the_rows_give)
{
    static const char pattern[] = "[ab\xC3\xA9]{3,9}(x|\\d{2})? the quick brown fox (and|or) so on";
    World worlds[2] = {open_world_with(pattern, NULL, false), open_world_with(pattern, NULL, true)};
    for (int w = 0; w < 2; w++) {
        for (RequestId id = 1; id <= 8; id++) {
            Request *request = follow(&worlds[w], id, id);
            request->want_logprobs = id == 3;
            if (id == 4) request->sampling.top_k = 3;
            if (id == 5) request->sampling.frequency_penalty = 1;
            if (id == 6) request->sampling.temperature = 0;
            rig_submit(worlds[w].rig, request);
        }
        cr_assert_eq(rig_run(worlds[w].rig), SCHED_IDLE);
    }
    for (RequestId id = 1; id <= 8; id++) {
        const ChoiceRecord *want = &worlds[0].rig->recorder.requests[id].choices[0],
                           *got = &worlds[1].rig->recorder.requests[id].choices[0];
        cr_assert(grammar_rig_takes(&worlds[0].grammar, want->text), "'%s'", want->text);
        cr_assert_str_eq(want->text, got->text);
        cr_assert_eq(want->n_tokens, got->n_tokens);
        cr_assert_eq(memcmp(want->ids, got->ids, want->n_tokens * sizeof *want->ids), 0);
    }
    const FakeEngineCounts *counts = fake_engine_counts(worlds[1].rig->engine);
    cr_assert_gt(counts->digests, counts->decode_rows / 2);
    cr_assert_lt(counts->digests, counts->decode_rows, "probabilities are those of the whole row");
    for (int w = 0; w < 2; w++) close_world(&worlds[w]);
}

/* Text that only one token can begin is not sampled; rows of several tokens come in one pass. */
Test(guide, text_that_is_known_ahead_takes_one_pass)
{
    World world = open_world("(x|y)the quick brown fox jumps over the dog(a|b)", NULL);
    Request *told = follow(&world, 1, 5);
    told->want_logprobs = true;
    const ChoiceRecord *slow = run_one(&world, told);
    uint64_t n_slow = world.rig->recorder.stats.decode_steps + world.rig->recorder.stats.prefill_steps;
    const ChoiceRecord *fast = run_one(&world, follow(&world, 2, 5));
    uint64_t n_fast = world.rig->recorder.stats.decode_steps + world.rig->recorder.stats.prefill_steps - n_slow;
    cr_assert_eq(slow->n_tokens, fast->n_tokens);
    cr_assert_eq(memcmp(slow->ids, fast->ids, slow->n_tokens * sizeof *slow->ids), 0);
    cr_assert_str_eq(slow->text, fast->text);
    cr_assert(grammar_rig_takes(&world.grammar, slow->text), "'%s'", slow->text);
    cr_assert_gt(slow->n_tokens, 12);
    cr_assert_lt(n_fast, 8);
    cr_assert_geq(n_slow, slow->n_tokens - 1);
    for (uint32_t i = 0; i < slow->n_tokens; i++) cr_assert(isfinite(slow->tokens[i].sample.logprob));
    close_world(&world);
}

Test(guide, limits_of_length_cut_text_that_is_known_ahead)
{
    World world = open_world("(x|y)the quick brown fox jumps over the dog", NULL);
    for (uint32_t max = 1; max <= 9; max++) {
        Request *request = follow(&world, max, 5);
        request->max_tokens = max;
        const ChoiceRecord *choice = run_one(&world, request);
        cr_assert_eq(choice->n_tokens, max);
        cr_assert_eq(choice->finish, FINISH_LENGTH);
    }
    close_world(&world);
}

Test(guide, an_answer_ends_where_the_text_is_whole)
{
    World world = open_world("abc?", NULL);
    Request *request = follow(&world, 1, 1);
    request->min_tokens = 100; /* nothing more to say */
    request->ignore_eos = true;
    cr_expect_str_eq(run_one(&world, request)->text, "abc");
    close_world(&world);
    world = open_world("[ab]{4}", NULL);
    request = follow(&world, 2, 1);
    const uint32_t id = byte_id('b'); /* it ends the answer, so it may not come before the text is whole */
    request->stop_ids = &id;
    request->n_stop_ids = 1;
    cr_expect_str_eq(run_one(&world, request)->text, "aaaa");
    close_world(&world);
    world = open_world(NULL, "root ::= \"\"");
    cr_expect_str_eq(run_one(&world, follow(&world, 3, 1))->text, "");
    close_world(&world);
}

/* No token goes on: what was written stays, and the answer says that it was cut. */
Test(guide, an_answer_that_cannot_go_on_is_cut)
{
    World world = open_world(NULL, "root ::= [ab]{4} <[4000000]>");
    for (uint32_t seed = 1; seed <= 3; seed++) {
        const ChoiceRecord *choice = run_one(&world, follow(&world, seed, seed));
        cr_expect_eq(choice->finish, FINISH_GRAMMAR);
        cr_expect_eq(choice->n_text, 4, "%s", choice->text);
        cr_expect_eq(choice->ids[choice->n_tokens - 1], tok_eos(engine_tokenizer(world.rig->engine)));
    }
    close_world(&world);
}

Test(guide, tokens_without_text_come_by_their_ids)
{
    char gbnf[96];
    snprintf(gbnf, sizeof gbnf, "root ::= [ab]{2,4} <[%u]> [xy]", byte_id('!'));
    World world = open_world(NULL, gbnf);
    const ChoiceRecord *choice = run_one(&world, follow(&world, 1, 3));
    cr_expect_eq(choice->text[choice->n_text - 2], '!', "'%s'", choice->text);
    close_world(&world);
}

/* The grammar wants a token that the vocabulary lacks, and nothing is written yet: this request alone fails, and says
 * why.
 */
Test(guide, a_grammar_without_a_token_fails_its_request_alone)
{
    World world = open_world(NULL, "root ::= <[99999999]> \"ab\"");
    rig_submit(world.rig, follow(&world, 1, 1));
    rig_submit(world.rig, request_of(2, "go"));
    cr_assert_eq(rig_run(world.rig), SCHED_IDLE);
    const RequestRecord *failed = &world.rig->recorder.requests[1];
    cr_expect_eq(failed->n_failed, 1);
    cr_expect_eq(failed->error.code, ERR_SCHEMA);
    cr_expect(strstr(failed->error.text, "no token of the vocabulary"), "%s", failed->error.text);
    cr_expect_eq(world.rig->recorder.requests[2].n_done, 1);
    close_world(&world);
}

/* An id that ends the answer is its end, or nothing: no answer ends within a grammar because its author wrote that id.
 */
Test(guide, an_end_token_within_a_grammar_is_no_end)
{
    char gbnf[96];
    snprintf(gbnf, sizeof gbnf, "root ::= [ab]{2,4} <[%u]>", TINY_IM_END);
    World world = open_world(NULL, gbnf);
    const ChoiceRecord *choice = run_one(&world, follow(&world, 1, 3));
    cr_expect(choice->finish == FINISH_STOP && choice->n_text >= 2, "'%s'", choice->text);
    close_world(&world);
    snprintf(gbnf, sizeof gbnf, "root ::= \"ab\" (<[%u]> \"c\" | \"d\")", TINY_IM_END);
    world = open_world(NULL, gbnf);
    cr_expect_str_eq(run_one(&world, follow(&world, 2, 3))->text, "abd");
    close_world(&world);
    snprintf(gbnf, sizeof gbnf, "root ::= <[%u]> \"ab\"", TINY_IM_END);
    world = open_world(NULL, gbnf);
    rig_submit(world.rig, follow(&world, 1, 1));
    cr_assert_eq(rig_run(world.rig), SCHED_IDLE);
    const RequestRecord *failed = &world.rig->recorder.requests[1];
    cr_expect(failed->n_failed == 1 && failed->error.code == ERR_SCHEMA, "%s", failed->error.text);
    close_world(&world);
}
