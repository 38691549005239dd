/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/policy_spec.h"

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
                                      "lserve-4k:refresh=all"};
    PolicySpec spec;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (Error){0};
        cr_assert_not(policy_spec_parse(bad[i], strlen(bad[i]), &spec, &error), "'%s'", bad[i]);
        cr_assert_str_eq(error.param, "policies", "'%s'", bad[i]);
    }
    char longer[POLICY_SPEC_MAX];
    memset(longer, 'a', sizeof longer);
    cr_assert_not(policy_spec_parse(longer, sizeof longer, &spec, &error));
}
