/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/answer_probe.h"
#include "engine/eval/calibrate_impl.h"

#include <math.h>

/* One prompt whose questions are open. */
typedef struct Ranking {
    Calibrate *calibrate;
    AnswerProbe *probe;
    double dense_nll;
    uint32_t prompt;
} Ranking;

static double *loss_of(const Ranking *ranking, uint32_t head)
{
    const Calibration *found = &ranking->calibrate->found;
    return &found->losses[(size_t)head * found->n_prompts + ranking->prompt];
}

static bool measure_head(Ranking *ranking, uint32_t head, Error *error)
{
    const CalibrateParams *p = &ranking->calibrate->params;
    Engine *engine = ranking->calibrate->engine;
    uint32_t n_kv_heads = ranking->calibrate->found.n_kv_heads, right;
    double nll;
    engine_limit_head(engine, 0, head / n_kv_heads, head % n_kv_heads, p->sink, p->recent);
    bool ok = answer_probe_run(ranking->probe, p->max_open, &nll, &right, error);
    engine_limit_head(engine, 0, 0, 0, 0, PLAN_ALL);
    if (!ok) return false;
    if (!isfinite(nll))
        return error_set(error, ERR_NON_FINITE, "the model's answers are no numbers with head %u of layer %u limited",
                         head % n_kv_heads, head / n_kv_heads);
    *loss_of(ranking, head) = nll - ranking->dense_nll;
    return true;
}

static bool measure_heads(Ranking *ranking, Error *error)
{
    Calibrate *calibrate = ranking->calibrate;
    const Calibration *found = &calibrate->found;
    uint32_t n_heads = found->n_layers * found->n_kv_heads, right;
    if (!answer_probe_run(ranking->probe, calibrate->params.max_open, &ranking->dense_nll, &right, error)) return false;
    for (uint32_t head = 0; head < n_heads; head++) {
        if (!found->is_ranked[head] || !isnan(*loss_of(ranking, head))) continue;
        if (!measure_head(ranking, head, error) || !calibrate_step(calibrate, 1, error)) return false;
    }
    return true;
}

static bool is_due(const Ranking *ranking)
{
    const Calibration *found = &ranking->calibrate->found;
    for (uint32_t head = 0; head < found->n_layers * found->n_kv_heads; head++)
        if (found->is_ranked[head] && isnan(*loss_of(ranking, head))) return true;
    return false;
}

static bool rank_prompt(Ranking *ranking, Error *error)
{
    const Calibrate *calibrate = ranking->calibrate;
    const CalibrateParams *p = &calibrate->params;
    Haystack haystack;
    const TaskInput input = {.tokenizer = engine_tokenizer(calibrate->engine),
                             .frame = &calibrate->frame,
                             .spec = &calibrate->tasks[ranking->prompt % calibrate->n_tasks],
                             .seed = p->seed,
                             .n_tokens = p->length,
                             .n_questions = p->per_haystack,
                             .haystack = ranking->prompt / calibrate->n_tasks};
    if (!task_make(&input, &haystack, error)) return false;
    bool ok = answer_probe_new(calibrate->engine, 0, &haystack, &ranking->probe, error);
    if (ok) {
        ok = measure_heads(ranking, error);
        answer_probe_free(ranking->probe);
    }
    haystack_done(&haystack);
    return ok;
}

bool calibrate_rank(Calibrate *calibrate, Error *error)
{
    Ranking ranking = {.calibrate = calibrate};
    for (; ranking.prompt < calibrate->found.n_prompts; ranking.prompt++)
        if (is_due(&ranking) && !rank_prompt(&ranking, error)) return false;
    return true;
}
