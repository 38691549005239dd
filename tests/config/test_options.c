/* SPDX-License-Identifier: Apache-2.0 */
/* The table itself: rows that contradict each other would only be noticed by a user. */
#include "config/value.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

Test(options, rows_are_sound)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *o = &config_options[i];
        for (const char *c = o->name; *c; c++) cr_expect(islower(*c) || isdigit(*c) || *c == '_', "%s", o->name);
        cr_expect(strlen(o->name) <= 32, "%s", o->name);
        cr_expect_eq(option_find(o->name, strlen(o->name)), o, "%s appears twice", o->name);
        if (o->letter) cr_expect_eq(option_find_letter(o->letter), o, "-%c appears twice", o->letter);
        cr_expect(o->commands && !(o->required & ~o->commands), "%s", o->name);
        cr_expect(o->help && (o->kind == OPTION_FLAG) == !o->metavar, "%s", o->name);
        cr_expect_eq(o->kind == OPTION_CHOICE, o->choices != NULL, "%s", o->name);
        cr_expect(o->kind == OPTION_TEXT || o->fallback, "%s has no default", o->name);
        cr_expect(o->min <= o->max && o->real_min <= o->real_max, "%s", o->name);
    }
}

Test(options, widths_fit_kinds)
{
    static const size_t fixed[] = {
        [OPTION_TEXT] = sizeof(char *),     [OPTION_FLAG] = sizeof(bool),         [OPTION_REAL] = sizeof(float),
        [OPTION_CHOICE] = sizeof(LogLevel), [OPTION_SHARE] = sizeof(ConfigShare), [OPTION_LIST] = sizeof(ConfigList)};
    for (size_t i = 0; i < config_n_options; i++) {
        const ConfigOption *o = &config_options[i];
        bool whole = o->kind >= OPTION_INTEGER && o->kind <= OPTION_SECONDS;
        if (!whole) {
            cr_expect_eq(o->width, fixed[o->kind], "%s", o->name);
            if (o->kind != OPTION_SHARE)
                cr_expect_leq(o->max, UINT32_MAX, "%s: the range is wider than the field", o->name);
            continue;
        }
        cr_expect(o->width == 2 || o->width == 4 || o->width == 8, "%s", o->name);
        if (o->width < 8) cr_expect(o->max < 1ull << 8 * o->width, "%s: the range is wider than the field", o->name);
    }
}

Test(options, fields_do_not_overlap)
{
    for (size_t i = 0; i < config_n_options; i++)
        for (size_t j = i + 1; j < config_n_options; j++) {
            const ConfigOption *a = &config_options[i], *b = &config_options[j];
            cr_expect(a->offset + a->width <= b->offset || b->offset + b->width <= a->offset, "%s and %s", a->name,
                      b->name);
        }
}

Test(options, find_takes_dashes)
{
    cr_assert_not_null(option_find("max-body", 8));
    cr_assert_eq(option_find("max-body", 8), option_find("max_body", 8));
    cr_assert_null(option_find("max", 3));
    cr_assert_null(option_find("max_bodyx", 9));
    cr_assert_null(option_find("", 0));
    cr_assert_null(option_find_letter(0));
}

Test(options, nearest_name)
{
    cr_assert_str_eq(option_nearest("prot", 4, CMD_SERVE, false), "port");
    cr_assert_str_eq(option_nearest("thread", 6, UINT32_MAX, true), "threads");
    cr_assert_str_eq(option_nearest("max-queue-token", 15, CMD_SERVE, false), "max_queue_tokens");
    cr_assert_null(option_nearest("quantum_flux", 12, UINT32_MAX, false));
    cr_assert_null(option_nearest("temperatur", 10, UINT32_MAX, true), "not an option of files");
    char longest[40];
    memset(longest, 'm', sizeof longest);
    cr_assert_null(option_nearest(longest, sizeof longest, UINT32_MAX, false));
}
