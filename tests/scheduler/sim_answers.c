/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scheduler/sim_answers.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_FRESH = 32, N_FAMILIES = 4, MAX_SHARED = 200, MAX_OWN = 160, MAX_PROMPT = SIM_CONTEXT - SIM_MAX_ANSWER };

struct SimAnswers {
    Engine *engine;
    SamplerSpace *space;
    PolicyId turn_policy;
    uint32_t prompts[SIM_PROMPTS][MAX_PROMPT], n_prompts[SIM_PROMPTS];
    float logprobs[SIM_PROMPTS][FAKE_POLICIES][MAX_PROMPT];
    SimAnswer answers[SIM_PROMPTS][FAKE_POLICIES][SIM_SEEDS][2][2];
};

uint64_t sim_random(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint32_t sim_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((sim_random(state) >> 32) * n >> 32);
}

static uint32_t random_token(uint64_t *state)
{
    return sim_below(state, 24) == 0 ? TINY_IM_END : TINY_FIRST_BYTE + sim_below(state, 256);
}

/* Of each family a beginning of some length, then tokens of its own; the last ones are made when they are asked for. */
static void make_prompts(SimAnswers *answers, uint64_t *state)
{
    uint32_t shared[N_FAMILIES][MAX_SHARED];
    for (uint32_t f = 0; f < N_FAMILIES; f++)
        for (uint32_t i = 0; i < MAX_SHARED; i++) shared[f][i] = random_token(state);
    for (uint32_t p = 0; p < N_FRESH; p++) {
        uint32_t n_shared = p % 8 == 7 ? 0 : sim_below(state, MAX_SHARED), n_own = 1 + sim_below(state, MAX_OWN);
        if (p % 4 == 0) n_own = 1 + sim_below(state, 8);
        memcpy(answers->prompts[p], shared[p % N_FAMILIES], n_shared * sizeof(uint32_t));
        for (uint32_t i = 0; i < n_own; i++) answers->prompts[p][n_shared + i] = random_token(state);
        answers->n_prompts[p] = n_shared + n_own;
    }
}

/* Another turn of a conversation: a prompt, what the model said to it, and something new. */
static void make_turn(SimAnswers *answers, uint32_t prompt)
{
    uint32_t from = (prompt - N_FRESH) * 2, n_from;
    const uint32_t *tokens = sim_prompt(answers, from, &n_from);
    const SimAnswer *said =
        sim_answer(answers, &(SimQuestion){.prompt = from, .policy = answers->turn_policy, .n_choices = 1});
    uint64_t state = prompt;
    uint32_t n = n_from, *turn = answers->prompts[prompt];
    memcpy(turn, tokens, n * sizeof *turn);
    for (uint32_t i = 0; i < said->n[0] && n < MAX_PROMPT - 10; i++) turn[n++] = said->ids[0][i];
    for (uint32_t i = 0; i < 10 && n < MAX_PROMPT; i++) turn[n++] = random_token(&state);
    answers->n_prompts[prompt] = n;
}

SimAnswers *sim_answers_new(const char *kv_types, PolicyId turn_policy, uint64_t seed)
{
    SimAnswers *answers = calloc(1, sizeof *answers);
    if (!answers) abort();
    answers->engine = fake_engine_new(&(FakeEngineParams){.context = SIM_CONTEXT,
                                                          .max_batch_rows = SIM_CONTEXT,
                                                          .max_logit_rows = SIM_CONTEXT,
                                                          .max_sequences = SIM_MAX_CHOICES,
                                                          .n_layers = FAKE_LAYERS,
                                                          .kv_types = kv_types,
                                                          .policies = fake_policies,
                                                          .n_policies = FAKE_POLICIES});
    const Tokenizer *tokenizer = engine_tokenizer(answers->engine);
    answers->turn_policy = turn_policy;
    Error error;
    if (!sampler_space_new(tok_n_vocab(tokenizer), sampler_text_of(tokenizer), &answers->space, &error)) abort();
    make_prompts(answers, &seed);
    return answers;
}

void sim_answers_free(SimAnswers *answers)
{
    if (fake_engine_counts(answers->engine)->broken_promises) abort();
    sampler_space_free(answers->space);
    engine_close(answers->engine);
    free(answers);
}

uint32_t sim_turn_after(uint32_t prompt)
{
    return prompt < N_FRESH && prompt % 2 == 0 ? N_FRESH + prompt / 2 : prompt;
}

bool sim_is_turn(uint32_t prompt)
{
    return prompt >= N_FRESH;
}

const uint32_t *sim_prompt(SimAnswers *answers, uint32_t prompt, uint32_t *ret_n)
{
    if (!answers->n_prompts[prompt]) make_turn(answers, prompt);
    *ret_n = answers->n_prompts[prompt];
    return answers->prompts[prompt];
}

Request *sim_request(SimAnswers *answers, const SimQuestion *question, RequestId id, uint32_t max_tokens)
{
    Request *request = request_new(id, 1 << 20);
    if (!request) abort();
    request->prompt = sim_prompt(answers, question->prompt, &request->n_prompt);
    request->policy = question->policy;
    request->max_tokens = max_tokens;
    request->n_choices = question->n_choices;
    request->want_prompt_logprobs = question->tells_prompt;
    request->sampling.temperature = question->seed ? 3 : 0;
    request->sampling.seed = question->seed;
    request->sampling.top_p = question->seed == 3 ? 0.9f : 1;
    request->sampling.repetition_penalty = question->seed == 2 ? 8 : 1;
    return request;
}

static float *forward(Engine *engine, SeqId seq, const uint32_t *tokens, uint32_t n, LogitRows logits, RowKind kind)
{
    Error error;
    float *rows = NULL;
    const BatchSpan span = {
        .seq = seq, .n_rows = n, .first_pos = engine_seq_tokens(engine, seq), .logits = logits, .kind = kind};
    const Batch batch = {.tokens = tokens, .n_rows = n, .spans = &span, .n_spans = 1};
    WorkItem item = {.n_layers = FAKE_LAYERS, .n_rows = n};
    if (!engine_seq_reserve(engine, seq, n, &error) || !engine_pass_begin(engine, &batch, &item.pass, &error) ||
        !engine_pass_run(engine, &item, &error) || !engine_pass_end(engine, item.pass, &rows, &error))
        abort();
    return rows;
}

/* The prompt's rows with logits must all be finite when they are told. */
static float *read_prompt(SimAnswers *answers, const Request *request, SeqId seq, float *logprobs, ErrorCode *failure)
{
    uint32_t n = request->n_prompt, n_vocab = tok_n_vocab(engine_tokenizer(answers->engine));
    LogitRows which = request->want_prompt_logprobs ? LOGITS_ALL : LOGITS_LAST;
    float *rows = forward(answers->engine, seq, request->prompt, n, which, ROWS_PREFILL);
    SampleResult result;
    Error error;
    for (uint32_t i = 0; which == LOGITS_ALL && i + 1 < n; i++)
        if (sample_logprobs(rows + (size_t)i * n_vocab, n_vocab, request->prompt[i + 1], 0, &result, &error))
            logprobs[i + 1] = result.logprob;
        else
            *failure = error.code;
    return which == LOGITS_ALL ? rows + (size_t)(n - 1) * n_vocab : rows;
}

static void answer_choice(SimAnswers *answers, const Request *request, uint32_t choice, float *logprobs,
                          SimAnswer *answer)
{
    Engine *engine = answers->engine;
    SeqId seq;
    Sampler *sampler;
    Error error;
    SampleResult sample;
    if (!engine_seq_new(engine, request->policy, &seq, &error) || !sampler_new(answers->space, &sampler, &error) ||
        !sampler_reset(sampler, &request->sampling, choice, request->prompt, request->n_prompt, &error))
        abort();
    float *row = read_prompt(answers, request, seq, logprobs, &answer->failure);
    while (!answer->failure && answer->n[choice] < SIM_MAX_ANSWER) {
        if (!sampler_pick(sampler, row, false, 0, &sample, &error)) {
            answer->failure = error.code;
            break;
        }
        answer->ids[choice][answer->n[choice]++] = sample.id;
        if (tok_is_end(engine_tokenizer(engine), sample.id)) break;
        row = forward(engine, seq, &sample.id, 1, LOGITS_LAST, ROWS_DECODE);
    }
    sampler_free(sampler);
    engine_seq_close(engine, seq);
}

const SimAnswer *sim_answer(SimAnswers *answers, const SimQuestion *question)
{
    bool is_many = question->n_choices > 1;
    SimAnswer *answer =
        &answers->answers[question->prompt][question->policy][question->seed][question->tells_prompt][is_many];
    if (answer->is_known) return answer;
    Request *request = sim_request(answers, question, 1, SIM_MAX_ANSWER);
    for (uint32_t choice = 0; choice < (is_many ? SIM_MAX_CHOICES : 1); choice++)
        answer_choice(answers, request, choice, answers->logprobs[question->prompt][question->policy], answer);
    request_free(request);
    answer->is_known = true;
    return answer;
}

const float *sim_prompt_logprobs(SimAnswers *answers, const SimQuestion *question)
{
    (void)sim_answer(answers, question);
    return answers->logprobs[question->prompt][question->policy];
}
