/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct Row {
    const char *option, *text;
    bool good;
    uint64_t value; /* of whole numbers */
} Row;

static uint64_t whole_field(const ConfigOption *option, const Config *config)
{
    const char *field = (const char *)config + option->offset;
    uint64_t value = 0;
    memcpy(&value, field, option->width); /* little endian */
    return value;
}

Test(value, whole_numbers)
{
    static const Row rows[] = {
        {"port", "1", true, 1},
        {"port", "65535", true, 65535},
        {"port", "0", false, 0},
        {"port", "65536", false, 0},
        {"port", "+1", false, 0},
        {"port", " 1", false, 0},
        {"port", "1 ", false, 0},
        {"port", "-1", false, 0},
        {"port", "1K", false, 0},
        {"port", "0x10", false, 0},
        {"port", "", false, 0},
        {"port", "1.5", false, 0},
        {"port", "65537", false, 0},
        {"port", "4294967297", false, 0},
        {"max_body", "4096", true, 4096},
        {"max_body", "4096B", true, 4096},
        {"max_body", "4K", true, 4096},
        {"max_body", "4KiB", true, 4096},
        {"max_body", "3MiB", true, 3 << 20},
        {"max_body", "1G", true, 1 << 30},
        {"max_body", "1T", false, 0},
        {"max_body", "4MB", false, 0},
        {"max_body", "4mib", false, 0},
        {"max_body", "4 M", false, 0},
        {"max_body", "1.5M", false, 0},
        {"max_body", "K", false, 0},
        {"max_body", "18446744073709551616", false, 0},
        {"max_body", "18014398509481984K", false, 0},
        {"max_body", "16777216T", false, 0},
        {"max_body", "1023", false, 0},
        {"ctx", "128K", true, 131072},
        {"ctx", "0", true, 0},
        {"ctx", "1KiB", false, 0},
        {"ctx", "17M", false, 0},
        {"drain_timeout", "0", true, 0},
        {"drain_timeout", "none", true, 0},
        {"drain_timeout", "90", true, 90},
        {"drain_timeout", "90s", true, 90},
        {"drain_timeout", "5m", true, 300},
        {"drain_timeout", "2h", true, 7200},
        {"drain_timeout", "500ms", false, 0},
        {"drain_timeout", "25h", false, 0},
        {"drain_timeout", "s", false, 0},
        {"seed", "18446744073709551615", true, UINT64_MAX},
        {"seed", "18446744073709551616", false, 0},
        {"seed", "99999999999999999999999999", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config config = {0};
        Error error = {0};
        const ConfigOption *option = option_find(rows[i].option, strlen(rows[i].option));
        bool ok = option_set_value(option, rows[i].text, &config, &error);
        cr_expect_eq(ok, rows[i].good, "%s = '%s': %s", rows[i].option, rows[i].text, error.text);
        cr_expect_eq(whole_field(option, &config), rows[i].value, "%s = '%s'", rows[i].option, rows[i].text);
        if (!ok) cr_expect_str_eq(error.param, rows[i].option);
    }
}

Test(value, lists)
{
    static const struct {
        const char *option, *text;
        bool good;
        ConfigList value;
    } rows[] = {
        {"depth", "none", true, {0}},
        {"depth", "0", true, {1, {0}}},
        {"depth", "0,2048,16K", true, {3, {0, 2048, 16384}}},
        {"depth",
         "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
         true,
         {16, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}},
        {"depth", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", false, {0}},
        {"depth", "16777216", true, {1, {16777216}}},
        {"depth", "16777217", false, {0}},
        {"depth", "4294967296", false, {0}},
        {"depth", "18446744073709551616", false, {0}},
        {"depth", "00000000000000000000000000000001", false, {0}},
        {"depth", "", false, {0}},
        {"depth", ",", false, {0}},
        {"depth", "5,", false, {0}},
        {"depth", ",5", false, {0}},
        {"depth", "5,,6", false, {0}},
        {"depth", "5 ,6", false, {0}},
        {"depth", "5;6", false, {0}},
        {"depth", "none,5", false, {0}},
        {"depth", "-1", false, {0}},
        {"depth", "x", false, {0}},
        {"prefill", "0", false, {0}},
        {"prefill", "5,0", false, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config config = {0};
        Error error = {0};
        const ConfigOption *option = option_find(rows[i].option, strlen(rows[i].option));
        const ConfigList *list = (const ConfigList *)(const void *)((const char *)&config + option->offset);
        bool ok = option_set_value(option, rows[i].text, &config, &error);
        cr_expect_eq(ok, rows[i].good, "%s = '%s': %s", rows[i].option, rows[i].text, error.text);
        cr_expect_arr_eq(list, &rows[i].value, sizeof *list, "%s = '%s'", rows[i].option, rows[i].text);
        if (!ok) cr_expect_str_eq(error.param, rows[i].option);
    }
}

Test(value, reals)
{
    static const struct {
        const char *text;
        bool good;
        float value;
    } rows[] = {
        {"0", true, 0},    {"0.25", true, 0.25f}, {"1e-3", true, 1e-3f}, {".5", true, 0.5f},
        {"1", true, 1},    {"1.01", false, 0},    {"-0.1", false, 0},    {"nan", false, 0},
        {"inf", false, 0}, {"0x1p-1", false, 0},  {"", false, 0},        {" 1", false, 0},
        {"1,0", false, 0}, {"1e", false, 0},      {"--1", false, 0},     {"1e999", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config config = {0};
        Error error = {0};
        cr_expect_eq(option_set_value(option_find("top_p", 5), rows[i].text, &config, &error), rows[i].good, "'%s'",
                     rows[i].text);
        cr_expect_eq(config.top_p, rows[i].value, "'%s'", rows[i].text);
    }
}

Test(value, choices_and_flags)
{
    Config config = {0};
    Error error;
    cr_expect(option_set_value(option_find("log_level", 9), "debug", &config, &error));
    cr_expect_eq(config.log_level, LOG_DEBUG);
    cr_expect_not(option_set_value(option_find("log_level", 9), "Debug", &config, &error));
    cr_expect_str_eq(error.text, "'Debug' is not one of: error, warn, info, debug");
    static const char *const words[] = {"on", "true", "yes", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        config.json = false;
        cr_expect(option_set_value(option_find("json", 4), words[i], &config, &error));
        cr_expect(config.json);
    }
    cr_expect(option_set_value(option_find("json", 4), "off", &config, &error));
    cr_expect_not(config.json);
    cr_expect_not(option_set_value(option_find("json", 4), "ON", &config, &error));
}

Test(value, text_is_copied_into_the_arena)
{
    Config config = {0};
    Error error;
    arena_init(&config.arena, 64, 64);
    char text[] = "name";
    cr_assert(option_set_value(option_find("alias", 5), text, &config, &error));
    text[0] = 'x';
    cr_expect_str_eq(config.alias, "name");
    char big[100];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    cr_expect_not(option_set_value(option_find("alias", 5), big, &config, &error));
    cr_expect_eq(error.code, ERR_NO_MEMORY);
    cr_expect_str_eq(config.alias, "name");
    arena_done(&config.arena);
}
