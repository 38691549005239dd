/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between loop and engine thread (scheduler/worker.c), written down as a machine of two threads whose
 * steps are single operations on what they share, and explored through every interleaving: submits, cancels that race
 * with the end, a session whose disk works on a third thread, a deadline that may pass at any time, full event queues,
 * sleep and wake on both sides, stop at any time. In no reachable state is a command
 * or event lost, is there more than one last event, or one behind it; and where nothing can move any more, everything
 * is answered. A plain program; ends with 'N passed, N failed'.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 2, MAX_COMMANDS = 3 * MAX_REQUESTS + 2, MAX_EVENTS = 4, N_TOKENS = 1 };

typedef enum { CMD_SUBMIT = 1, CMD_CANCEL = 5, CMD_STOP = 9, CMD_SESSION = 10 } CommandCode; /* + request */
typedef enum { EV_STARTED = 1, EV_TOKEN = 5, EV_DONE = 9, EV_FAILED = 13, EV_STOPPED = 17, EV_SESSION = 21 } EventCode;

/* In the scheduler. */
typedef enum { AT_NONE, AT_WAITING, AT_RUNNING, AT_CLOSING } At;

/* Of the one call; at the disk it is until the engine finds the work done. */
typedef enum { CALL_NONE, CALL_QUEUED, CALL_AT_DISK, CALL_OVER } Call;
typedef enum { DISK_IDLE, DISK_WORKS, DISK_IS_DONE } Disk; /* done: the engine is to be woken */

typedef enum {
    E_TAKE,  /* pop a command, or go on when there is none */
    E_ADMIT, /* what waits runs, and says so */
    E_FLUSH, /* before it computes: one event at a time */
    E_COMPUTE,
    E_SETTLE,   /* events again */
    E_SESSION,  /* a slice of its work, or its event */
    E_WAKE,     /* the loop, if anything was pushed */
    E_ANNOUNCE, /* that it waits for room */
    E_SLEEP,
    E_LAST, /* after stop: what goes out goes out */
    E_LAST_WAKE,
    E_GONE
} EnginePc;

typedef enum {
    L_IDLE,
    L_SEND,  /* pushed: the engine is to be woken */
    L_DRAIN, /* polls until there is nothing */
    L_SEEN,  /* popped an event: was the engine waiting for the room? */
    L_WAKE,  /* it was, and is to be woken */
    L_JOIN,  /* stop was sent */
    L_REST,  /* the thread is gone: polls the rest */
    L_OVER
} LoopPc;

typedef struct State {
    uint8_t engine, loop;
    uint8_t n_commands, commands[MAX_COMMANDS];
    uint8_t n_events, events[MAX_EVENTS];
    uint8_t at[MAX_REQUESTS], n_left[MAX_REQUESTS]; /* tokens to come */
    uint8_t n_pending[MAX_REQUESTS], pending[MAX_REQUESTS][4];
    uint8_t submitted, cancelled, over; /* bits of requests, as the loop sees them */
    bool has_stopped, stop_is_sent, says_stopped, stopped_is_out, saw_stopped;
    bool is_stalled, is_woken, is_async; /* shared */
    bool has_pushed, announced, refused, worked;
    uint8_t call, disk;
    bool session_is_sent, session_is_over; /* as the loop sees it */
    bool session_is_stalled, time_is_over; /* of request 0 */
} State;

typedef struct Machine {
    uint8_t n_requests, event_room;
    bool has_session, has_deadline;
    State *states; /* every state once */
    uint64_t n_states, max_states, *table;
    const char *wrong;
} Machine;

/* ---- the engine ---- */

static void post(State *s, int request, int code)
{
    s->pending[request][s->n_pending[request]++] = (uint8_t)(code + request);
}

static void fail(State *s, int request)
{
    if (s->at[request] != AT_WAITING && s->at[request] != AT_RUNNING) return;
    s->at[request] = AT_CLOSING;
    post(s, request, EV_FAILED);
}

static bool push_event(const Machine *m, State *s, uint8_t code)
{
    if (s->n_events == m->event_room) return false;
    s->events[s->n_events++] = code;
    s->has_pushed = true;
    return true;
}

/* One event goes out, or is refused; false: there is none. */
static bool flush_one(const Machine *m, State *s)
{
    for (int r = 0; r < m->n_requests && !s->refused; r++) {
        if (!s->n_pending[r]) continue;
        if (!push_event(m, s, s->pending[r][0])) {
            s->refused = true;
            return true;
        }
        s->n_pending[r]--;
        memmove(s->pending[r], s->pending[r] + 1, sizeof s->pending[r] - 1);
        s->pending[r][s->n_pending[r]] = 0;
        if (s->at[r] == AT_CLOSING && !s->n_pending[r]) s->at[r] = AT_NONE;
        return true;
    }
    if (s->says_stopped && !s->stopped_is_out && !s->refused) {
        if (push_event(m, s, EV_STOPPED))
            s->stopped_is_out = true;
        else
            s->refused = true;
        return true;
    }
    return false;
}

/* The event of a call that is over; false: there is no room. */
static bool end_session(const Machine *m, State *s)
{
    if (!push_event(m, s, EV_SESSION)) return false;
    s->call = CALL_NONE;
    return true;
}

static void work_on_session(const Machine *m, State *s)
{
    if (s->call == CALL_QUEUED) {
        s->call = CALL_AT_DISK;
        s->disk = DISK_WORKS;
    } else if (s->call == CALL_AT_DISK && s->disk != DISK_WORKS) {
        s->call = CALL_OVER;
    }
    s->session_is_stalled = s->call == CALL_OVER && !end_session(m, s);
}

/* Once nothing but the end is left: its event goes first. false: all is out, or there is no room. */
static bool flush_last(const Machine *m, State *s)
{
    if (s->call == CALL_NONE) return flush_one(m, s);
    s->call = CALL_OVER; /* cancelled; the disk may be at work for a while */
    return end_session(m, s);
}

static void compute(const Machine *m, State *s)
{
    for (int r = 0; r < m->n_requests; r++) {
        if (s->at[r] != AT_RUNNING || s->n_pending[r]) continue;
        s->worked = true;
        post(s, r, EV_TOKEN);
        if (--s->n_left[r]) continue;
        post(s, r, EV_DONE);
        s->at[r] = AT_CLOSING;
    }
}

static bool has_work(const Machine *m, const State *s)
{
    for (int r = 0; r < m->n_requests; r++)
        if (s->at[r] == AT_WAITING || s->at[r] == AT_RUNNING) return true;
    return false;
}

static void take_command(const Machine *m, State *s)
{
    if (!s->n_commands) {
        s->engine = E_ADMIT;
        return;
    }
    uint8_t code = s->commands[0];
    memmove(s->commands, s->commands + 1, sizeof s->commands - 1);
    s->commands[--s->n_commands] = 0;
    if (code == CMD_SESSION) {
        s->call = CALL_QUEUED;
    } else if (code == CMD_STOP) {
        for (int r = 0; r < m->n_requests; r++) fail(s, r);
        s->says_stopped = true;
        s->refused = false;
        s->engine = E_LAST;
    } else if (code >= CMD_CANCEL) {
        fail(s, code - CMD_CANCEL);
    } else {
        s->at[code - CMD_SUBMIT] = AT_WAITING;
        s->n_left[code - CMD_SUBMIT] = N_TOKENS;
    }
}

/* After the step: ready, stalled or idle. */
static void decide(const Machine *m, State *s)
{
    bool is_ready = has_work(m, s) && (!s->refused || s->worked);
    bool is_stalled = !is_ready && (s->refused || s->session_is_stalled);
    s->session_is_stalled = false;
    if (is_stalled && !s->announced) {
        s->engine = E_ANNOUNCE;
        return;
    }
    s->announced = false;
    s->engine = is_ready ? E_TAKE : E_SLEEP;
}

static bool deadline_is_due(const State *s)
{
    return s->time_is_over && (s->at[0] == AT_WAITING || s->at[0] == AT_RUNNING);
}

/* One operation; false: it cannot move. */
static bool move_engine(const Machine *m, State *s)
{
    switch ((EnginePc)s->engine) {
    case E_TAKE:
        take_command(m, s);
        return true;
    case E_ADMIT:
        if (s->time_is_over) fail(s, 0);
        for (int r = 0; r < m->n_requests; r++)
            if (s->at[r] == AT_WAITING) {
                s->at[r] = AT_RUNNING;
                post(s, r, EV_STARTED);
            }
        s->refused = s->worked = false;
        s->engine = E_FLUSH;
        return true;
    case E_FLUSH:
        if (!flush_one(m, s)) s->engine = E_COMPUTE;
        return true;
    case E_COMPUTE:
        compute(m, s);
        s->refused = false;
        s->engine = E_SETTLE;
        return true;
    case E_SETTLE:
        if (!flush_one(m, s)) s->engine = E_SESSION;
        return true;
    case E_SESSION:
        work_on_session(m, s);
        s->engine = E_WAKE;
        return true;
    case E_WAKE:
        if (s->has_pushed) s->is_async = true;
        s->has_pushed = false;
        decide(m, s);
        return true;
    case E_ANNOUNCE:
        s->is_stalled = true;
        s->announced = true;
        s->engine = E_TAKE;
        return true;
    case E_SLEEP:
        if (!s->is_woken && !deadline_is_due(s)) return false;
        s->is_woken = false;
        s->engine = E_TAKE;
        return true;
    case E_LAST:
        if (!flush_last(m, s)) s->engine = E_LAST_WAKE;
        return true;
    case E_LAST_WAKE:
        if (s->has_pushed) s->is_async = true;
        s->has_pushed = false;
        s->engine = E_GONE;
        return true;
    case E_GONE:
        return false;
    }
    return false;
}

/* ---- the disk, the clock ---- */

static bool move_disk(State *s)
{
    if (s->disk == DISK_IDLE) return false;
    if (s->disk == DISK_IS_DONE) s->is_woken = true;
    s->disk = s->disk == DISK_WORKS ? DISK_IS_DONE : DISK_IDLE;
    return true;
}

static bool move_clock(const Machine *m, State *s)
{
    if (!m->has_deadline || s->time_is_over) return false;
    s->time_is_over = true;
    return true;
}

/* ---- the loop ---- */

static const char *see_event(const Machine *m, State *s, uint8_t code)
{
    if (s->saw_stopped) return "an event behind the very last";
    if (code == EV_STOPPED) {
        s->saw_stopped = true;
        if (s->session_is_over != s->session_is_sent) return "stopped, and a session has no event";
        return s->over == s->submitted ? NULL : "stopped, and a request has no last event";
    }
    if (code == EV_SESSION) {
        if (!s->session_is_sent || s->session_is_over) return "an event of no session";
        s->session_is_over = true;
        return NULL;
    }
    uint8_t bit = (uint8_t)(1u << (code - 1) % 4);
    if ((code - 1) % 4 >= m->n_requests || !(s->submitted & bit)) return "an event of nobody";
    if (s->over & bit) return "an event behind the last one";
    if (code >= EV_DONE) s->over |= bit;
    return NULL;
}

static bool pop_event(Machine *m, State *s)
{
    if (!s->n_events) return false;
    uint8_t code = s->events[0];
    memmove(s->events, s->events + 1, sizeof s->events - 1);
    s->events[--s->n_events] = 0;
    const char *wrong = see_event(m, s, code);
    if (wrong) m->wrong = wrong;
    return true;
}

static void send(Machine *m, State *s, int code)
{
    if (s->n_commands == 3 * m->n_requests + 2) {
        m->wrong = "no room for a command";
        return;
    }
    s->commands[s->n_commands++] = (uint8_t)code;
    s->loop = L_SEND;
}

/* Which operation: those of an idle loop are its choice. false: it cannot be done. */
static bool move_idle(Machine *m, State *s, int choice)
{
    int request = choice / 2;
    uint8_t bit = (uint8_t)(1u << request);
    if (choice == 2 * m->n_requests) {
        if (!s->is_async) return false;
        s->is_async = false;
        s->loop = L_DRAIN;
    } else if (choice == 2 * m->n_requests + 1) {
        send(m, s, CMD_STOP);
        s->stop_is_sent = true;
    } else if (choice == 2 * m->n_requests + 2) {
        if (!m->has_session || s->session_is_sent) return false;
        s->session_is_sent = true;
        send(m, s, CMD_SESSION);
    } else if (choice % 2 == 0) {
        if (s->submitted & bit) return false;
        s->submitted |= bit;
        send(m, s, CMD_SUBMIT + request);
    } else {
        if (!(s->submitted & bit) || (s->over | s->cancelled) & bit) return false;
        s->cancelled |= bit;
        send(m, s, CMD_CANCEL + request);
    }
    return true;
}

static bool move_loop(Machine *m, State *s, int choice)
{
    if (s->loop == L_IDLE) return move_idle(m, s, choice);
    if (choice > 0) return false;
    switch ((LoopPc)s->loop) {
    case L_SEND:
        s->is_woken = true;
        s->loop = s->stop_is_sent ? L_JOIN : L_IDLE;
        return true;
    case L_DRAIN:
        s->loop = pop_event(m, s) ? L_SEEN : L_IDLE;
        return true;
    case L_SEEN:
        s->loop = s->is_stalled ? L_WAKE : L_DRAIN;
        s->is_stalled = false;
        return true;
    case L_WAKE:
        s->is_woken = true;
        s->loop = L_DRAIN;
        return true;
    case L_JOIN:
        if (s->engine != E_GONE) return false;
        s->loop = L_REST;
        return true;
    case L_REST:
        if (pop_event(m, s)) return true;
        s->refused = false;
        while (flush_last(m, s) && !s->refused) continue;
        if (!s->n_events) s->loop = L_OVER;
        return true;
    default:
        return false;
    }
}

/* ---- all states ---- */

static uint64_t hash_of(const State *s)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *s; i++) hash = (hash ^ ((const uint8_t *)s)[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

static void add_state(Machine *m, const State *s)
{
    uint64_t mask = m->max_states * 2 - 1, at = hash_of(s) & mask;
    for (; m->table[at]; at = (at + 1) & mask)
        if (!memcmp(&m->states[m->table[at] - 1], s, sizeof *s)) return;
    if (m->n_states == m->max_states) {
        m->wrong = "more states than there is room for";
        return;
    }
    m->states[m->n_states] = *s;
    m->table[at] = ++m->n_states;
}

/* Where nothing moves: either all is over, or the loop has nothing to do and everything is answered. */
static const char *check_end(const State *s)
{
    if (s->loop == L_OVER) return s->saw_stopped ? NULL : "stopped without saying so";
    if (s->loop != L_IDLE || s->engine != E_SLEEP) return "nobody can move";
    if (s->n_commands || s->n_events) return "a message lies there and nobody looks";
    if (s->session_is_over != s->session_is_sent) return "a session has no event";
    return s->over == s->submitted ? NULL : "a request has no last event";
}

static void explore(Machine *m, const State *from)
{
    bool moves = false;
    State next = *from;
    if (move_engine(m, &next)) {
        moves = true;
        add_state(m, &next);
    }
    next = *from;
    if (move_disk(&next)) {
        moves = true;
        add_state(m, &next);
    }
    next = *from;
    if (move_clock(m, &next)) {
        moves = true;
        add_state(m, &next);
    }
    for (int choice = 0; choice < 2 * m->n_requests + 3; choice++) {
        next = *from;
        if (!move_loop(m, &next, choice)) continue;
        /* The loop need not do anything: only what it has to is a move. */
        moves |= from->loop != L_IDLE || choice == 2 * m->n_requests;
        add_state(m, &next);
    }
    if (!moves && !m->wrong) m->wrong = check_end(from);
}

static bool check_machine(Machine m)
{
    m.max_states = 1u << 22;
    m.states = calloc(m.max_states, sizeof *m.states);
    m.table = calloc(m.max_states * 2, sizeof *m.table);
    if (!m.states || !m.table) abort();
    add_state(&m, &(State){0});
    for (uint64_t i = 0; i < m.n_states && !m.wrong; i++) explore(&m, &m.states[i]);
    printf("%u requests%s%s, room for %u events: %llu states%s%s\n", m.n_requests, m.has_session ? ", a session" : "",
           m.has_deadline ? ", a deadline" : "", m.event_room, (unsigned long long)m.n_states,
           m.wrong ? ", WRONG: " : "", m.wrong ? m.wrong : "");
    free(m.states);
    free(m.table);
    return !m.wrong;
}

int main(void)
{
    uint32_t n_passed = 0, n_failed = 0;
    for (uint8_t n = 1; n <= MAX_REQUESTS; n++)
        for (uint8_t room = 1; room <= MAX_EVENTS; room *= 2)
            for (int with = 0; with < (n == MAX_REQUESTS ? 3 : 4); with++) { /* both at once would be too many states */
                Machine m = {.n_requests = n, .event_room = room, .has_session = with & 1, .has_deadline = with & 2};
                *(check_machine(m) ? &n_passed : &n_failed) += 1;
            }
    printf("protocol_model: %u passed, %u failed\n", n_passed, n_failed);
    return n_failed != 0;
}
