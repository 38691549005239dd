/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numbers.h"
#include "scheduler/sched_impl.h"

enum {
    MIN_ROWS = 16,    /* of a work item, when a whole layer would take too long */
    FILL_ROWS = 32,   /* of one that fills what the first left of the time */
    LEARN_ROWS = 256, /* of the very first one, whose cost nobody knows */
    DEBT_SHARE = 8,   /* who came first gets at least one part in so many of the time of prefill */
    STALL_SHARE = 8,  /* an item takes at least one part in so many of max_stall: prefill never stands still */
};

/* ---- which ---- */

static bool needs_prefill(const Sched *sched, const Sequence *sequence)
{
    if (sequence->in_pass) return true;
    return sched_may_run(sequence) && !sequence_decodes(sequence, &sched->tools);
}

static Pass *pass_of(Sched *sched, const Sequence *sequence)
{
    for (uint32_t p = 0; p < sched->n_passes; p++)
        for (uint32_t i = 0; sched->passes[p].is_open && i < sched->passes[p].n_members; i++)
            if (sched->passes[p].members[i].sequence == sequence) return &sched->passes[p];
    return NULL;
}

/* Its end posts events, so those of its sequences must be out by then. */
static bool may_end(const Pass *pass)
{
    for (uint32_t i = 0; i < pass->n_members; i++)
        if (pass->members[i].sequence && !sched_may_run(pass->members[i].sequence)) return false;
    return true;
}

static bool may_go_on(const Sched *sched, const Pass *pass)
{
    return pass->next_layer < sched->n_layers || may_end(pass);
}

/* Rows that are still to be computed, in rows of all layers. */
static double remaining_rows(Sched *sched, const Sequence *sequence)
{
    double rows = sequence_missing(sequence, &sched->tools);
    if (!sequence->in_pass) return rows;
    const Pass *pass = pass_of(sched, sequence);
    for (uint32_t i = 0; i < pass->n_members; i++)
        if (pass->members[i].sequence == sequence)
            rows -= (double)pass->members[i].n_rows * pass->next_layer / sched->n_layers;
    return rows;
}

static Pass *free_pass(Sched *sched)
{
    for (uint32_t p = 0; p < sched->n_passes; p++)
        if (!sched->passes[p].is_open) return &sched->passes[p];
    return NULL;
}

/* Can something be done for it now? Without a free pass only for those that are in one. */
static bool is_candidate(Sched *sched, const Sequence *sequence)
{
    if (!needs_prefill(sched, sequence)) return false;
    if (sequence->in_pass) return may_go_on(sched, pass_of(sched, sequence));
    return free_pass(sched) != NULL;
}

/*
 * Of the highest priority the shortest remainder first, so that a short prompt need not wait for long ones; but the one
 * that came first is owed a share of the time that others got, so that a long one is not overtaken for ever.
 */
static Sequence *choose(Sched *sched, const Sequence **ret_first)
{
    Sequence *best = NULL, *first = NULL;
    double best_rows = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        Sequence *sequence = sched->running[i];
        if (!is_candidate(sched, sequence)) continue;
        double rows = remaining_rows(sched, sequence);
        if (!first || sequence->job->order < first->job->order) first = sequence;
        if (best && (sequence->job->priority > best->job->priority || rows >= best_rows)) continue;
        best = sequence;
        best_rows = rows;
    }
    *ret_first = first;
    return sched->debt_usec * 2 >= sched->params.max_stall_usec ? first : best;
}

/* ---- begin ---- */

static bool add_member(Sched *sched, Pass *pass, Sequence *sequence, BatchSpan span)
{
    uint32_t n_logit_rows = 0;
    for (uint32_t i = 0; i < sched->build.batch.n_spans; i++) {
        const BatchSpan *before = &sched->build.batch.spans[i];
        n_logit_rows += before->logits == LOGITS_ALL ? before->n_rows : before->logits == LOGITS_LAST;
    }
    uint32_t more = span.logits == LOGITS_ALL ? span.n_rows : span.logits == LOGITS_LAST;
    if (n_logit_rows + more > engine_max_logit_rows(sched->params.engine)) return false;
    if (!batch_build_add(&sched->build, &span, &sequence->tokens[span.first_pos])) return false;
    pass->members[pass->n_members++] = (PassMember){.sequence = sequence,
                                                    .first_row = sched->build.batch.n_rows - span.n_rows,
                                                    .n_rows = span.n_rows,
                                                    .first_pos = span.first_pos,
                                                    .first_logit_row = n_logit_rows,
                                                    .in_blocks = sequence_goes_in_blocks(sequence, &sched->tools)};
    pass->goes_apart |=
        span.kind == ROWS_DECODE && span.n_rows > 1 && sequence_goes_row_by_row(sequence, &sched->tools);
    uint32_t depth = span.first_pos + span.n_rows - 1;
    if (depth > pass->depth) pass->depth = depth;
    sequence->in_pass = true;
    return true;
}

/*
 * Who needs no more than what is left of the chunk comes along, but only beside others that end in this pass too: the
 * last rows of a short prompt must not wait for rows of a long one.
 */
static void add_partners(Sched *sched, Pass *pass)
{
    for (uint32_t i = 0; i < sched->n_running; i++) {
        Sequence *sequence = sched->running[i];
        /* A block of 64 rows that goes together may be more than a chunk. */
        if (sched->build.batch.n_rows >= sched->params.prefill_chunk) return;
        uint32_t room = sched->params.prefill_chunk - sched->build.batch.n_rows;
        if (sequence->in_pass || !needs_prefill(sched, sequence)) continue;
        if (sequence_must_restore(sequence, &sched->tools) || sequence_missing(sequence, &sched->tools) > room)
            continue;
        Error ignored;
        BatchSpan span = sequence_span(sequence, &sched->tools, room);
        if (!engine_seq_reserve(sched->params.engine, sequence->seq, span.n_rows, &ignored)) continue;
        if (!add_member(sched, pass, sequence, span)) return;
    }
}

static void fail_members(Sched *sched, Pass *pass, const Error *error)
{
    pass->is_open = false;
    for (uint32_t i = 0; i < pass->n_members; i++) {
        Sequence *sequence = pass->members[i].sequence;
        if (sequence && sequence->state == SEQUENCE_RUNNING) sched_fail(sched, sequence->job, error);
    }
}

/* NULL: the sequence has to wait, has failed, or has its pages back: *ret_restored. */
static Pass *begin_pass(Sched *sched, Sequence *sequence, bool *ret_restored)
{
    Error error;
    PageTake taken = TAKE_DONE;
    BatchSpan span = {0};
    if (sequence_must_restore(sequence, &sched->tools)) {
        taken = pressure_restore(sched, sequence, &error);
        *ret_restored = taken == TAKE_DONE;
        if (taken == TAKE_DONE) return NULL; /* it may decode by now */
    } else {
        span = sequence_span(sequence, &sched->tools, sched->params.prefill_chunk);
        taken = pressure_reserve(sched, sequence, span.n_rows, &error);
    }
    if (taken == TAKE_FAILED) sched_fail(sched, sequence->job, &error);
    if (taken != TAKE_DONE) return NULL;
    Pass *pass = free_pass(sched);
    pass->n_members = pass->depth = pass->next_layer = pass->next_row = 0;
    pass->row_layer = (Estimate){0};
    pass->goes_apart = false;
    pass->last_row_layer = 0;
    pass->known_depth = 0;
    batch_build_clear(&sched->build);
    if (!add_member(sched, pass, sequence, span)) return NULL;
    if (span.n_rows == sequence_missing(sequence, &sched->tools)) add_partners(sched, pass);
    pass->n_rows = sched->build.batch.n_rows;
    if (!engine_pass_begin(sched->params.engine, &sched->build.batch, &pass->id, &error)) {
        fail_members(sched, pass, &error);
        return NULL;
    }
    pass->is_open = true;
    return pass;
}

/* ---- run ---- */

/* The next row from 'row' on at which a piece may end; down: the last one up to it. */
static uint32_t find_cut(const Pass *pass, uint32_t row, bool down)
{
    for (uint32_t i = 0; i < pass->n_members; i++) {
        const PassMember *member = &pass->members[i];
        if (!member->in_blocks || row <= member->first_row || row >= member->first_row + member->n_rows) continue;
        uint32_t over = (member->first_pos + row - member->first_row) % KV_PAGE_TOKENS;
        if (over == 0) return row;
        uint32_t before = row - over, after = row + KV_PAGE_TOKENS - over, end = member->first_row + member->n_rows;
        if (!down) return after < end ? after : end;
        return over < row && before > member->first_row ? before : member->first_row;
    }
    return row;
}

/* The largest position of rows [first, end). */
static uint32_t deepest_of(const Pass *pass, uint32_t first, uint32_t end)
{
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < pass->n_members; i++) {
        const PassMember *member = &pass->members[i];
        uint32_t last = min_u32(end, member->first_row + member->n_rows);
        if (last <= first || last <= member->first_row) continue;
        uint32_t position = member->first_pos + (last - 1 - member->first_row);
        if (position > deepest) deepest = position;
    }
    return deepest;
}

/* Usec per row and layer, by other passes; 0: they tell nothing. */
static double guess_cost(const Sched *sched, const Pass *pass, uint32_t depth)
{
    return pass->goes_apart ? 0 : cost_guess(&sched->cost, pass->n_rows, depth);
}

/*
 * How many rows of the next layer take so long. The pass itself knows best what all its rows cost. Those of a piece may
 * look back further than most: what was learnt at its depth counts too, and where the pass has not been yet, it costs
 * more by at most the ratio of the depths.
 */
static double rows_within(const Sched *sched, const Pass *pass, double usec)
{
    const uint32_t left = pass->n_rows - pass->next_row;
    double cost = estimate_high(&pass->row_layer);
    if (cost == 0) {
        double guess = guess_cost(sched, pass, pass->depth);
        return guess > 0 ? usec / guess : min_u32(pass->n_rows, LEARN_ROWS); /* one layer, to learn */
    }
    if (cost < pass->last_row_layer) cost = pass->last_row_layer;
    if (usec / cost >= left && pass->next_row == 0 && pass->known_depth == pass->depth) return usec / cost;
    uint32_t n = usec / cost < left ? (uint32_t)(usec / cost) : left;
    if (n == 0) return 0;
    uint32_t deepest = deepest_of(pass, pass->next_row, pass->next_row + n);
    double guess = guess_cost(sched, pass, deepest);
    double most = deepest > pass->known_depth ? cost * (deepest + 1.0) / (pass->known_depth + 1.0) : cost;
    return usec / (guess > most ? guess : most);
}

/* What fits the budget; the first of a step is never nothing, a further one is worth its while or has no rows. */
static WorkItem next_item(const Sched *sched, const Pass *pass, double budget_usec, bool is_first)
{
    WorkItem item = {.pass = pass->id,
                     .first_layer = pass->next_layer,
                     .n_layers = 1,
                     .first_row = pass->next_row,
                     .n_rows = pass->n_rows - pass->next_row};
    double least = (double)sched->params.max_stall_usec / STALL_SHARE;
    if (is_first && budget_usec < least) budget_usec = least;
    double rows = rows_within(sched, pass, budget_usec);
    if (rows < item.n_rows) {
        uint32_t n = (uint32_t)rows / MIN_ROWS * MIN_ROWS;
        if (is_first && n < MIN_ROWS) n = MIN_ROWS;
        if (!is_first && n < FILL_ROWS) n = 0;
        if (n > 0 && n < item.n_rows) {
            uint32_t end = find_cut(pass, item.first_row + n, true);
            if (end <= item.first_row) end = is_first ? find_cut(pass, item.first_row + n, false) : item.first_row;
            n = end - item.first_row;
        }
        if (n < item.n_rows) item.n_rows = n;
    } else if (item.first_row == 0) {
        double layers = rows / item.n_rows;
        uint32_t left = sched->n_layers - item.first_layer;
        item.n_layers = layers < left ? (uint32_t)layers : left;
    }
    return item;
}

static bool run_item(Sched *sched, Pass *pass, const WorkItem *item, Error *error)
{
    uint64_t begin_usec = sched->params.clock_usec();
    if (!engine_pass_run(sched->params.engine, item, error)) return false;
    double usec = (double)(sched->params.clock_usec() - begin_usec);
    double row_layer = usec / ((double)item->n_rows * item->n_layers);
    estimate_learn(&pass->row_layer, row_layer);
    pass->last_row_layer = row_layer;
    uint32_t deepest = deepest_of(pass, item->first_row, item->first_row + item->n_rows);
    if (deepest > pass->known_depth) pass->known_depth = deepest;
    if (!pass->goes_apart) cost_learn(&sched->cost, pass->n_rows, deepest, row_layer);
    pass->next_row = item->first_row + item->n_rows;
    if (pass->next_row < pass->n_rows) return true;
    pass->next_row = 0;
    pass->next_layer += item->n_layers;
    return true;
}

static void end_pass(Sched *sched, Pass *pass)
{
    Error error;
    float *logits = NULL;
    uint64_t begin_usec = sched->params.clock_usec();
    if (!engine_pass_end(sched->params.engine, pass->id, &logits, &error)) {
        engine_pass_drop(sched->params.engine, pass->id);
        fail_members(sched, pass, &error);
        return;
    }
    pass->is_open = false;
    sched->stats.prefill_rows += pass->n_rows;
    for (uint32_t i = 0; i < pass->n_members; i++)
        if (pass->members[i].sequence) pass->members[i].sequence->in_pass = false;
    uint32_t n_vocab = tok_n_vocab(sched->tools.tokenizer);
    for (uint32_t i = 0; i < pass->n_members; i++) {
        const PassMember *member = &pass->members[i];
        if (member->sequence && member->sequence->state == SEQUENCE_RUNNING)
            sched_advance(sched, member->sequence, member->n_rows,
                          logits ? logits + (size_t)member->first_logit_row * n_vocab : NULL);
    }
    estimate_learn(&sched->end_usec, (double)(sched->params.clock_usec() - begin_usec));
}

static double time_left(const Sched *sched, uint64_t until_usec)
{
    uint64_t now = sched->params.clock_usec();
    return until_usec > now ? (double)(until_usec - now) : 0;
}

/* False: there was nothing that it could do. */
static bool continue_pass(Sched *sched, Pass *pass, uint64_t until_usec)
{
    Error error;
    bool has_run = false;
    if (pass->next_layer < sched->n_layers) {
        for (bool is_first = true; pass->next_layer < sched->n_layers; is_first = false) {
            WorkItem item = next_item(sched, pass, time_left(sched, until_usec), is_first);
            if (item.n_rows == 0) return has_run;
            has_run = true;
            if (run_item(sched, pass, &item, &error)) continue;
            engine_pass_drop(sched->params.engine, pass->id);
            fail_members(sched, pass, &error);
            return true;
        }
        /* The end is for the next step when this one is full. */
        if (estimate_high(&sched->end_usec) > time_left(sched, until_usec) || !may_end(pass)) return true;
    }
    end_pass(sched, pass);
    return true;
}

void prefill_step(Sched *sched, uint64_t until_usec)
{
    const Sequence *first;
    uint64_t begin_usec = sched->params.clock_usec();
    Sequence *sequence = choose(sched, &first);
    if (!sequence) return;
    bool is_first = sequence == first;
    bool has_worked = false;
    Pass *pass = sequence->in_pass ? pass_of(sched, sequence) : begin_pass(sched, sequence, &has_worked);
    if (pass) has_worked = continue_pass(sched, pass, until_usec);
    double usec = (double)(sched->params.clock_usec() - begin_usec);
    sched->debt_usec += is_first ? -usec : usec / DEBT_SHARE;
    if (sched->debt_usec < 0) sched->debt_usec = 0;
    sched->stats.prefill_steps += has_worked; /* who only gave way shows no life */
    sched->stats.prefill_usec += (uint64_t)usec;
}

/* ---- leave ---- */

void passes_forget(Sched *sched, Sequence *sequence)
{
    Pass *pass = sequence->in_pass ? pass_of(sched, sequence) : NULL;
    sequence->in_pass = false;
    if (!pass) return;
    for (uint32_t i = 0; i < pass->n_members; i++)
        if (pass->members[i].sequence == sequence) pass->members[i].sequence = NULL;
}

void passes_drop_empty(Sched *sched)
{
    for (uint32_t p = 0; p < sched->n_passes; p++) {
        Pass *pass = &sched->passes[p];
        uint32_t n = 0;
        for (uint32_t i = 0; pass->is_open && i < pass->n_members; i++) n += pass->members[i].sequence != NULL;
        if (!pass->is_open || n > 0) continue;
        engine_pass_drop(sched->params.engine, pass->id);
        pass->is_open = false;
    }
}
