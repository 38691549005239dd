/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/schema/number.h"
#include "engine/sample/schema/dfa_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value without its sign, as digits: whole has no zeros in front ("0" for none), part none at its end. */
typedef struct Digits {
    char whole[NUMBER_MAX_DIGITS + 2], part[NUMBER_MAX_DIGITS + 2];
    size_t n_whole, n_part;
} Digits;

/* ---- digits of doubles ---- */

static void shortest(double value, char *out, size_t n)
{
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, n, "%.*e", precision - 1, value);
        if (strtod(out, NULL) == value) return;
    }
}

/* From d.ddde+xx. */
static void spread(const char *text, Digits *digits)
{
    char mantissa[32];
    size_t n = 0;
    for (; *text != 'e'; text++)
        if (*text >= '0' && *text <= '9') mantissa[n++] = *text;
    long exponent = strtol(text + 1, NULL, 10);
    *digits = (Digits){0};
    for (long i = 0; i <= exponent; i++) digits->whole[digits->n_whole++] = i < (long)n ? mantissa[i] : '0';
    for (long i = exponent + 1; i < (long)n; i++) digits->part[digits->n_part++] = i < 0 ? '0' : mantissa[i];
    if (!digits->n_whole) digits->whole[digits->n_whole++] = '0';
    while (digits->n_part && digits->part[digits->n_part - 1] == '0') digits->part[--digits->n_part] = 0;
    size_t zeros = 0;
    while (zeros + 1 < digits->n_whole && digits->whole[zeros] == '0') zeros++;
    memmove(digits->whole, digits->whole + zeros, digits->n_whole - zeros + 1);
    digits->n_whole -= zeros;
}

/* magnitude >= 0 and finite; inward: -1, 0, 1 where a limit beyond 2^53 moves. */
static void digits_of(double magnitude, int inward, Digits *digits)
{
    char text[64];
    if (magnitude < 0x1p53 || magnitude > 0x1p64) {
        shortest(magnitude, text, sizeof text);
        spread(text, digits);
        return;
    }
    int exponent;
    bool is_power = frexp(magnitude, &exponent) == 0.5;
    long double half = ldexpl(1, exponent - 54), step = is_power && inward < 0 ? 1 : half;
    *digits = (Digits){0};
    digits->n_whole = (size_t)snprintf(digits->whole, sizeof digits->whole, "%.0Lf", magnitude + inward * step);
}

/* ---- comparing ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 4 };

typedef enum Phase { AT_START, IN_WHOLE, BEHIND_ZERO, LONGER, AT_POINT, IN_PART } Phase;

typedef struct Place {
    uint32_t phase, at, order; /* at: digits read of this part; order: of what was read */
} Place;

typedef struct Maker {
    DfaBuilder builder;
    KeyTable places;
} Maker;

static uint32_t compare_digit(uint32_t order, int digit, int with)
{
    if (order != EQUAL) return order;
    return digit < with ? LESS : digit > with ? GREATER : EQUAL;
}

/* The order of the whole number if its digits end here. */
static uint32_t whole_order(const Digits *limit, Place place)
{
    if (place.phase == LONGER) return GREATER;
    return place.at < limit->n_whole ? LESS : place.order;
}

static uint64_t order_label(const void *arg, Place place)
{
    const Digits *limit = arg;
    switch ((Phase)place.phase) {
    case AT_START:
    case AT_POINT:
        return 0;
    case IN_PART:
        return place.order == EQUAL && place.at < limit->n_part ? LESS : place.order;
    default: {
        uint32_t order = whole_order(limit, place);
        return order == EQUAL && limit->n_part ? LESS : order;
    }
    }
}

static Place part_step(const Digits *limit, Place place, int digit)
{
    uint32_t at = place.phase == AT_POINT ? 0 : place.at;
    int with = at < limit->n_part ? limit->part[at] : '0';
    uint32_t order = compare_digit(place.order, digit, with);
    if (order != EQUAL) return (Place){IN_PART, 0, order};
    return (Place){IN_PART, at < limit->n_part ? at + 1 : at, EQUAL};
}

static bool order_step(const void *arg, Place place, int c, Place *ret_next)
{
    const Digits *limit = arg;
    if (c == '.') {
        if (place.phase == AT_START || place.phase >= AT_POINT) return false;
        *ret_next = (Place){AT_POINT, 0, whole_order(limit, place)};
        return true;
    }
    switch ((Phase)place.phase) {
    case AT_START:
        *ret_next = (Place){c == '0' ? BEHIND_ZERO : IN_WHOLE, 1, compare_digit(EQUAL, c, limit->whole[0])};
        return true;
    case BEHIND_ZERO:
        return false;
    case IN_WHOLE:
        *ret_next = place.at < limit->n_whole
                        ? (Place){IN_WHOLE, place.at + 1, compare_digit(place.order, c, limit->whole[place.at])}
                        : (Place){LONGER, 0, GREATER};
        return true;
    case LONGER:
        *ret_next = place;
        return true;
    default:
        *ret_next = part_step(limit, place, c);
        return true;
    }
}

static bool number_place(Maker *maker, Place place, uint32_t *ret_number)
{
    uint32_t key[3] = {place.phase, place.at, place.order};
    return key_table_number(&maker->places, key, DFA_MAX_STATES, ret_number, maker->builder.error);
}

/* What an automaton of numbers is made by; arg is what they are compared with. */
typedef struct Walk {
    const void *arg;
    const char *codes; /* in order */
    Place first;
    uint64_t (*label)(const void *arg, Place place);
    bool (*step)(const void *arg, Place place, int c, Place *ret_next); /* false: c does not come there */
} Walk;

static const char digits_and_point[] = ".0123456789";

static bool walk_all(Maker *maker, const Walk *walk, Arena *arena, const Dfa **ret_dfa)
{
    uint32_t number;
    if (!number_place(maker, walk->first, &number)) return false;
    for (uint32_t i = 0; i < maker->places.n_keys; i++) {
        const uint32_t *key = maker->places.words + 3 * (size_t)i;
        Place place = {key[0], key[1], key[2]}, next;
        if (!dfa_builder_state(&maker->builder, walk->label(walk->arg, place))) return false;
        for (const char *c = walk->codes; *c; c++) {
            if (!walk->step(walk->arg, place, *c, &next)) continue;
            if (!number_place(maker, next, &number)) return false;
            if (!dfa_builder_edge(&maker->builder, (uint32_t)*c, (uint32_t)*c, number)) return false;
        }
    }
    return dfa_builder_finish(&maker->builder, arena, ret_dfa);
}

static bool dfa_of_walk(const Walk *walk, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    Maker maker;
    dfa_builder_init(&maker.builder, error);
    key_table_init(&maker.places, 3);
    bool ok = walk_all(&maker, walk, arena, ret_dfa);
    dfa_builder_done(&maker.builder);
    key_table_done(&maker.places);
    return ok;
}

/* Numbers without a sign; labels LESS, EQUAL, GREATER. */
static bool compared(const Digits *limit, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    Walk walk = {limit, digits_and_point, {.order = EQUAL}, order_label, order_step};
    return dfa_of_walk(&walk, arena, ret_dfa, error);
}

/* ---- signs ---- */

static bool copy_states(DfaBuilder *builder, const Dfa *dfa, uint64_t wanted, uint32_t by)
{
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        if (!dfa_builder_state(builder, (dfa->labels[s] & wanted) != 0)) return false;
        for (uint32_t e = dfa->begin[s]; e < dfa->begin[s + 1]; e++)
            if (!dfa_builder_edge(builder, dfa->edges[e].first, dfa->edges[e].last, dfa->edges[e].to + by))
                return false;
    }
    return true;
}

/* What may stand without a sign, and behind a minus: of one automaton whose start nothing leads back to. */
static bool with_signs(const Dfa *dfa, uint64_t plain, uint64_t minus, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    DfaBuilder builder;
    const Dfa *both;
    dfa_builder_init(&builder, error);
    bool ok = dfa_builder_state(&builder, 0) && dfa_builder_edge(&builder, '-', '-', 1 + dfa->n_states);
    for (uint32_t e = 0; ok && dfa->n_states && e < dfa->begin[1]; e++)
        ok = dfa_builder_edge(&builder, dfa->edges[e].first, dfa->edges[e].last, dfa->edges[e].to + 1);
    ok = ok && copy_states(&builder, dfa, plain, 1) && copy_states(&builder, dfa, minus, 1 + dfa->n_states) &&
         dfa_builder_finish(&builder, arena, &both) && dfa_minimize(both, arena, ret_dfa, error);
    dfa_builder_done(&builder);
    return ok;
}

bool number_within(NumberLimit limit, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    bool negative = limit.value < 0;
    Digits digits;
    digits_of(fabs(limit.value), limit.is_maximum != negative ? -1 : 1, &digits);
    const Dfa *order;
    if (!compared(&digits, arena, &order, error)) return false;
    uint64_t equal = limit.is_exclusive ? 0 : EQUAL, all = LESS | EQUAL | GREATER;
    bool is_zero = limit.value == 0;
    /* labels wanted on the limit's side of zero, and on the other one, where -0 is when the limit is zero */
    uint64_t same = equal | (limit.is_maximum != negative ? LESS : GREATER);
    uint64_t other = is_zero ? equal | (limit.is_maximum ? GREATER : 0) : limit.is_maximum != negative ? all : 0;
    return with_signs(order, negative ? other : same, negative ? same : other, arena, ret_dfa, error);
}

bool number_all(Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *order;
    Digits zero = {.whole = "0", .n_whole = 1};
    return compared(&zero, arena, &order, error) && with_signs(order, 7, 7, arena, ret_dfa, error);
}

/* ---- multiples ---- */

typedef struct Modulus {
    uint32_t factor, scale; /* the factor is factor / 10^scale */
} Modulus;

static bool modulus_of(double factor, Modulus *ret_modulus, Error *error)
{
    Digits digits;
    digits_of(factor, 0, &digits);
    uint64_t value = 0;
    for (size_t i = 0; i < digits.n_whole + digits.n_part && value <= NUMBER_MAX_FACTOR; i++)
        value = value * 10 + (uint64_t)((i < digits.n_whole ? digits.whole[i] : digits.part[i - digits.n_whole]) - '0');
    if (!value || value > NUMBER_MAX_FACTOR || value * (digits.n_part + 2) > DFA_MAX_STATES)
        return error_set(error, ERR_SCHEMA, "multiples of %.17g are not supported", factor);
    *ret_modulus = (Modulus){(uint32_t)value, (uint32_t)digits.n_part};
    return true;
}

/* at: digits read of the fraction, up to scale; order: the remainder of what was read. */
static bool multiple_step(const void *arg, Place place, int c, Place *ret_next)
{
    Modulus modulus = *(const Modulus *)arg;
    if (c == '.') {
        if (place.phase == AT_START || place.phase >= AT_POINT) return false;
        *ret_next = (Place){AT_POINT, 0, place.order};
        return true;
    }
    uint32_t rest = (place.order * 10 + (uint32_t)(c - '0')) % modulus.factor;
    if (place.phase == BEHIND_ZERO) return false;
    if (place.phase == AT_START && c == '0')
        *ret_next = (Place){BEHIND_ZERO, 0, 0};
    else if (place.phase < AT_POINT)
        *ret_next = (Place){IN_WHOLE, 0, rest};
    else if (place.at < modulus.scale)
        *ret_next = (Place){IN_PART, place.at + 1, rest};
    else if (c == '0')
        *ret_next = (Place){IN_PART, place.at, place.order};
    else
        return false;
    return true;
}

static uint64_t multiple_label(const void *arg, Place place)
{
    Modulus modulus = *(const Modulus *)arg;
    uint64_t rest = place.order;
    for (uint32_t i = place.phase == IN_PART ? place.at : 0; i < modulus.scale; i++) rest = rest * 10 % modulus.factor;
    return place.phase != AT_START && place.phase != AT_POINT && rest == 0;
}

bool number_multiples(double factor, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    Modulus modulus = {0};
    const Dfa *dfa;
    if (!modulus_of(factor, &modulus, error)) return false;
    Walk walk = {&modulus, digits_and_point, {0}, multiple_label, multiple_step};
    return dfa_of_walk(&walk, arena, &dfa, error) && with_signs(dfa, 1, 1, arena, ret_dfa, error);
}

/* ---- ways to write ---- */

enum { ZERO = 2 }; /* a label beside 1 */

/* Digits without a fraction, or with one that is zero. */
static bool integer_step(const void *arg, Place place, int c, Place *ret_next)
{
    return order_step(arg, place, c, ret_next) && (place.phase < AT_POINT || c == '0');
}

bool number_integers(Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *dfa;
    Digits zero = {.whole = "0", .n_whole = 1};
    Walk walk = {&zero, digits_and_point, {.order = EQUAL}, order_label, integer_step};
    return dfa_of_walk(&walk, arena, &dfa, error) && with_signs(dfa, 7, 7, arena, ret_dfa, error);
}

/* order: the last digit is none of the fraction, or not zero. */
static bool plain_step(const void *arg, Place place, int c, Place *ret_next)
{
    (void)arg;
    if (place.phase == BEHIND_ZERO && c != '.') return false;
    if (c == '.') {
        if (place.phase == AT_START || place.phase >= AT_POINT) return false;
        *ret_next = (Place){AT_POINT, 0, 0};
    } else if (place.phase < AT_POINT) {
        *ret_next = (Place){place.phase == AT_START && c == '0' ? BEHIND_ZERO : IN_WHOLE, 0, 1};
    } else {
        *ret_next = (Place){IN_PART, 0, c != '0'};
    }
    return true;
}

static uint64_t plain_label(const void *arg, Place place)
{
    (void)arg;
    return place.phase == BEHIND_ZERO ? ZERO : place.order;
}

bool number_plain(Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *dfa;
    Walk walk = {NULL, digits_and_point, {0}, plain_label, plain_step};
    return dfa_of_walk(&walk, arena, &dfa, error) && with_signs(dfa, 1 | ZERO, 1, arena, ret_dfa, error);
}

/* at: digits from the first one on that is not zero; order: zeros of the fraction before it. */
static bool short_step(const void *arg, Place place, int c, Place *ret_next)
{
    (void)arg;
    if (place.phase == BEHIND_ZERO && c != '.') return false;
    if (c == '.') {
        if (place.phase == AT_START || place.phase >= AT_POINT || place.at >= NUMBER_EXACT_DIGITS) return false;
        *ret_next = (Place){AT_POINT, place.at, 0};
        return true;
    }
    bool in_part = place.phase >= AT_POINT, counts = place.at || c != '0';
    uint32_t max = in_part ? NUMBER_EXACT_DIGITS : NUMBER_MAX_WRITTEN;
    *ret_next = (Place){in_part  ? IN_PART
                        : counts ? IN_WHOLE
                                 : BEHIND_ZERO,
                        place.at + counts, place.order + (in_part && !counts)};
    return ret_next->at <= max && ret_next->order <= NUMBER_MAX_WRITTEN - NUMBER_EXACT_DIGITS - 1;
}

static uint64_t short_label(const void *arg, Place place)
{
    (void)arg;
    return place.phase != AT_START && place.phase != AT_POINT;
}

bool number_short(Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *dfa;
    Walk walk = {NULL, digits_and_point, {0}, short_label, short_step};
    return dfa_of_walk(&walk, arena, &dfa, error) && with_signs(dfa, 1, 1, arena, ret_dfa, error);
}

/* How far a text is behind a word that it began with. */
typedef enum Tail { NO_TAIL, WHOLE_TAIL, POINT_TAIL, ZEROS_TAIL } Tail;

/* phase: the state of the words + 1, 0 for none; at: the point was read; order: the tail. */
static bool spell_step(const void *arg, Place place, int c, Place *ret_next)
{
    const Dfa *words = arg;
    int64_t state = place.phase ? dfa_step(words, place.phase - 1, (uint32_t)c) : DFA_NONE;
    Place next = {(uint32_t)(state + 1), place.at || c == '.', NO_TAIL};
    if (state != DFA_NONE && words->labels[state])
        next.order = next.at ? ZEROS_TAIL : WHOLE_TAIL;
    else if (place.order == WHOLE_TAIL && c == '.')
        next.order = POINT_TAIL;
    else if (place.order >= POINT_TAIL && c == '0')
        next.order = ZEROS_TAIL;
    *ret_next = next;
    return next.phase || next.order;
}

static uint64_t spell_label(const void *arg, Place place)
{
    (void)arg;
    return place.order == WHOLE_TAIL || place.order == ZEROS_TAIL;
}

bool number_spellings(const Dfa *words, Arena *arena, const Dfa **ret_dfa, Error *error)
{
    const Dfa *dfa;
    Walk walk = {words, "-.0123456789", {.phase = 1}, spell_label, spell_step};
    return dfa_of_walk(&walk, arena, &dfa, error) && dfa_minimize(dfa, arena, ret_dfa, error);
}

/* ---- texts ---- */

bool number_print(double value, Arena *arena, const char **ret_text, Error *error)
{
    if (value == floor(value) && fabs(value) > 0x1p53)
        return error_set(error, ERR_SCHEMA, "%.17g is beyond 2^53, where numbers are not exact", value);
    Digits digits;
    digits_of(fabs(value), 0, &digits);
    char text[2 * NUMBER_MAX_DIGITS + 8];
    snprintf(text, sizeof text, "%s%s%s%s", value < 0 ? "-" : "", digits.whole, digits.n_part ? "." : "", digits.part);
    *ret_text = arena_strdup(arena, text);
    return *ret_text || error_set(error, ERR_NO_MEMORY, "no memory for a number");
}
