/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sched.h"
#include "tests/scheduler/rig.h"
#include "tests/support/tiny_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(sched, one_request_from_start_to_end)
{
    Speaker speaker = {5, "Paris"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 2);
    Request *request = request_of(1, "where");
    request->arrival_usec = 400;
    rig_submit(rig, request);
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(fake_engine_counts(rig->engine)->last_rows, 2);
    cr_assert_eq(rig->recorder.requests[1].progress_done, 2);
    rig_now_usec = 2000;
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(fake_engine_counts(rig->engine)->last_rows, 1);
    cr_assert_eq(fake_engine_counts(rig->engine)->last_first_pos, 4);
    rig_now_usec = 5000;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *record = &rig->recorder.requests[1];
    cr_assert_str_eq(record->choices[0].text, "Paris");
    cr_assert_eq(record->choices[0].n_tokens, 6);
    cr_assert_eq(record->choices[0].ids[5], TINY_IM_END);
    cr_assert_eq(record->choices[0].finish, FINISH_STOP);
    cr_assert_eq(record->n_done, 1);
    cr_assert_eq(record->n_progress, 3);
    cr_assert_eq(record->timings.prompt_tokens, 5);
    cr_assert_eq(record->timings.completion_tokens, 6);
    cr_assert_eq(record->timings.queue_usec, 600);
    cr_assert_eq(record->timings.prefill_usec, 1000);
    cr_assert_eq(record->timings.decode_usec, 3000);
    cr_assert_eq(fake_engine_counts(rig->engine)->logit_rows, 6);
    cr_assert_eq(sched_step(rig->sched), SCHED_IDLE);
    rig_free(rig);
}

Test(sched, length_ends_it)
{
    Speaker speaker = {1, "on and on and on"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "on and o");
    cr_assert_eq(rig->recorder.requests[1].choices[0].finish, FINISH_LENGTH);
    rig_free(rig);
}

/* The stop string "DEFGHIJ" of a greedy alphabet: no token event carries any prefix of it. */
Test(sched, stop_string_never_shows)
{
    Speaker speaker = {3, "DEFGDEFGHIJKLM"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    Request *request = request_of(1, "ABC");
    request_set_stop(request, "DEFGHIJ");
    request->max_tokens = 40;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const ChoiceRecord *choice = &rig->recorder.requests[1].choices[0];
    cr_assert_str_eq(choice->text, "DEFG");
    cr_assert_eq(choice->finish, FINISH_STOP);
    cr_assert_eq(choice->n_tokens, 11);
    /* The text that was held back came with the token that released it. */
    for (uint32_t i = 0; i < 11; i++) cr_assert_eq(choice->tokens[i].text_bytes, i == 4 ? 4 : 0);
    rig_free(rig);
}

Test(sched, held_back_text_comes_at_the_end)
{
    Speaker speaker = {1, "abcDEF"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    Request *request = request_of(1, "x");
    request_set_stop(request, "DEFG");
    rig_submit(rig, request);
    request = request_of(2, "x");
    request_set_stop(request, "DEFG");
    request->max_tokens = 5;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "abcDEF");
    cr_assert_str_eq(rig->recorder.requests[2].choices[0].text, "abcDE");
    rig_free(rig);
}

Test(sched, stop_ids_end_it_without_their_text)
{
    Speaker speaker = {1, "ab!cd"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    const uint32_t stop_ids[] = {byte_id('!')};
    for (RequestId id = 1; id <= 3; id++) {
        Request *request = request_of(id, "x");
        request->stop_ids = stop_ids;
        request->n_stop_ids = 1;
        request->stop.include = id == 2;
        request->min_tokens = id == 3 ? 4 : 0;
        rig_submit(rig, request);
    }
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "ab");
    cr_assert_eq(rig->recorder.requests[1].choices[0].finish, FINISH_STOP);
    cr_assert_str_eq(rig->recorder.requests[2].choices[0].text, "ab!");
    cr_assert_eq(rig->recorder.requests[3].choices[0].n_tokens, 6); /* '!' was banned, another took its place */
    cr_assert_neq(rig->recorder.requests[3].choices[0].ids[2], byte_id('!'));
    rig_free(rig);
}

/* A stop string counts once it begins behind the text that min_tokens asks for. */
Test(sched, min_tokens_holds_stop_strings_back)
{
    Speaker speaker = {1, "xabxabx"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    const char *const text[] = {"ab"};
    const size_t n_bytes[] = {2};
    static const char *const wanted[] = {"x", "x", "xabx", "xabx"};
    const uint32_t min_tokens[] = {0, 1, 2, 4};
    for (RequestId id = 1; id <= 4; id++) {
        Request *request = request_of(id, "x");
        request->stop = (StopStrings){.text = text, .n_bytes = n_bytes, .n = 1};
        request->min_tokens = min_tokens[id - 1];
        rig_submit(rig, request);
    }
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    for (RequestId id = 1; id <= 4; id++) {
        cr_assert_str_eq(rig->recorder.requests[id].choices[0].text, wanted[id - 1]);
        cr_assert_eq(rig->recorder.requests[id].choices[0].finish, FINISH_STOP);
    }
    rig_free(rig);
}

Test(sched, ignore_eos_goes_on_and_end_tokens_stay_unseen)
{
    const uint32_t script[] = {byte_id('a'), TINY_IM_END, byte_id('b'), TINY_ENDOFTEXT, TINY_IM_START, byte_id('c')};
    FakeEngineParams engine = {.script = script, .n_script = 6, .n_script_prompt = 1};
    Rig *rig = rig_new(&engine, 4, 64);
    Request *request = request_of(1, "x");
    request->ignore_eos = true;
    rig_submit(rig, request);
    request = request_of(2, "x");
    request->min_tokens = 2;
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "abc");
    cr_assert_eq(rig->recorder.requests[1].choices[0].finish, FINISH_LENGTH);
    cr_assert_eq(rig->recorder.requests[1].choices[0].n_tokens, 8);
    cr_assert_geq(rig->recorder.requests[2].choices[0].n_tokens, 3);
    rig_free(rig);
}

/* Dead bytes at the end of an answer, and inside: what comes joined is what decoding everything at once gives. */
Test(sched, dead_bytes_become_replacement_characters)
{
    Speaker speaker = {1, "a\xC3\xA9\xE2\x82\xF0\x9F\x98\x80\xFF\xE2\x82"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    Request *request = request_of(1, "x");
    request->max_tokens = 100;
    rig_submit(rig, request);
    request = request_of(2, "x");
    request->max_tokens = 4; /* cut off inside of a code point */
    rig_submit(rig, request);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "a\u00E9\uFFFD\U0001F600\uFFFD\uFFFD");
    cr_assert_str_eq(rig->recorder.requests[2].choices[0].text, "a\u00E9\uFFFD");
    rig_free(rig);
}

Test(sched, waits_first_in_first_out)
{
    Speaker speaker = {1, "hm"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 3, 64);
    for (RequestId id = 1; id <= 3; id++) rig_submit(rig, request_of(id, "x"));
    Request *fourth = request_of(4, "x");
    Error error;
    cr_assert_not(sched_submit(rig->sched, fourth, &error));
    cr_assert_eq(error.code, ERR_BUSY);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_submit(rig, fourth); /* slots come back */
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 1D 2S 2D 3S 3D 4S 4D ");
    cr_assert_eq(fake_engine_counts(rig->engine)->opened, 4);
    cr_assert_eq(rig->recorder.stats.finished, 4);
    cr_assert_eq(rig->recorder.stats.generated_tokens, 12);
    cr_assert_eq(rig->recorder.stats.running, 0);
    rig_free(rig);
}

Test(sched, lower_priorities_run_first)
{
    static const int64_t priorities[] = {0, 5, -3, 5, INT64_MAX, -3, 0, INT64_MIN};
    Speaker speaker = {1, "hm"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 8, 64);
    for (RequestId id = 1; id <= 8; id++) {
        Request *request = request_of(id, "x");
        request->priority = priorities[id - 1];
        rig_submit(rig, request);
        if (id == 1) cr_assert_eq(sched_step(rig->sched), SCHED_READY); /* it runs and is not put back */
    }
    sched_cancel(rig->sched, 6);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 6F 1D 8S 8D 3S 3D 7S 7D 2S 2D 4S 4D 5S 5D ");
    rig_free(rig);
}

/* One runs, a second waits, the second's client leaves: it never runs, the first is untouched. */
Test(sched, cancelled_while_waiting_never_runs)
{
    Speaker speaker = {1, "text"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    for (RequestId id = 1; id <= 3; id++) rig_submit(rig, request_of(id, "x"));
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    sched_cancel(rig->sched, 2);
    sched_cancel(rig->sched, 2);
    sched_cancel(rig->sched, 99);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 2F 1D 3S 3D ");
    cr_assert_eq(rig->recorder.requests[2].error.code, ERR_CANCELLED);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "text");
    cr_assert_eq(fake_engine_counts(rig->engine)->opened, 2);
    cr_assert_eq(rig->recorder.stats.cancelled, 1);
    rig_free(rig);
}

Test(sched, cancelled_in_prefill_stops_before_the_next_chunk)
{
    Rig *rig = rig_new(&(FakeEngineParams){0}, 4, 2);
    rig_submit(rig, request_of(1, "a long prompt of many chunks"));
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    sched_cancel(rig->sched, 1);
    cr_assert_eq(fake_engine_counts(rig->engine)->open, 0); /* freed at once */
    cr_assert_eq(sched_step(rig->sched), SCHED_IDLE);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, 2);
    cr_assert_eq(rig->recorder.requests[1].n_failed, 1);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_CANCELLED);
    rig_free(rig);
}

Test(sched, cancelled_in_decode_stops_before_the_next_token)
{
    Speaker speaker = {1, "for a long time"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    for (int i = 0; i < 3; i++) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    sched_cancel(rig->sched, 1);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, 3);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "for");
    cr_assert_not(rig->recorder.requests[1].choices[0].is_done);
    cr_assert_str_eq(rig->recorder.order, "1S 1F ");
    rig_free(rig);
}

Test(sched, deadlines_end_running_and_waiting)
{
    Speaker speaker = {1, "slow talk"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    for (RequestId id = 1; id <= 3; id++) {
        Request *request = request_of(id, "x");
        request->deadline_usec = id == 3 ? 0 : 4000 - id * 1000;
        rig_submit(rig, request);
    }
    cr_assert_eq(sched_next_deadline_usec(rig->sched), 2000);
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    rig_now_usec = 2000;
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_str_eq(rig->recorder.order, "1S 2F ");
    cr_assert_eq(sched_next_deadline_usec(rig->sched), 3000);
    rig_now_usec = 3000;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 2F 1F 3S 3D ");
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_DEADLINE);
    cr_assert(strstr(rig->recorder.requests[1].error.text, "time limit"));
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "sl");
    cr_assert_eq(sched_next_deadline_usec(rig->sched), 0);
    rig_free(rig);
}

Test(sched, bad_requests_fail_and_the_next_one_runs)
{
    Rig *rig = rig_new(&(FakeEngineParams){.context = 16}, 8, 64);
    rig_submit(rig, request_of(1, ""));
    rig_submit(rig, request_of(2, "nine char"));
    Request *request = request_of(3, "x");
    request->max_tokens = UINT32_MAX;
    rig_submit(rig, request);
    request = request_of(4, "x");
    const uint32_t bad[] = {TINY_IM_START, 1u << 20};
    request->prompt = bad;
    request->n_prompt = 2;
    rig_submit(rig, request);
    request = request_of(5, "x");
    request->n_choices = 0;
    rig_submit(rig, request);
    request = request_of(6, "x");
    request_set_stop(request, "");
    rig_submit(rig, request);
    rig_submit(rig, request_of(7, "8 bytes!")); /* just fits */
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_INVALID);
    cr_assert_eq(rig->recorder.requests[2].error.code, ERR_CONTEXT_LENGTH);
    cr_assert_eq(rig->recorder.requests[3].error.code, ERR_CONTEXT_LENGTH);
    cr_assert_str_eq(rig->recorder.requests[4].error.param, "prompt");
    cr_assert_str_eq(rig->recorder.requests[5].error.param, "n");
    cr_assert_str_eq(rig->recorder.requests[6].error.param, "stop");
    cr_assert_eq(rig->recorder.requests[7].n_done, 1);
    cr_assert_eq(rig->recorder.stats.refused, 6);
    cr_assert_eq(rig->recorder.stats.failed, 0, "none is the engine's fault");
    rig_free(rig);
}

static Request *with_window(RequestId id, double k)
{
    Request *request = request_of(id, "x");
    request->attention = (AttnWish){.has_wavelength = true, .k_decode = k};
    return request;
}

/* Others hold all places of the table of policies: who needs one more is told so, and nobody waits behind it. */
Test(sched, a_full_table_of_policies_fails_its_request_alone)
{
    Speaker speaker = {1, "hm"};
    Rig *rig = rig_open(&(RigParams){.engine = {.next = speaker_next, .next_arg = &speaker, .max_interned = 1}});
    rig_submit(rig, with_window(1, 2));
    rig_submit(rig, with_window(2, 4));
    rig_submit(rig, request_of(3, "x"));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    const RequestRecord *requests = rig->recorder.requests;
    cr_expect(requests[1].n_done == 1 && requests[3].n_done == 1);
    cr_expect(requests[2].n_failed == 1 && requests[2].error.code == ERR_BUSY, "%s", requests[2].error.text);
    rig_submit(rig, with_window(4, 4)); /* the place is free again */
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_expect_eq(requests[4].n_done, 1);
    rig_free(rig);
}

static void poison(void *arg, const uint32_t *tokens, uint32_t n, float *row)
{
    (void)arg;
    if (n > 3 && tokens[0] == byte_id('!')) row[17] = NAN;
}

Test(sched, non_finite_logits_fail_that_request_only)
{
    Speaker speaker = {1, "abcdef"};
    FakeEngineParams engine = {.next = speaker_next, .next_arg = &speaker, .edit = poison};
    Rig *rig = rig_new(&engine, 4, 64);
    rig_submit(rig, request_of(1, "!"));
    rig_submit(rig, request_of(2, "x"));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_NON_FINITE);
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "abc");
    cr_assert_str_eq(rig->recorder.requests[2].choices[0].text, "abcdef");
    cr_assert_eq(rig->recorder.stats.non_finite, 1);
    rig_free(rig);
}

Test(sched, a_failed_forward_pass_fails_its_request)
{
    Speaker speaker = {1, "abcdef"};
    FakeEngineParams engine = {.next = speaker_next, .next_arg = &speaker, .fail_at_forward = 3};
    Rig *rig = rig_new(&engine, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    rig_submit(rig, request_of(2, "x"));
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.requests[1].error.code, ERR_DEVICE);
    cr_assert_eq(rig->recorder.requests[2].n_done, 1);
    rig_free(rig);
}

Test(sched, needs_a_chunk_and_a_slot)
{
    Engine *engine = fake_engine_new(&(FakeEngineParams){0});
    Sched *sched = NULL;
    Error error = {0};
    SchedParams params = {.engine = engine, .max_live = 1, .clock_usec = rig_clock, .emit = rig_emit};
    cr_assert_not(sched_new(&params, &sched, &error));
    cr_assert_str_eq(error.param, "prefill_chunk");
    params.prefill_chunk = 1;
    params.max_live = 0;
    cr_assert_not(sched_new(&params, &sched, &error));
    cr_assert_null(sched);
    engine_close(engine);
    sched_free(NULL);
}

/* With room for one event at a time nothing is lost, nothing is out of order, and no step runs ahead. */
Test(sched, a_full_event_queue_holds_the_sequence)
{
    Speaker speaker = {1, "abcdef"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    rig_submit(rig, request_of(2, "x"));
    rig_submit(rig, request_of(3, "x"));
    rig->room = 0;
    cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    for (int i = 0; i < 5; i++) cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    cr_assert_eq(fake_engine_counts(rig->engine)->forwards, 0); /* STARTED is not out yet */
    sched_cancel(rig->sched, 3);
    for (int i = 0; i < 200 && rig->recorder.requests[2].n_done == 0; i++) {
        rig->room = 1;
        sched_step(rig->sched);
    }
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "abcdef");
    cr_assert_str_eq(rig->recorder.requests[2].choices[0].text, "abcdef");
    cr_assert_eq(rig->recorder.requests[3].n_failed, 1);
    cr_assert_eq(rig->recorder.requests[3].n_started, 0);
    rig->room = 10;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    rig_free(rig);
}

Test(sched, cancelled_while_its_events_wait)
{
    Speaker speaker = {1, "abcdef"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    rig->room = 1; /* STARTED; progress and the first token must wait */
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    sched_cancel(rig->sched, 1);
    cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    cr_assert_eq(fake_engine_counts(rig->engine)->open, 0);
    rig->room = 100;
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_str_eq(rig->recorder.order, "1S 1F ");
    cr_assert_str_eq(rig->recorder.requests[1].choices[0].text, "a");
    rig_free(rig);
}

Test(sched, stop_ends_everything_and_says_so_last)
{
    Speaker speaker = {1, "abcdef"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_submit(rig, request_of(1, "x"));
    rig_submit(rig, request_of(2, "x"));
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    rig->room = 0;
    sched_stop(rig->sched);
    cr_assert_eq(sched_step(rig->sched), SCHED_STALLED);
    Request *late = request_of(3, "x");
    Error error;
    cr_assert_not(sched_submit(rig->sched, late, &error));
    request_free(late);
    for (int i = 0; i < 10; i++) {
        rig->room = 1;
        sched_step(rig->sched);
    }
    cr_assert_eq(sched_step(rig->sched), SCHED_STOPPED);
    cr_assert_str_eq(rig->recorder.order, "1S 1F 2F X ");
    cr_assert_eq(rig->recorder.requests[2].error.code, ERR_CANCELLED);
    cr_assert(strstr(rig->recorder.requests[2].error.text, "stopping"));
    rig_free(rig);
}

Test(sched, freed_in_the_middle_it_leaks_nothing)
{
    Speaker speaker = {1, "abcdef"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    for (RequestId id = 1; id <= 4; id++) rig_submit(rig, request_of(id, "x"));
    rig->room = 1;
    cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    sched_cancel(rig->sched, 2);
    rig_free(rig);
}

Test(sched, gauges_come_every_100_ms_and_when_going_idle)
{
    Speaker speaker = {1, "abcdefghijklmnop"};
    Rig *rig = rig_new(&(FakeEngineParams){.next = speaker_next, .next_arg = &speaker}, 4, 64);
    rig_now_usec = 10;
    Request *request = request_of(1, "x");
    request->max_tokens = 16;
    rig_submit(rig, request);
    for (int i = 0; i < 4; i++) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(rig->recorder.n_stats, 0);
    rig_now_usec = 150000;
    for (int i = 0; i < 4; i++) cr_assert_eq(sched_step(rig->sched), SCHED_READY);
    cr_assert_eq(rig->recorder.n_stats, 1);
    cr_assert_eq(rig->recorder.stats.running, 1);
    cr_assert_eq(rig->recorder.stats.steps, 5);
    cr_assert_eq(rig->recorder.stats.kv_tokens_used, KV_PAGE_TOKENS);
    cr_assert_eq(rig->recorder.stats.kv_pages_used, 1);
    cr_assert_eq(rig_run(rig), SCHED_IDLE);
    cr_assert_eq(rig->recorder.n_stats, 2);
    cr_assert_eq(rig->recorder.stats.running, 0);
    cr_assert_eq(rig->recorder.stats.last_step_usec, 150000);
    cr_assert_eq(sched_step(rig->sched), SCHED_IDLE);
    cr_assert_eq(rig->recorder.n_stats, 2);
    rig_free(rig);
}

static bool count_event(void *arg, const Event *event)
{
    uint32_t *n_last = arg;
    Event copy = *event;
    *n_last += event->kind == EVENT_DONE || event->kind == EVENT_FAILED;
    event_done(&copy);
    return true;
}

/* Of 65,536 in any order a third is served, a third cancelled, a third too late: none of it looks through all others.
 */
Test(sched, a_long_queue_costs_little, .timeout = 60)
{
    enum { N = 65536 };
    static const uint32_t prompt[] = {TINY_FIRST_BYTE};
    uint32_t n_last = 0;
    rig_now_usec = 1000;
    Engine *engine = fake_engine_new(&(FakeEngineParams){.context = 64});
    const SchedParams params = {.engine = engine,
                                .order = SCHEDULE_PRIORITY,
                                .max_live = N,
                                .max_batch = 64,
                                .max_passes = 2,
                                .prefill_chunk = 64,
                                .max_stall_usec = 1000,
                                .clock_usec = rig_clock,
                                .emit = count_event,
                                .emit_arg = &n_last};
    Sched *sched;
    Error error;
    cr_assert(sched_new(&params, &sched, &error), "%s", error.text);
    for (RequestId id = 1; id <= N; id++) {
        Request *request = request_new(id, 1 << 20);
        cr_assert_not_null(request);
        request->prompt = prompt;
        request->n_prompt = 1;
        request->max_tokens = 1;
        request->priority = (int64_t)(id * 2654435761u % 1000);
        if (id % 3 == 0) request->deadline_usec = 2000 + id;
        cr_assert(sched_submit(sched, request, &error), "%s", error.text);
    }
    for (RequestId id = 1; id <= N; id += 3) sched_cancel(sched, N + 1 - id);
    for (uint32_t i = 0; i < N / 3; i++) {
        rig_now_usec = 2000 + 3 * i;
        (void)sched_step(sched);
    }
    while (sched_step(sched) == SCHED_READY) rig_now_usec++;
    cr_assert_eq(n_last, N);
    sched_stop(sched);
    cr_assert_eq(sched_step(sched), SCHED_STOPPED);
    sched_free(sched);
    engine_close(engine);
}
