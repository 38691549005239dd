/* SPDX-License-Identifier: Apache-2.0 */
/* What a request may say of attention. */
#include "engine/select/presets.h"
#include "tests/server/body_rig.h"

#include <stdio.h>

static const ServedPolicy sparse_policies[] = {{"dense", NULL}, {"dense", "half"}, {"lserve-8k", NULL}};
static const ServedPolicies sparse_served = {
    .list = sparse_policies, .n = 3, .fallback = 2, .trained_context = 8192, .certified_tokens = 4000};

static bool ask(const char *attention, ApiAttention *ret_attention, Error *error)
{
    char text[300];
    snprintf(text, sizeof text, "{\"longwave\":{\"attention\":%s}}", attention);
    Body body = read_body(text, API_CHAT);
    *error = body.error;
    bool ok = body.ok && api_longwave_attention(&body.params.longwave, &sparse_served, ret_attention, error);
    cJSON_Delete(body.json);
    return ok;
}

/* Everything that api.md names, alone and together. */
Test(api_attention, attention_beyond_the_servers_own)
{
    ApiAttention attention;
    Error error;
    cr_assert(ask("\"auto\"", &attention, &error));
    cr_expect(attention.policy == 2 && wish_is_plain(&attention.wish) && attention.reach == 8192);
    cr_assert(ask("\"hip-3k-fast\"", &attention, &error));
    cr_expect(attention.policy == 0 && attention.reach == UINT32_MAX && !strcmp(attention.name.preset, "hip-3k-fast"));
    cr_expect_str_eq(attention.wish.preset, "hip-3k-fast");
    cr_assert(ask("{\"budget\":2048,\"refresh\":[2]}", &attention, &error), "%s", error.text);
    cr_expect_str_eq(attention.wish.preset, "lserve-8k", "of the default");
    cr_expect(attention.wish.budget == 2048 && attention.wish.n_refresh == 1 && attention.wish.refresh[0] == 2);
    cr_assert(ask("{\"preset\":\"dense\",\"roles\":\"half\",\"wavelength\":{\"decode\":2.5},\"positions\":\"packed\"}",
                  &attention, &error),
              "%s", error.text);
    cr_expect(attention.policy == 1 && attention.reach == 8192 && !strcmp(attention.name.roles, "half"));
    cr_expect(attention.wish.has_wavelength && attention.wish.k_prefill == 0 && attention.wish.k_decode == 2.5);
    cr_assert(ask("{\"preset\":\"hip-5k\",\"refresh\":[64,16,8],\"positions\":\"true\"}", &attention, &error));
    cr_expect(attention.wish.refresh[2] == 8 && attention.reach == 8192);
}

Test(api_attention, attention_that_cannot_be)
{
    static const struct {
        const char *attention, *param;
    } cases[] = {
        {"\"sparse\"", "longwave.attention"},
        {"{\"preset\":\"hip-3k\",\"roles\":\"other\"}", "longwave.attention"},
        {"{\"preset\":\"dense\",\"budget\":4096}", "longwave.attention.budget"},
        {"{\"preset\":\"lserve-4k\",\"budget\":100}", "longwave.attention.budget"},
        {"{\"preset\":\"hip-3k\",\"budget\":1280}", "longwave.attention.budget"},
        {"\"oracle\"", "longwave.attention"},
        {"{\"preset\":\"dense\",\"budget\":\"adaptive\"}", "longwave.attention.budget"},
        {"{\"budget\":\"4096\"}", "longwave.attention.budget"},
        {"{\"budget\":0}", "longwave.attention.budget"},
        {"{\"budget\":1.5}", "longwave.attention.budget"},
        {"{\"budget\":\"4k\"}", "longwave.attention.budget"},
        {"{\"preset\":\"lserve-4k\",\"refresh\":[4,2]}", "longwave.attention.refresh"},
        {"{\"preset\":\"hip-3k\",\"refresh\":[4,8,2]}", "longwave.attention.refresh"},
        {"{\"preset\":\"hip-3k\",\"refresh\":[4,2,0]}", "longwave.attention.refresh"},
        {"{\"refresh\":[]}", "longwave.attention.refresh"},
        {"{\"refresh\":[9,8,7,6,5]}", "longwave.attention.refresh"},
        {"{\"refresh\":4}", "longwave.attention.refresh"},
        {"{\"preset\":\"dense\",\"refresh\":[1]}", "longwave.attention.refresh"},
        {"{\"wavelength\":2}", "longwave.attention.wavelength"},
        {"{\"wavelength\":{\"decode\":-1}}", "longwave.attention.wavelength.decode"},
        {"{\"positions\":\"shuffled\"}", "longwave.attention.positions"},
        {"{\"preset\":\"dense\",\"positions\":\"packed\"}", "longwave.attention.positions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ApiAttention attention;
        Error error = {0};
        cr_expect_not(ask(cases[i].attention, &attention, &error), "%s", cases[i].attention);
        cr_expect(error.code == ERR_INVALID || error.code == ERR_UNSUPPORTED);
        cr_expect_str_eq(error.param, cases[i].param, "%s: %s", cases[i].attention, error.text);
    }
}

/* What is certified for prompts of 4,000 tokens: longer ones are dense unless they name it. */
Test(api_attention, attention_beyond_what_is_certified)
{
    ApiAttention attention;
    Error error;
    cr_assert(ask("\"auto\"", &attention, &error));
    api_longwave_settle(&sparse_served, 4000, &attention);
    cr_expect(attention.policy == 2 && !strcmp(attention.name.preset, "lserve-8k"));
    api_longwave_settle(&sparse_served, 4001, &attention);
    cr_expect(attention.policy == 0 && !strcmp(attention.name.preset, "dense") && attention.reach == 8192);
    cr_expect(wish_is_plain(&attention.wish));
    cr_assert(ask("\"lserve-8k\"", &attention, &error));
    api_longwave_settle(&sparse_served, 8000, &attention);
    cr_expect_eq(attention.policy, 2);
    cr_assert(ask("{\"budget\":2048}", &attention, &error), "%s", error.text);
    api_longwave_settle(&sparse_served, 8000, &attention);
    cr_expect(attention.wish.budget == 2048, "who changes it has chosen it");
    ServedPolicies from = sparse_served;
    from.certified_from = 1000;
    cr_assert(ask("\"auto\"", &attention, &error));
    api_longwave_settle(&from, 1000, &attention);
    cr_expect_eq(attention.policy, 2);
    api_longwave_settle(&from, 999, &attention);
    cr_expect(attention.policy == 0 && attention.reach == 8192, "shorter than what was measured");
    cr_assert(ask("{\"preset\":\"lserve-4k\",\"budget\":\"adaptive\"}", &attention, &error), "%s", error.text);
    cr_expect(attention.wish.is_adaptive && attention.policy == 0);
}

/* A server's default that is no preset of its own name, as certificates make it: with roles, and open to changes. */
Test(api_attention, attention_of_a_certified_server)
{
    static const HeadRoles half = {"half", NULL};
    AttnPolicy certified = *preset_find("lserve-4k");
    certified.name = "lserve-4k:roles=half:recent=128";
    certified.roles = &half;
    certified.sink = certified.recent_prefill = certified.recent_decode = 128;
    const ServedPolicy policies[] = {{"dense", NULL}, {"dense", "half"}, {certified.name, "half", &certified}};
    ServedPolicies served = {policies, 3, 2};
    static const struct {
        const char *body;
        uint32_t policy; /* 9: refused */
        bool is_plain;
    } cases[] = {
        {"{}", 2, true},
        {"{\"longwave\":{\"attention\":\"auto\"}}", 2, true},
        {"{\"longwave\":{\"attention\":{\"roles\":\"half\"}}}", 2, true},
        {"{\"longwave\":{\"attention\":{\"budget\":1024}}}", 2, false},
        {"{\"longwave\":{\"attention\":\"dense\"}}", 0, true},
        {"{\"longwave\":{\"attention\":{\"preset\":\"lserve-4k\"}}}", 0, false},
        {"{\"longwave\":{\"attention\":{\"budget\":64}}}", 9, false},
        {"{\"longwave\":{\"attention\":{\"roles\":\"other\"}}}", 9, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Body body = read_body(cases[i].body, API_CHAT);
        Error error = {0};
        ApiAttention attention = {.policy = 9};
        bool ok = api_longwave_attention(&body.params.longwave, &served, &attention, &error);
        cr_expect(ok == (cases[i].policy != 9) && attention.policy == cases[i].policy, "%s: %s", cases[i].body,
                  error.text);
        if (ok) cr_expect_eq(wish_is_plain(&attention.wish), cases[i].is_plain, "%s", cases[i].body);
        served.is_fixed = true;
        bool fixed_ok = api_longwave_attention(&body.params.longwave, &served, &attention, &error);
        cr_expect(fixed_ok ? cases[i].is_plain : !ok || strstr(error.text, "by its name, unchanged"), "%s", error.text);
        served.is_fixed = false;
        cJSON_Delete(body.json);
    }
}

Test(api_attention, attention_and_progress)
{
    static const ServedPolicy policies[] = {{"dense", NULL}, {"dense", "half"}, {"stream", "half"}};
    static const ServedPolicies served = {policies, 3, 0};
    static const struct {
        const char *body;
        uint32_t policy; /* 9: none */
    } cases[] = {
        {"{}", 0},
        {"{\"longwave\":{}}", 0},
        {"{\"longwave\":{\"attention\":\"auto\"}}", 0},
        {"{\"longwave\":{\"attention\":\"dense\"}}", 0},
        {"{\"longwave\":{\"attention\":{\"preset\":\"dense\",\"roles\":null}}}", 0},
        {"{\"longwave\":{\"attention\":{\"roles\":\"half\"}}}", 1},
        {"{\"longwave\":{\"attention\":{\"preset\":\"stream\",\"roles\":\"half\"}}}", 2},
        {"{\"longwave\":{\"attention\":\"stream\"}}", 9},
        {"{\"longwave\":{\"attention\":\"sparse\"}}", 9},
        {"{\"longwave\":{\"attention\":{\"roles\":\"other\"}}}", 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Body body = read_body(cases[i].body, API_CHAT);
        Error error = {0};
        ApiAttention attention = {.policy = 9};
        cr_assert(body.ok, "%s", body.error.text);
        bool ok = api_longwave_attention(&body.params.longwave, &served, &attention, &error);
        cr_expect(ok == (cases[i].policy != 9) && attention.policy == cases[i].policy, "%s", cases[i].body);
        cr_expect(wish_is_plain(&attention.wish));
        cr_expect(ok || (strstr(error.text, "'dense', 'dense' with roles 'half', 'stream' with roles 'half'") &&
                         !strcmp(error.param, "longwave.attention")),
                  "%s", error.text);
        cJSON_Delete(body.json);
    }
    refuse("{\"longwave\":{\"attention\":7}}", API_CHAT, ERR_INVALID, "longwave.attention");
    refuse("{\"longwave\":{\"attention\":{\"preset\":7}}}", API_CHAT, ERR_INVALID, "longwave.attention.preset");
    refuse("{\"longwave\":{\"progress\":1}}", API_CHAT, ERR_INVALID, "longwave.progress");
    refuse("{\"longwave\":{\"progress\":true}}", API_CHAT, ERR_INVALID, "longwave.progress");
    refuse("{\"longwave\":[]}", API_COMPLETION, ERR_INVALID, "longwave");
    Body body = read_body("{\"longwave\":{\"progress\":true},\"stream\":true,\"cache_salt\":\"s\"}", API_COMPLETION);
    cr_expect(body.ok && body.params.longwave.progress && !strcmp(body.params.cache_salt, "s"));
    cJSON_Delete(body.json);
    refuse("{\"cache_salt\":\"\"}", API_CHAT, ERR_INVALID, "cache_salt");
}
