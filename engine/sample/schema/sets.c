/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/sets.h"
#include "engine/sample/schema/number.h"

#include <time.h>

/* Of this thread: a busy machine refuses no schema. */
static uint64_t cpu_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void sets_init(Sets *sets, Arena *arena, Error *error)
{
    *sets = (Sets){.arena = arena, .deadline_cpu_usec = cpu_usec() + SETS_MAX_CPU_USEC, .error = error};
}

bool sets_in_time(const Sets *sets)
{
    return cpu_usec() <= sets->deadline_cpu_usec ||
           error_set(sets->error, ERR_TOO_LARGE, "the schema takes more than %d s", SETS_MAX_CPU_USEC / 1000000);
}

bool sets_all_numbers(Sets *sets, const Dfa **ret_dfa)
{
    if (!sets->all_numbers && !number_all(sets->arena, &sets->all_numbers, sets->error)) return false;
    *ret_dfa = sets->all_numbers;
    return true;
}

bool sets_integers(Sets *sets, const Dfa **ret_dfa)
{
    if (!sets->integers && !number_integers(sets->arena, &sets->integers, sets->error)) return false;
    *ret_dfa = sets->integers;
    return true;
}

bool sets_all_strings(Sets *sets, const Dfa **ret_dfa)
{
    if (!sets->all_strings && !dfa_any(sets->arena, &sets->all_strings, sets->error)) return false;
    *ret_dfa = sets->all_strings;
    return true;
}

/* ---- cutting ---- */

static bool cut(Sets *sets, const Dfa **dfa, const Dfa *with)
{
    const Dfa *both;
    if (!*dfa || !with) {
        *dfa = *dfa ? *dfa : with;
        return true;
    }
    if (*dfa == with) return true;
    return sets_in_time(sets) && dfa_combine(*dfa, with, DFA_AND, sets->arena, &both, sets->error) &&
           dfa_minimize(both, sets->arena, dfa, sets->error);
}

bool sets_cut_numbers(Sets *sets, Numbers *numbers, const Dfa *with)
{
    return cut(sets, numbers, with);
}

bool sets_cut_words(Sets *sets, Strings *strings, const Dfa *with)
{
    return cut(sets, &strings->words, with);
}

void sets_cut_length(Strings *strings, uint32_t min, uint32_t max)
{
    if (strings->min < min) strings->min = min;
    if (strings->max > max) strings->max = max;
}

bool sets_words(Sets *sets, Strings strings, const Dfa **ret_dfa)
{
    const Dfa *lengths, *words = strings.words;
    if (strings.min || strings.max != UINT32_MAX) {
        if (strings.min > DFA_MAX_STATES || (strings.max != UINT32_MAX && strings.max > DFA_MAX_STATES))
            return error_set(sets->error, ERR_TOO_LARGE, "a length of more than %d characters here", DFA_MAX_STATES);
        if (!dfa_lengths(strings.min, strings.max, sets->arena, &lengths, sets->error) || !cut(sets, &words, lengths))
            return false;
    }
    return words ? (*ret_dfa = words, true) : sets_all_strings(sets, ret_dfa);
}

bool sets_are_empty(Strings strings)
{
    return strings.min > strings.max || (strings.words && dfa_is_empty(strings.words));
}

/* ---- scalars ---- */

/* NULL is all: kind tells which all that is. */
static bool combine(Sets *sets, Kind kind, DfaOp op, const Dfa *a, const Dfa *b, const Dfa **ret_dfa)
{
    const Dfa *all, *both;
    bool ok = kind == KIND_NUMBER ? sets_all_numbers(sets, &all) : sets_all_strings(sets, &all);
    if (!ok || !sets_in_time(sets)) return false;
    return dfa_combine(a ? a : all, b ? b : all, op, sets->arena, &both, sets->error) &&
           dfa_minimize(both, sets->arena, ret_dfa, sets->error);
}

static const Dfa **part_of(Scalars *scalars, Kind kind)
{
    return kind == KIND_NUMBER ? &scalars->numbers : &scalars->strings;
}

static const Kind regular[] = {KIND_NUMBER, KIND_STRING};

static bool drop_empty(Scalars *scalars, Kind kind)
{
    const Dfa *dfa = *part_of(scalars, kind);
    if (dfa && dfa_is_empty(dfa)) scalars->kinds &= ~(uint32_t)kind;
    return true;
}

bool scalars_join(Sets *sets, Scalars a, Scalars b, Scalars *ret_scalars)
{
    Scalars joined = a;
    joined.kinds |= b.kinds;
    for (int i = 0; i < 2; i++) {
        Kind kind = regular[i];
        const Dfa **to = part_of(&joined, kind), *from = *part_of(&b, kind);
        if (!(b.kinds & kind)) continue;
        if (!(a.kinds & kind) || !from)
            *to = from;
        else if (*to && !combine(sets, kind, DFA_OR, *to, from, to))
            return false;
    }
    *ret_scalars = joined;
    return true;
}

bool scalars_subtract(Sets *sets, Scalars a, Scalars b, Scalars *ret_scalars)
{
    uint32_t both = a.kinds & b.kinds;
    a.kinds &= ~(both & (KIND_NULL | KIND_FALSE | KIND_TRUE));
    for (int i = 0; i < 2; i++) {
        Kind kind = regular[i];
        const Dfa **from = part_of(&a, kind), *away = *part_of(&b, kind);
        if (!(both & kind)) continue;
        if (!away)
            a.kinds &= ~(uint32_t)kind;
        else if (!(combine(sets, kind, DFA_MINUS, *from, away, from) && drop_empty(&a, kind)))
            return false;
    }
    *ret_scalars = a;
    return true;
}
