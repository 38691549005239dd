/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/sets.h"

void sets_init(Sets *sets, const GrammarBuilder *builder, Arena *arena, Error *error)
{
    *sets = (Sets){.arena = arena, .builder = builder, .error = error};
}

bool sets_in_time(const Sets *sets)
{
    return grammar_in_time(sets->builder, sets->error);
}

static bool made(const Sets *sets, const Dfa **kept, bool (*make)(Arena *arena, const Dfa **ret_dfa, Error *error),
                 const Dfa **ret_dfa)
{
    if (!*kept && !make(sets->arena, kept, sets->error)) return false;
    *ret_dfa = *kept;
    return true;
}

bool sets_all_numbers(Sets *sets, const Dfa **ret_dfa)
{
    return made(sets, &sets->all_numbers, number_all, ret_dfa);
}

bool sets_integers(Sets *sets, const Dfa **ret_dfa)
{
    return made(sets, &sets->integers, number_integers, ret_dfa);
}

bool sets_all_strings(Sets *sets, const Dfa **ret_dfa)
{
    return made(sets, &sets->all_strings, dfa_any, ret_dfa);
}

static bool is_same(NumberLimit a, NumberLimit b)
{
    return a.value == b.value && a.is_maximum == b.is_maximum && a.is_exclusive == b.is_exclusive;
}

static bool known_numbers(Sets *sets, NumberLimit limit, bool is_factor, const Dfa **ret_dfa)
{
    KnownNumbers *known = sets->known;
    while (known && (known->is_factor != is_factor || !is_same(known->limit, limit))) known = known->next;
    if (!known) {
        known = arena_alloc(sets->arena, sizeof *known);
        if (!known) return error_set(sets->error, ERR_NO_MEMORY, "no memory for a set of numbers");
        *known = (KnownNumbers){.limit = limit, .is_factor = is_factor, .next = sets->known};
        if (!(is_factor ? number_multiples(limit.value, sets->arena, &known->dfa, sets->error)
                        : number_within(limit, sets->arena, &known->dfa, sets->error)))
            return false;
        sets->known = known;
    }
    *ret_dfa = known->dfa;
    return true;
}

bool sets_within(Sets *sets, NumberLimit limit, const Dfa **ret_dfa)
{
    return known_numbers(sets, limit, false, ret_dfa);
}

bool sets_multiples(Sets *sets, double factor, const Dfa **ret_dfa)
{
    return known_numbers(sets, (NumberLimit){.value = factor}, true, ret_dfa);
}

/* ---- cutting ---- */

static bool cut(Sets *sets, const Dfa **dfa, const Dfa *with)
{
    const Dfa *a = *dfa, *both;
    if (!a || !with) {
        *dfa = a ? a : with;
        return true;
    }
    if (a == with) return true;
    uint64_t hash = ((uint64_t)(uintptr_t)a ^ (uint64_t)(uintptr_t)with << 20) * 0x9E3779B97F4A7C15u;
    uint32_t slot = (uint32_t)(hash >> 40) % SETS_CUT_SLOTS;
    if (sets->cuts[slot].a != a || sets->cuts[slot].b != with) {
        if (!sets_in_time(sets) || !dfa_combine(a, with, DFA_AND, sets->arena, &both, sets->error) ||
            !dfa_minimize(both, sets->arena, &both, sets->error))
            return false;
        sets->cuts[slot].a = a;
        sets->cuts[slot].b = with;
        sets->cuts[slot].both = both;
    }
    *dfa = sets->cuts[slot].both;
    return true;
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

static bool has_fraction(const Dfa *numbers)
{
    for (uint32_t i = 0; numbers->n_states && i < numbers->begin[numbers->n_states]; i++)
        if (numbers->edges[i].first == '.') return true;
    return false;
}

bool sets_written(Sets *sets, const Dfa *numbers, const Dfa **ret_texts)
{
    const Dfa *plain = numbers, *way;
    bool are_few;
    if (!made(sets, &sets->plain_numbers, number_plain, &way) || !cut(sets, &plain, way) ||
        !dfa_is_finite(plain, sets->arena, &are_few, sets->error))
        return false;
    *ret_texts = plain;
    if (are_few) return true;
    const Dfa *texts = has_fraction(plain) ? numbers : plain;
    *ret_texts = texts;
    if (!made(sets, &sets->short_numbers, number_short, &way) || !cut(sets, ret_texts, way)) return false;
    return !dfa_is_empty(*ret_texts) || sets_words(sets, (Strings){texts, 0, NUMBER_MAX_WRITTEN}, ret_texts);
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
