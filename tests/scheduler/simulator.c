/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulator SEED EVENTS: the scheduler, the prefix cache and the real page tables on a fake engine and a fake clock,
 * through random arrivals, cancels, deadlines, slow clients, priorities and too little memory. After every event: every
 * page has the owners that it should have, budgets are kept, nobody has waited too long; every token of every answer is
 * the one that the fake model says when it is asked alone. Ends with 'N passed, N failed'.
 */
#include "scheduler/sched.h"
#include "tests/scheduler/sim_answers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LIVE = 24,
    N_ASKED = 8,
    N_TALKS = 4,
    STALL_USEC = 2000,
    MAX_WAIT_STEPS = 4000,   /* under the seeds of CI nobody waits for more than 2,600 of about 8,000 */
    MAX_CLOSE_STEPS = 20000, /* until all are answered at the end */
    ENOUGH_EVENTS = 50000,
    MAX_OTHER_EVENTS = 3000,
};

/* Of the gaps of a calm world, those over STALL_USEC. */
#define MAX_LONG_GAPS 0.01

typedef struct Client {
    RequestId id; /* 0: none */
    SimQuestion question;
    uint32_t max_tokens, n_prompt;
    uint32_t n[SIM_MAX_CHOICES], n_done, n_told; /* tokens by choice, choices, prompt tokens with log-probabilities */
    uint32_t n_preempted;
    bool has_started, may_fail; /* cancelled, or with a deadline */
    uint64_t begin_step;
} Client;

/* How a run differs from others. */
typedef struct World {
    const char *kv_types;
    uint32_t max_batch, chunk, max_passes, n_contexts_quarters;
    uint64_t max_swap_bytes;
    bool cache, exact, talks; /* talks: conversations of a few, long answers, under the policy that tells decode */
    bool is_calm;             /* nobody is slow or has to give way: then gaps between tokens are short */
    bool makes_digests;       /* as on a device */
    ScheduleMode order;
} World;

typedef struct Sim {
    World world;
    uint64_t random, n_steps;
    Engine *engine;
    PrefixCache *cache;
    Sched *sched;
    SimAnswers *answers;
    Client clients[MAX_LIVE];
    SimQuestion asked[N_ASKED]; /* the last ones */
    RequestId last_id;
    uint32_t n_live, room; /* events that will be taken */
    uint64_t n_wrong, n_done, n_cancelled, n_overdue, n_non_finite, n_cached, n_branched, n_returned, most_wait;
    uint64_t n_gaps, n_long_gaps;
} Sim;

static uint64_t now_usec = 1;

static uint64_t read_clock(void)
{
    return now_usec;
}

static void complain(Sim *sim, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (sim->n_wrong++ < 20) {
        printf("WRONG at step %llu: ", (unsigned long long)sim->n_steps);
        vprintf(format, arguments);
        putchar('\n');
    }
    va_end(arguments);
}

/* ---- the client's side ---- */

static Client *find_client(Sim *sim, RequestId id)
{
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        if (sim->clients[i].id == id) return &sim->clients[i];
    return NULL;
}

/* The first token has no probability. */
static void take_prompt(Sim *sim, Client *client, const TokensPayload *payload)
{
    uint32_t n;
    const uint32_t *prompt = sim_prompt(sim->answers, client->question.prompt, &n);
    const float *logprobs = sim_prompt_logprobs(sim->answers, &client->question);
    for (uint32_t i = 0; i < payload->n_tokens; i++) {
        const SampleResult *told = &payload->tokens[i].sample;
        uint32_t at = client->n_told++;
        if (at >= n || told->id != prompt[at] || (at > 0 && told->logprob != logprobs[at]))
            complain(sim, "request %llu: what it is told of token %u of its prompt is wrong",
                     (unsigned long long)client->id, at);
    }
}

static void take_tokens(Sim *sim, Client *client, const Event *event)
{
    const TokensPayload *payload = event->tokens;
    if (payload->is_prompt) {
        take_prompt(sim, client, payload);
        return;
    }
    const SimAnswer *answer = sim_answer(sim->answers, &client->question);
    uint32_t at = client->n[event->choice]++;
    bool is_right = at < answer->n[event->choice] && payload->tokens[0].sample.id == answer->ids[event->choice][at];
    if (!is_right)
        complain(sim, "request %llu (prompt %u, policy %u, seed %u) choice %u token %u is %u, not %u",
                 (unsigned long long)client->id, client->question.prompt, client->question.policy,
                 client->question.seed, event->choice, at, payload->tokens[0].sample.id,
                 at < answer->n[event->choice] ? answer->ids[event->choice][at] : 0);
    if (payload->gap_usec) {
        sim->n_gaps++;
        sim->n_long_gaps += payload->gap_usec > STALL_USEC;
    }
}

static void check_length(Sim *sim, const Client *client, uint32_t choice, FinishReason finish)
{
    const SimAnswer *answer = sim_answer(sim->answers, &client->question);
    uint32_t whole = answer->n[choice] < client->max_tokens ? answer->n[choice] : client->max_tokens;
    bool stops = whole && tok_is_end(engine_tokenizer(sim->engine), answer->ids[choice][whole - 1]);
    if (client->n[choice] != whole)
        complain(sim, "choice %u ends after %u tokens, not %u", choice, client->n[choice], whole);
    if ((finish == FINISH_STOP) != stops) complain(sim, "choice %u ends as %d", choice, finish);
}

static void end_client(Sim *sim, Client *client, const Event *event)
{
    if (event->kind == EVENT_DONE) {
        sim->n_done++;
        sim->n_cached += event->timings.cached_tokens;
        sim->n_returned += event->timings.n_preempted > 0;
        if (client->n_done != client->question.n_choices) complain(sim, "done with %u choices", client->n_done);
        if (client->question.tells_prompt && client->n_told != client->n_prompt)
            complain(sim, "%u of %u prompt tokens were told", client->n_told, client->n_prompt);
    } else {
        ErrorCode code = event->error->code;
        sim->n_cancelled += code == ERR_CANCELLED;
        sim->n_overdue += code == ERR_DEADLINE;
        sim->n_non_finite += code == ERR_NON_FINITE;
        bool is_right = code == ERR_NON_FINITE ? sim_answer(sim->answers, &client->question)->failure == code
                                               : client->may_fail && (code == ERR_CANCELLED || code == ERR_DEADLINE);
        if (!is_right) complain(sim, "request %llu fails: %s", (unsigned long long)client->id, event->error->text);
    }
    sim->n_live--;
    client->id = 0;
}

static bool take_event(void *arg, const Event *event)
{
    Sim *sim = arg;
    if (sim->room == 0) return false;
    sim->room--;
    Event copy = *event;
    Client *client = event->id ? find_client(sim, event->id) : NULL;
    if (event->id && !client) complain(sim, "an event behind the last one");
    if (client) {
        if (!client->has_started && event->kind != EVENT_STARTED && event->kind != EVENT_FAILED)
            complain(sim, "event %d before it started", event->kind);
        if (event->kind == EVENT_STARTED) client->has_started = true;
        if (event->kind == EVENT_TOKENS) take_tokens(sim, client, event);
        if (event->kind == EVENT_CHOICE_DONE) {
            client->n_done++;
            check_length(sim, client, event->choice, event->finish);
        }
        if (event->kind == EVENT_DONE || event->kind == EVENT_FAILED) end_client(sim, client, event);
    }
    event_done(&copy);
    return true;
}

/* ---- what happens ---- */

/* May a cache that is not exact answer it from pages that were decoded, and may that show? Answers of policies that see
 * what dense ones see for a while begin as theirs, which turns go on from. */
static bool is_open(const World *world, const SimQuestion *question)
{
    return world->cache && !world->exact && sim_is_turn(question->prompt) &&
           !policy_decodes_as_prefilled(&fake_policies[question->policy]);
}

static void arrive(Sim *sim)
{
    Client *client = find_client(sim, 0);
    if (!client) return;
    uint64_t *random = &sim->random;
    /* Half of them go on where another one may have ended, or ask the same. */
    const SimQuestion *other = &sim->asked[sim_below(random, N_ASKED)];
    bool goes_on = sim_below(random, 2);
    SimQuestion question = {.prompt = goes_on ? sim_turn_after(other->prompt) : sim_below(random, SIM_PROMPTS),
                            .policy = goes_on ? other->policy : sim_below(random, FAKE_POLICIES),
                            .seed = goes_on ? other->seed : sim_below(random, SIM_SEEDS),
                            .n_choices = sim_below(random, 5) ? 1 : 2 + sim_below(random, SIM_MAX_CHOICES - 1),
                            .tells_prompt = sim_below(random, 8) == 0};
    if (sim->world.talks) {
        question = (SimQuestion){.prompt = sim_below(random, N_TALKS) * 2, .policy = FAKE_POLICIES - 1, .n_choices = 1};
        if (sim_below(random, 2)) question.prompt = sim_turn_after(question.prompt);
    }
    if (is_open(&sim->world, &question)) question.policy = 0;
    /* How far the other choices get before one fails depends on their company. */
    if (question.n_choices > 1 && sim_answer(sim->answers, &question)->failure) question.n_choices = 1;
    sim->asked[sim->last_id % N_ASKED] = question;
    uint32_t max_tokens = sim_below(random, 40) ? 1 + sim_below(random, SIM_MAX_ANSWER) : !question.tells_prompt;
    if (sim->world.talks) max_tokens = SIM_MAX_ANSWER;
    Request *request = sim_request(sim->answers, &question, ++sim->last_id, max_tokens);
    request->priority = (int64_t)sim_below(random, 3) - 1;
    request->cache_salt = sim_below(random, 4) ? NULL : "salt";
    request->n_cache_salt = request->cache_salt ? 4 : 0;
    request->arrival_usec = now_usec;
    if (sim_below(random, 16) == 0) request->deadline_usec = now_usec + 1 + sim_below(random, 100000);
    *client = (Client){.id = sim->last_id,
                       .question = question,
                       .max_tokens = max_tokens,
                       .n_prompt = request->n_prompt,
                       .may_fail = request->deadline_usec != 0,
                       .begin_step = sim->n_steps};
    sim->n_live++;
    sim->n_branched += question.n_choices > 1;
    Error error;
    if (!sched_submit(sim->sched, request, &error)) {
        complain(sim, "refused: %s", error.text);
        request_free(request);
        client->id = 0;
    }
}

static void cancel(Sim *sim)
{
    Client *client = &sim->clients[sim_below(&sim->random, MAX_LIVE)];
    if (client->id) client->may_fail = true;
    sched_cancel(sim->sched, client->id ? client->id : sim->last_id + 1);
}

static void check(Sim *sim)
{
    EngineStats stats = sched_stats(sim->sched);
    const FakeEngineCounts *counts = fake_engine_counts(sim->engine);
    const char *wrong = fake_engine_check_pages(sim->engine, stats.prefix_pages);
    if (wrong) complain(sim, "%s", wrong);
    if (counts->broken_promises) complain(sim, "the engine's contract was broken");
    if (fake_engine_useful_passes(sim->engine) != counts->open_passes) complain(sim, "a pass is computed for nobody");
    if (counts->open != stats.running) complain(sim, "%u sequences are open, %u run", counts->open, stats.running);
    if (stats.running > sim->world.max_batch) complain(sim, "%u sequences run", stats.running);
    if (stats.swap_bytes > sim->world.max_swap_bytes) complain(sim, "the swap store is too full");
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        const Client *client = &sim->clients[i];
        uint64_t wait = client->id ? sim->n_steps - client->begin_step : 0;
        if (wait > sim->most_wait) sim->most_wait = wait;
        if (wait > MAX_WAIT_STEPS) complain(sim, "request %llu is starving", (unsigned long long)client->id);
    }
}

/* One in eight events is a request until the house is full; the clients take more or fewer of their events. */
static void happen(Sim *sim)
{
    uint32_t what = sim_below(&sim->random, 64);
    if (what < 8) {
        arrive(sim);
    } else if (what == 8) {
        cancel(sim);
    } else {
        if (what == 9 && !sim->world.is_calm) sim->room = sim_below(&sim->random, 3);
        if (what > 12) sim->room = UINT32_MAX;
        sim->n_steps++;
        (void)sched_step(sim->sched);
    }
    check(sim);
}

/* Rows and layers take time, deeper ones more. */
static void work(void *arg, uint32_t n_rows, uint32_t n_layers, uint32_t depth)
{
    (void)arg;
    now_usec += n_layers ? n_layers * (20 + n_rows * (12 + depth / 64)) : 10 + n_rows;
}

static void open_world(Sim *sim)
{
    World *world = &sim->world;
    FakeEngineParams engine = {.context = SIM_CONTEXT,
                               .max_batch_rows = 64,
                               .max_logit_rows = 64,
                               .max_sequences = world->max_batch,
                               .max_passes = world->max_passes,
                               .n_layers = FAKE_LAYERS,
                               .kv_types = world->kv_types,
                               .policies = fake_policies,
                               .n_policies = FAKE_POLICIES,
                               .makes_digests = world->makes_digests,
                               .work = work};
    Engine *measure = fake_engine_new(&engine);
    for (PolicyId policy = 0; policy < FAKE_POLICIES; policy++) {
        uint64_t need = engine_need_bytes(measure, policy, SIM_CONTEXT);
        if (need > engine.kv_bytes) engine.kv_bytes = need;
    }
    engine_close(measure);
    engine.kv_bytes = engine.kv_bytes * world->n_contexts_quarters / 4;
    sim->engine = fake_engine_new(&engine);
    Error error;
    const PrefixParams cache = {
        .engine = sim->engine, .max_nodes = 256, .exact = world->exact, .clock_usec = read_clock};
    if (world->cache && !prefix_cache_new(&cache, &sim->cache, &error)) abort();
    const SchedParams params = {.engine = sim->engine,
                                .cache = sim->cache,
                                .order = world->order,
                                .max_live = MAX_LIVE,
                                .max_batch = world->max_batch,
                                .max_passes = world->max_passes,
                                .prefill_chunk = world->chunk,
                                .max_stall_usec = STALL_USEC,
                                .max_swap_bytes = world->max_swap_bytes,
                                .clock_usec = read_clock,
                                .emit = take_event,
                                .emit_arg = sim};
    if (!sched_new(&params, &sim->sched, &error)) abort();
}

/* Everybody is answered, everything is given back. */
static void close_world(Sim *sim)
{
    sim->room = UINT32_MAX;
    SchedState state = SCHED_READY;
    for (uint64_t i = 0; state == SCHED_READY && i < MAX_CLOSE_STEPS; i++) {
        sim->n_steps++;
        state = sched_step(sim->sched);
        check(sim);
    }
    if (state != SCHED_IDLE || sim->n_live) complain(sim, "%u requests are left over", sim->n_live);
    if (sched_stats(sim->sched).swap_bytes) complain(sim, "copies are left over");
    sched_free(sim->sched);
    prefix_cache_free(sim->cache);
    if (engine_kv_usage(sim->engine).used_bytes) complain(sim, "pages are left over");
    if (fake_engine_counts(sim->engine)->open_passes) complain(sim, "passes are left over");
    engine_close(sim->engine);
    sim_answers_free(sim->answers);
}

static World make_world(uint64_t *random)
{
    static const char *const types[] = {"f16", "int8", "full=int8,stream=f16", "full=f16,stream=int4"};
    return (World){.kv_types = types[sim_below(random, 4)],
                   .max_batch = 2 + sim_below(random, 9),
                   .chunk = 16 << sim_below(random, 3),
                   .max_passes = 2 + sim_below(random, 3),
                   .n_contexts_quarters = 4 + sim_below(random, 6),
                   .max_swap_bytes = (uint64_t)sim_below(random, 3) << 16,
                   .cache = sim_below(random, 4) > 0,
                   .exact = sim_below(random, 2) > 0,
                   .order = sim_below(random, 2) ? SCHEDULE_PRIORITY : SCHEDULE_FCFS};
}

/* Turns that go on from answers, where every decoded page that is taken for a prefilled one shows. */
static World make_talks(void)
{
    return (World){.kv_types = "f16",
                   .max_batch = 4,
                   .chunk = 64,
                   .max_passes = 2,
                   .n_contexts_quarters = 4 * 4,
                   .max_swap_bytes = 1 << 20,
                   .cache = true,
                   .exact = true,
                   .talks = true,
                   .order = SCHEDULE_FCFS};
}

/* Many at once, and memory for all of them. */
static World make_calm(void)
{
    return (World){.kv_types = "full=int8,stream=f16",
                   .max_batch = 8,
                   .chunk = 64,
                   .max_passes = 3,
                   .n_contexts_quarters = 4 * 16,
                   .is_calm = true,
                   .order = SCHEDULE_PRIORITY};
}

/* What must have happened in enough events. */
typedef struct Seen {
    uint64_t preempted, swapped, cached, evicted, cancelled, overdue, non_finite, branched, digested;
} Seen;

static void add_seen(Seen *seen, const Sim *sim, const EngineStats *stats, const PrefixStats *prefix)
{
    seen->preempted += stats->preempted;
    seen->swapped += stats->swapped_in_bytes;
    seen->cached += sim->n_cached;
    seen->evicted += prefix->evicted_pages;
    seen->cancelled += sim->n_cancelled;
    seen->overdue += sim->n_overdue;
    seen->non_finite += sim->n_non_finite;
    seen->branched += sim->n_branched;
    seen->digested += stats->digested_rows;
}

static bool saw_all(const Seen *seen)
{
    return seen->preempted && seen->swapped && seen->cached && seen->evicted && seen->cancelled && seen->overdue &&
           seen->non_finite && seen->branched && seen->digested;
}

static bool run(uint64_t seed, uint64_t n_events, const World *world, Seen *seen)
{
    Sim *sim = calloc(1, sizeof *sim);
    if (!sim) abort();
    uint64_t random = seed * 1000003;
    sim->random = random;
    sim->room = UINT32_MAX;
    sim->world = world ? *world : make_world(&sim->random);
    sim->world.makes_digests = seed % 2;
    /* Pages that were decoded differ from prefilled ones under the last policy: answers too, unless they are refused.
     */
    PolicyId turn_policy = sim->world.exact || !sim->world.cache ? FAKE_POLICIES - 1 : 0;
    sim->answers = sim_answers_new(sim->world.kv_types, turn_policy, random);
    open_world(sim);
    for (uint64_t i = 0; i < n_events && sim->n_wrong < 20; i++) happen(sim);
    EngineStats stats = sched_stats(sim->sched);
    PrefixStats prefix = sim->cache ? prefix_cache_stats(sim->cache) : (PrefixStats){0};
    add_seen(seen, sim, &stats, &prefix);
    close_world(sim);
    double long_gaps = sim->n_gaps ? (double)sim->n_long_gaps / (double)sim->n_gaps : 0;
    if (sim->world.is_calm && stats.preempted) complain(sim, "somebody was preempted");
    if (sim->world.is_calm && (long_gaps > MAX_LONG_GAPS || sim->n_gaps < n_events))
        complain(sim, "%.3f %% of %llu gaps are too long", 100 * long_gaps, (unsigned long long)sim->n_gaps);
    printf("seed %llu, %s, %u at once, chunk %u, cache %d%s: %llu events, %llu steps, %llu done, %llu cancelled, "
           "%llu overdue, %llu non-finite\n",
           (unsigned long long)seed, sim->world.kv_types, sim->world.max_batch, sim->world.chunk, sim->world.cache,
           sim->world.exact ? " exact" : "", (unsigned long long)n_events, (unsigned long long)sim->n_steps,
           (unsigned long long)sim->n_done, (unsigned long long)sim->n_cancelled, (unsigned long long)sim->n_overdue,
           (unsigned long long)sim->n_non_finite);
    printf("  %llu with choices, %llu preempted, %llu bytes swapped, %llu tokens cached, %llu pages evicted, longest "
           "wait %llu steps, %.2f %% of gaps over %d usec\n",
           (unsigned long long)sim->n_branched, (unsigned long long)stats.preempted,
           (unsigned long long)stats.swapped_in_bytes, (unsigned long long)sim->n_cached,
           (unsigned long long)prefix.evicted_pages, (unsigned long long)sim->most_wait,
           100 * long_gaps, STALL_USEC);
    bool ok = sim->n_wrong == 0 && sim->n_done > 0;
    free(sim);
    return ok;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
             n_events = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
    uint64_t n_seeds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    uint32_t n_passed = 0, n_failed = 0;
    Seen seen = {0};
    for (uint64_t i = 0; i < n_seeds; i++) *(run(seed + i, n_events, NULL, &seen) ? &n_passed : &n_failed) += 1;
    const World others[] = {make_talks(), make_calm()};
    uint64_t n_few = n_events < MAX_OTHER_EVENTS ? n_events : MAX_OTHER_EVENTS;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        *(run(seed, n_few, &others[i], &seen) ? &n_passed : &n_failed) += 1;
    bool is_full = n_seeds * n_events < ENOUGH_EVENTS || saw_all(&seen);
    if (!is_full) printf("FAIL: not everything was tried\n");
    *(is_full ? &n_passed : &n_failed) += 1;
    printf("simulator: %u passed, %u failed\n", n_passed, n_failed);
    return n_failed != 0;
}
