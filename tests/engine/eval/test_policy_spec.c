/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/policy_spec.h"

#include "engine/select/presets.h"

#include <criterion/criterion.h>
#include <string.h>

static Error error;

static PolicySpec parse(const char *text)
{
    PolicySpec spec;
    cr_assert(policy_spec_parse(text, strlen(text), &spec, &error), "'%s': %s", text, error.text);
    return spec;
}

Test(test_policy_spec, fields_change_what_they_name)
{
    PolicySpec plain = parse("dense"), wave = parse("dense:k=2"), mixed = parse("dense:k_prefill=0.5:k_decode=4");
    cr_assert(plain.policy.wavelength.k_prefill == 0 && !plain.policy.selection.n_stages);
    cr_assert(wave.policy.wavelength.k_prefill == 2 && wave.policy.wavelength.k_decode == 2);
    cr_assert(mixed.policy.wavelength.k_prefill == 0.5 && mixed.policy.wavelength.k_decode == 4);
    PolicySpec pages = parse("lserve-4k:budget=1024:refresh=1:scan=exact:unit=16:prefill_from=all:positions=packed");
    const Selection *selection = &pages.policy.selection;
    cr_assert(selection->budget == 1024 && selection->bypass == 1024 && selection->prefill_from == PLAN_ALL);
    cr_assert(selection->stages[0].refresh == 1 && selection->stages[0].scan == SCAN_EXACT);
    cr_assert(selection->stages[0].unit_tokens == 16 && pages.policy.positions == POSITIONS_PACKED);
    cr_assert_str_eq(pages.text,
                     "lserve-4k:budget=1024:refresh=1:scan=exact:unit=16:prefill_from=all:positions=packed");
    cr_assert_str_eq(parse("dense:roles=half").roles, "half");
    const Selection early = parse("hip-3k:early=2:early_keep=all:missing=0.125").policy.selection;
    cr_assert(early.early_layers == 3 && early.early_keep_tokens == PLAN_ALL && early.max_missing_mass == 0.125);
    cr_assert_eq(parse("hip-3k:early=64").policy.selection.early_layers, UINT64_MAX);
    cr_assert_eq(parse("lserve-4k:budget=1024:bypass=2048").policy.selection.bypass, 2048);
}

Test(test_policy_spec, an_unknown_preset_meets_the_names_of_all)
{
    PolicySpec spec;
    cr_assert_not(policy_spec_parse("hip-4k", 6, &spec, &error));
    for (size_t i = 0; preset_name_at(i); i++)
        cr_expect(strstr(error.text, preset_name_at(i)), "%s: %s", preset_name_at(i), error.text);
}

/* policy.h has the rule that these numbers are of. */
Test(test_policy_spec, windows_of_the_whole_family)
{
    const char *text =
        "dense:k_decode=2:k_ratio=8:profile=geometric:gamma=0.5:linear=100:floor=64:ceiling=4096:window_layers=on";
    const Wavelength wave = parse(text).policy.wavelength, line = parse("dense:linear=500").policy.wavelength;
    cr_expect(wave.k_prefill == 0 && wave.k_decode == 2 && wave.k_ratio == 8 && wave.profile == WAVE_GEOMETRIC);
    cr_expect(wave.gamma == 0.5 && wave.linear == 100 && wave.floor == 64 && wave.ceiling == 4096);
    cr_expect(wave.in_window_layers);
    cr_expect(line.linear == 500 && line.k_prefill == 0 && !line.in_window_layers && line.profile == WAVE_ARITHMETIC);
    cr_expect_not(parse("dense:k=2:window_layers=off").policy.wavelength.in_window_layers);
}

Test(test_policy_spec, what_is_not_known_is_refused)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "nothing",
                                      "dense:k",
                                      "dense:k=",
                                      "dense:k=x",
                                      "dense:k=-1",
                                      "dense:k=1e99",
                                      "dense:k=nan",
                                      "dense:k=inf",
                                      "lserve-4k:budget=1.5",
                                      "lserve-4k:budget=99999999999",
                                      "lserve-4k:scan=fast",
                                      "lserve-4k:positions=none",
                                      "dense:roles=",
                                      "dense:budgets=1",
                                      "lserve-4k:refresh=all",
                                      "dense:unit=16",
                                      "dense:refresh=4",
                                      "dense:bypass=64",
                                      "dense:audit=4",
                                      "self-extend:recent=64",
                                      "dense:roles_recent=64",
                                      "lserve-4k:roles_sink=0",
                                      "lserve-4k:recent_prefill=64",
                                      "dense:group=4",
                                      "lserve-4k:near=64",
                                      "dense:gamma=0.5",
                                      "dense:linear=0",
                                      "dense:window_layers=on",
                                      "dense:k=2:gamma=0",
                                      "dense:k=2:k_ratio=0",
                                      "dense:k=2:profile=geometric",
                                      "dense:k=2:k_ratio=4:profile=round",
                                      "dense:k=2:window_layers=2",
                                      "dense:k=2:floor=1.5",
                                      "dense:k=2:k=4"};
    PolicySpec spec;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (Error){0};
        cr_assert_not(policy_spec_parse(bad[i], strlen(bad[i]), &spec, &error), "'%s'", bad[i]);
        cr_assert_str_eq(error.param, "policies", "'%s'", bad[i]);
    }
    cr_assert(policy_spec_parse("dense:roles_recent=64:roles=half", 32, &spec, &error), "in any order: %s", error.text);
    char longer[POLICY_SPEC_MAX];
    memset(longer, 'a', sizeof longer);
    cr_assert_not(policy_spec_parse(longer, sizeof longer, &spec, &error));
}

/* A budget had undone the bypass and the recent range before it, and was measured by units that changed behind it. */
Test(test_policy_spec, the_order_of_fields_means_nothing)
{
    static const char *const pairs[][2] = {
        {"lserve-4k:bypass=8192:budget=512", "lserve-4k:budget=512:bypass=8192"},
        {"lserve-4k:unit=16:budget=416", "lserve-4k:budget=416:unit=16"},
        {"hip-3k:recent=512:sink=64:budget=2048", "hip-3k:budget=2048:sink=64:recent=512"},
        {"hip-3k:early=2:early_keep=all:budget=2048", "hip-3k:budget=2048:early_keep=all:early=2"},
        {"streaming-llm:sink=128:budget=1024", "streaming-llm:budget=1024:sink=128"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const Selection one = parse(pairs[i][0]).policy.selection, other = parse(pairs[i][1]).policy.selection;
        cr_expect(one.budget == other.budget && one.bypass == other.bypass && one.recent == other.recent &&
                      one.sink == other.sink && one.early_keep_tokens == other.early_keep_tokens,
                  "%s", pairs[i][0]);
        for (uint32_t s = 0; s < one.n_stages; s++)
            cr_expect_eq(one.stages[s].keep_tokens, other.stages[s].keep_tokens, "%s", pairs[i][0]);
    }
    cr_assert_eq(parse(pairs[0][0]).policy.selection.bypass, 8192);
    PolicySpec spec;
    const char *twice = "streaming-llm:recent=512:budget=1024";
    cr_assert_not(policy_spec_parse(twice, strlen(twice), &spec, &error));
    cr_assert_str_eq(error.param, "policies");
}

/* What a policy says of its roles' ranges counts, also where that is nothing. */
Test(test_policy_spec, ranges_of_roles_are_the_files_unless_given)
{
    static const HeadRoles half = {"half", NULL};
    const AttnPolicy files[] = {
        {.name = "dense"},
        {.name = "dense", .roles = &half, .sink = 128, .recent_prefill = 2048, .recent_decode = 256}};
    static const struct {
        const char *text;
        uint32_t sink, prefill, decode;
    } cases[] = {{"dense:roles=half", 128, 2048, 256},
                 {"dense:roles=half:roles_sink=0", 0, 2048, 256},
                 {"dense:roles=half:roles_recent=512", 128, 512, 512},
                 {"dense:roles=half:recent_decode=64:roles_sink=64", 64, 2048, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PolicySpec spec = parse(cases[i].text);
        cr_assert(policy_spec_take_roles(&spec, files, 2, &error), "%s", error.text);
        cr_expect(spec.policy.roles == &half && spec.policy.sink == cases[i].sink &&
                      spec.policy.recent_prefill == cases[i].prefill && spec.policy.recent_decode == cases[i].decode,
                  "%s", cases[i].text);
    }
}

/* What a device is opened with: the longest lists, whichever place they have; others cannot select there. */
Test(test_policy_spec, the_longest_lists_of_a_list)
{
    static const struct {
        const char *list, *want;
    } cases[] = {{"dense,lserve-4k:budget=16384,lserve-4k", "lserve-4k:budget=16384"},
                 {"lserve-4k,lserve-8k,dense", "lserve-8k"},
                 {"hip-3k:budget=65536,lserve-4k:budget=2048", "lserve-4k:budget=2048"},
                 {"lserve-8k:roles=half,lserve-4k", "lserve-8k:roles=half"},
                 {"dense,hip-3k", NULL},
                 {NULL, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PolicySpec spec;
        const char *text = policy_specs_longest(cases[i].list, &spec);
        cr_assert_eq(!text, !cases[i].want, "%zu", i);
        if (text) cr_expect_str_eq(text, cases[i].want);
    }
}

Test(test_policy_spec, what_a_device_lacks_is_named)
{
    static const struct {
        const char *list, *lacks;
    } cases[] = {{"dense", NULL},
                 {"dense:roles=half,lserve-4k:roles=half:budget=1024,lserve-8k:refresh=8", NULL},
                 {"lserve-4k,oracle:budget=1024", "'oracle:budget=1024'"},
                 {"hip-3k", "'hip-3k'"},
                 {"dense:k=2,lserve-4k:k_decode=4", NULL},
                 {"lserve-4k:k_decode=4:unit=16", "'lserve-4k:k_decode=4:unit=16'"},
                 {"lserve-4k:unit=16", "'lserve-4k:unit=16'"},
                 {"lserve-4k:missing=0.05", "'lserve-4k:missing=0.05'"},
                 {"lserve-4k:prefill_from=0", "'lserve-4k:prefill_from=0'"},
                 {"quest,random", "'quest'"},
                 {"self-extend", "'self-extend'"},
                 {"streaming-llm", "'streaming-llm'"},
                 {"vertical-slash", "'vertical-slash'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool has_all = policy_specs_on_device(cases[i].list, &error);
        cr_assert_eq(has_all, !cases[i].lacks, "%s", cases[i].list);
        if (has_all) continue;
        cr_expect_eq(error.code, ERR_UNSUPPORTED);
        cr_expect(strstr(error.text, cases[i].lacks) && strstr(error.text, "--device cpu"), "%s", error.text);
    }
}
