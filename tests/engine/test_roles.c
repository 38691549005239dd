/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/select/roles.h"
#include "tests/support/engine_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Error error;
static const ModelShape shape = {.n_layers = 3, .n_kv_heads = 2};
static const RolesModel model = {&shape, 0x0123456789abcdef};

static bool parse(const char *text, AttnPolicy *ret_policy)
{
    static Arena arena; /* of all tests of this process, which is small and ends */
    if (!arena.block_bytes) arena_init(&arena, 4096, 1 << 20);
    return roles_parse(text, strlen(text), "mine", &model, &arena, ret_policy, &error);
}

Test(test_roles, a_file_makes_a_policy)
{
    AttnPolicy policy;
    cr_assert(parse("{\"sink\": 128, \"recent\":256,\"recent_prefill\":2048, \"streaming\": "
                    "[{\"layer\":0,\"heads\":[1]}, {\"layer\":2,\"heads\":[0,1]}, {\"layer\":1,\"heads\":[]}]}\n",
                    &policy),
              "%s", error.text);
    static const uint8_t wanted[6] = {0, 1, 0, 0, 1, 1};
    cr_expect_str_eq(policy.roles->name, "mine");
    cr_expect_arr_eq(policy.roles->streams, wanted, 6);
    cr_expect(policy.sink == 128 && policy.recent_decode == 256 && policy.recent_prefill == 2048);
    cr_expect_not(policy_decodes_as_prefilled(&policy));
}

Test(test_roles, ranges_have_defaults)
{
    static const struct {
        const char *text;
        uint32_t sink, recent, recent_prefill;
    } cases[] = {{"{\"streaming\":[]}", 128, 256, 2048},
                 {"{\"sink\":0,\"recent\":64,\"streaming\":[]}", 0, 64, 2048},
                 {"{\"recent\":4096,\"streaming\":[]}", 128, 4096, 4096},
                 {"{\"recent\":4096,\"recent_prefill\":64,\"streaming\":[]}", 128, 4096, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AttnPolicy policy;
        cr_assert(parse(cases[i].text, &policy), "%s", error.text);
        cr_expect(policy.sink == cases[i].sink && policy.recent_decode == cases[i].recent &&
                      policy.recent_prefill == cases[i].recent_prefill,
                  "%s", cases[i].text);
    }
}

Test(test_roles, a_share_spreads_over_the_heads)
{
    static const struct {
        const char *list;
        uint32_t n;
    } cases[] = {{"some=50%", 12}, {"some=0%", 0}, {"some=100%", 24}, {"some=12.5%", 3}, {"some=70%", 16}};
    const ModelShape large = {.n_layers = 3, .n_kv_heads = 8};
    const RolesModel of_large = {&large, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena arena;
        const AttnPolicy *policies;
        uint32_t n = 0, n_streams = 0;
        arena_init(&arena, 4096, 1 << 20);
        cr_assert(roles_load(cases[i].list, &of_large, &arena, &policies, &n, &error), "%s", error.text);
        for (uint32_t h = 0; h < 24; h++) n_streams += policies[1].roles->streams[h];
        cr_expect(n == 2 && n_streams == cases[i].n, "%s: %u", cases[i].list, n_streams);
        cr_expect(policies[1].sink == 128 && policies[1].recent_decode == 256 && policies[1].recent_prefill == 2048);
        for (uint32_t h = 0; h < 24 && i == 0; h++) cr_expect_eq(policies[1].roles->streams[h], h % 2);
        arena_done(&arena);
    }
    Arena arena;
    const AttnPolicy *policies;
    uint32_t n;
    arena_init(&arena, 4096, 1 << 20);
    cr_expect_not(roles_load("some=101%", &of_large, &arena, &policies, &n, &error));
    cr_expect(strstr(error.text, "101%"), "%s", error.text);
    arena_done(&arena);
}

Test(test_roles, what_breaks_the_rules_is_named)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"", "no JSON"},
        {"{", "no JSON"},
        {"{\"recent\":64,\"streaming\":[]} x", "no JSON"},
        {"[]", "no object"},
        {"{\"recent\":64}", "streaming"},
        {"{\"recent\":64,\"streaming\":{}}", "streaming"},
        {"{\"recent\":64,\"streaming\":[3]}", "streaming"},
        {"{\"recent\":0,\"streaming\":[]}", "recent"},
        {"{\"recent\":63,\"streaming\":[]}", "recent"},
        {"{\"recent\":-64,\"streaming\":[]}", "recent"},
        {"{\"recent\":64.5,\"streaming\":[]}", "recent"},
        {"{\"recent\":1e300,\"streaming\":[]}", "recent"},
        {"{\"recent\":\"64\",\"streaming\":[]}", "recent"},
        {"{\"recent\":64,\"sink\":1,\"streaming\":[]}", "sink"},
        {"{\"recent\":64,\"recent_prefill\":0,\"streaming\":[]}", "recent_prefill"},
        {"{\"recent\":64,\"sinks\":64,\"streaming\":[]}", "sinks"},
        {"{\"recent\":64,\"recent\":128,\"streaming\":[]}", "twice"},
        {"{\"recent\":64,\"streaming\":[],\"model\":\"0123456789abcdee\"}",
         "0123456789abcdee, not for 0123456789abcdef"},
        {"{\"recent\":64,\"streaming\":[],\"model\":7}", "model"},
        {"{\"recent\":64,\"streaming\":[],\"longwave_calibration\":1}", "model"},
        {"{\"recent\":64,\"streaming\":[],\"longwave_calibration\":2}", "longwave_calibration"},
        {"{\"longwave_calibration\":1,\"model\":\"0123456789abcdef\"}", "come to its end"},
        {"{\"recent\":64,\"streaming\":[{\"heads\":[0]}]}", "layer"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":3,\"heads\":[0]}]}", "layer"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0.5,\"heads\":[0]}]}", "layer"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0}]}", "heads"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0,\"heads\":[2]}]}", "heads"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0,\"heads\":[-1]}]}", "heads"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0,\"heads\":[null]}]}", "heads"},
        {"{\"recent\":64,\"streaming\":[{\"layer\":0,\"heads\":[0],\"x\":1}]}", "x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        AttnPolicy policy = {.sink = 77};
        cr_expect_not(parse(bad[i].text, &policy), "%s", bad[i].text);
        cr_expect_str_eq(error.param, "roles");
        cr_expect(strstr(error.text, bad[i].word), "%s: %s", bad[i].text, error.text);
        cr_expect_eq(policy.sink, 77, "untouched");
    }
}

static void write_file(char *path, size_t n, const char *text)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, n, "%s/longwave-roles-XXXXXX", folder ? folder : "/tmp");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static bool load(const char *list, uint32_t *ret_n)
{
    Arena arena;
    const AttnPolicy *policies = NULL;
    arena_init(&arena, 4096, 1 << 20);
    bool ok = roles_load(list, &model, &arena, &policies, ret_n, &error);
    cr_assert_eq(policies != NULL, ok);
    if (ok) cr_assert_null(policies[0].roles);
    arena_done(&arena);
    return ok;
}

Test(test_roles, a_list_of_files)
{
    char path[256], bad[256], list[1200];
    uint32_t n = 9;
    write_file(path, sizeof path, "{\"recent\":64,\"streaming\":[{\"layer\":1,\"heads\":[0]}]}");
    write_file(bad, sizeof bad, "{\"recent\":65,\"streaming\":[]}");
    cr_expect(load(NULL, &n) && n == 1);
    snprintf(list, sizeof list, "a=%s,b=%s", path, path);
    cr_expect(load(list, &n) && n == 3, "%s", error.text);
    snprintf(list, sizeof list, "a=%s,a=%s", path, path);
    cr_expect_not(load(list, &n));
    cr_expect(strstr(error.text, "twice"), "%s", error.text);
    snprintf(list, sizeof list, "a=%s,b=%s", path, bad);
    cr_expect_not(load(list, &n));
    cr_expect(strstr(error.text, bad) && strstr(error.text, "recent"), "%s", error.text);
    static const char *const wrong[] = {"", "a", "a=", "=b", "a=/nonexistent/roles.json", "a=/", ","};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_not(load(wrong[i], &n), "'%s'", wrong[i]);
        cr_expect_str_eq(error.param, "roles");
    }
    size_t used = 0;
    for (char c = 'a'; c < 'a' + ROLES_MAX_POLICIES; c++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%c=%s", used ? "," : "", c, path);
    cr_expect_not(load(list, &n));
    cr_expect_eq(error.code, ERR_TOO_LARGE);
    unlink(path);
    unlink(bad);
}

Test(test_roles, an_engine_serves_them)
{
    char path[256], list[300];
    write_file(path, sizeof path,
               "{\"recent\":64,\"sink\":64,\"recent_prefill\":64,\"streaming\":[{\"layer\":1,\"heads\":[0, 1]}]}");
    snprintf(list, sizeof list, "late=%s", path);
    EngineParams params = engine_rig_params(kv_types_all(KV_F16), 1, 64);
    params.roles = list;
    Engine *engine = ENGINE_RIG(params, "layers=2");
    unlink(path);
    uint32_t n_classes;
    cr_assert(engine_policy(engine, 1) && !engine_policy(engine, 2));
    cr_expect_str_eq(engine_policy(engine, 1)->name, "dense");
    cr_expect_str_eq(engine_policy(engine, 1)->roles->name, "late");
    const KvClassInfo *classes = engine_policy_classes(engine, 1, &n_classes);
    cr_expect(n_classes == 2 && classes[1].n_slots == 2 && classes[1].window == 64 && classes[1].sink == 64);
    engine_close(engine);
}
