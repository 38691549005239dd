/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/server/body_rig.h"

#include <stdio.h>

Test(api_params, defaults_are_openais)
{
    Body body = read_body("{}", API_CHAT);
    cr_assert(body.ok);
    const ApiParams *params = &body.params;
    cr_expect(params->sampling.temperature == 1 && params->top_p == 1 && params->n == 1);
    SamplingParams plain;
    sampling_defaults(&plain);
    const SamplingParams *s = &params->sampling;
    cr_expect(s->typical_p == plain.typical_p && s->repetition_penalty == 1 && s->repeat_last_n == plain.repeat_last_n);
    cr_expect(s->xtc_threshold == plain.xtc_threshold && s->dynatemp_exponent == 1 &&
              s->mirostat_tau == plain.mirostat_tau);
    cr_expect(s->dry_base == plain.dry_base && s->n_dry_breakers == plain.n_dry_breakers);
    cr_expect(eq(i64, api_params_max_tokens(params), -1));
    cr_expect_not(params->has_breakers);
    cr_expect_not(params->stream || params->has_seed || params->logprobs || params->echo || params->ignore_eos);
    cr_expect(params->add_generation_prompt);
    cr_expect(eq(u32, params->unknown_fields, 0));
    cJSON_Delete(body.json);
}

Test(api_params, every_number_is_range_checked)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"temperature\":-0.1}", "temperature"},
        {"{\"temperature\":2.1}", "temperature"},
        {"{\"temperature\":\"1\"}", "temperature"},
        {"{\"top_p\":1.5}", "top_p"},
        {"{\"min_p\":-1}", "min_p"},
        {"{\"top_k\":-2}", "top_k"},
        {"{\"top_k\":1.5}", "top_k"},
        {"{\"presence_penalty\":3}", "presence_penalty"},
        {"{\"frequency_penalty\":-3}", "frequency_penalty"},
        {"{\"repetition_penalty\":0}", "repetition_penalty"},
        {"{\"seed\":1e19}", "seed"},
        {"{\"seed\":\"a\"}", "seed"},
        {"{\"max_tokens\":-1}", "max_tokens"},
        {"{\"max_tokens\":\"5\"}", "max_tokens"},
        {"{\"max_tokens\":2,\"max_completion_tokens\":3}", "max_tokens"},
        {"{\"min_tokens\":5,\"max_tokens\":4}", "min_tokens"},
        {"{\"n\":0}", "n"},
        {"{\"n\":129}", "n"},
        {"{\"stream\":\"false\"}", "stream"},
        {"{\"stream\":0}", "stream"},
        {"{\"timeout_s\":0}", "timeout_s"},
        {"{\"priority\":1e9}", "priority"},
        {"{\"typical_p\":1.01}", "typical_p"},
        {"{\"typical_p\":\"1\"}", "typical_p"},
        {"{\"top_n_sigma\":-2}", "top_n_sigma"},
        {"{\"xtc_probability\":1.1}", "xtc_probability"},
        {"{\"xtc_threshold\":-0.1}", "xtc_threshold"},
        {"{\"dynatemp_range\":-1}", "dynatemp_range"},
        {"{\"dynatemp_exponent\":-1}", "dynatemp_exponent"},
        {"{\"mirostat\":3}", "mirostat"},
        {"{\"mirostat\":true}", "mirostat"},
        {"{\"mirostat_tau\":-1}", "mirostat_tau"},
        {"{\"mirostat_eta\":1.5}", "mirostat_eta"},
        {"{\"dry_multiplier\":-0.8}", "dry_multiplier"},
        {"{\"dry_base\":1e9}", "dry_base"},
        {"{\"dry_allowed_length\":0.5}", "dry_allowed_length"},
        {"{\"dry_penalty_last_n\":32769}", "dry_penalty_last_n"},
        {"{\"repeat_last_n\":-2}", "repeat_last_n"},
        {"{\"repeat_penalty\":0}", "repeat_penalty"},
        {"{\"repeat_penalty\":1.1,\"repetition_penalty\":1}", "repeat_penalty"},
        {"{\"dry_sequence_breakers\":\"a\"}", "dry_sequence_breakers"},
        {"{\"dry_sequence_breakers\":[\"a\",\"\"]}", "dry_sequence_breakers[1]"},
        {"{\"dry_sequence_breakers\":[1]}", "dry_sequence_breakers[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].body, API_CHAT, ERR_INVALID, cases[i].param);
}

Test(api_params, sampling_fields_arrive)
{
    Body body =
        read_body("{\"temperature\":0.5,\"min_p\":0.25,\"typical_p\":0.75,\"top_n_sigma\":-1,\"repeat_penalty\":1.5,"
                  "\"repeat_last_n\":64,\"xtc_probability\":0.5,\"xtc_threshold\":0.125,\"dynatemp_range\":0.5,"
                  "\"dynatemp_exponent\":2,\"mirostat\":2,\"mirostat_tau\":4,\"mirostat_eta\":0.25,"
                  "\"dry_multiplier\":0.75,\"dry_base\":2,\"dry_allowed_length\":3,\"dry_penalty_last_n\":-1,"
                  "\"dry_sequence_breakers\":[\"x\",\"\\n\"]}",
                  API_COMPLETION);
    cr_assert(body.ok, "%s", body.error.text);
    const SamplingParams *s = &body.params.sampling;
    cr_expect(s->temperature == 0.5f && s->min_p == 0.25f && s->typical_p == 0.75f && s->top_n_sigma == -1);
    cr_expect(s->repetition_penalty == 1.5f && s->repeat_last_n == 64);
    cr_expect(s->xtc_probability == 0.5f && s->xtc_threshold == 0.125f);
    cr_expect(s->dynatemp_range == 0.5f && s->dynatemp_exponent == 2);
    cr_expect(s->mirostat == 2 && s->mirostat_tau == 4 && s->mirostat_eta == 0.25f);
    cr_expect(s->dry_multiplier == 0.75f && s->dry_base == 2 && s->dry_allowed_length == 3 &&
              s->dry_penalty_last_n == -1);
    cr_expect(body.params.has_breakers && body.params.n_breakers == 2);
    cr_expect(eq(str, (char *)body.params.breakers[1], "\n"));
    cr_expect(eq(u32, body.params.unknown_fields, 0));
    cJSON_Delete(body.json);
    body = read_body("{\"repeat_penalty\":1.5,\"repetition_penalty\":1.5,\"dry_sequence_breakers\":[]}", API_CHAT);
    cr_expect(body.ok && body.params.sampling.repetition_penalty == 1.5f && body.params.has_breakers);
    cJSON_Delete(body.json);
}

Test(api_params, stops_ids_and_biases_are_bounded_by_the_vocabulary)
{
    refuse("{\"stop\":\"\"}", API_CHAT, ERR_INVALID, "stop");
    refuse("{\"stop\":[\"a\",\"\"]}", API_CHAT, ERR_INVALID, "stop[1]");
    refuse("{\"stop\":5}", API_CHAT, ERR_INVALID, "stop");
    refuse("{\"stop\":[5]}", API_CHAT, ERR_INVALID, "stop[0]");
    refuse("{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\","
           "\"16\","
           "\"17\"]}",
           API_CHAT, ERR_INVALID, "stop");
    refuse("{\"stop_token_ids\":[1,1000]}", API_CHAT, ERR_INVALID, "stop_token_ids[1]");
    refuse("{\"stop_token_ids\":[-1]}", API_CHAT, ERR_INVALID, "stop_token_ids[0]");
    refuse("{\"logit_bias\":[]}", API_CHAT, ERR_INVALID, "logit_bias");
    Body body = read_body("{\"stop\":[\"ab\",\"c\"],\"stop_token_ids\":[0,999]}", API_COMPLETION);
    cr_assert(body.ok);
    cr_expect(eq(u32, body.params.n_stops, 2));
    cr_expect(eq(str, (char *)body.params.stops[0], "ab"));
    cr_expect(eq(u32, body.params.n_stop_ids, 2));
    cr_expect(eq(u32, body.params.stop_ids[1], 999));
    cJSON_Delete(body.json);
}

static bool read_bias(const char *text, LogitBias **bias, uint32_t *n, Error *error, Arena *arena, cJSON **json)
{
    Body body = read_body(text, API_CHAT);
    cr_assert(body.ok);
    *json = body.json;
    return api_params_bias(&body.params, N_VOCAB, arena, bias, n, error);
}

Test(api_params, logit_bias_names_known_tokens_once)
{
    static const char *const wrong[] = {
        "{\"logit_bias\":{\"1000\":1}}",       "{\"logit_bias\":{\"-1\":1}}",         "{\"logit_bias\":{\"a\":1}}",
        "{\"logit_bias\":{\"\":1}}",           "{\"logit_bias\":{\"5\":101}}",        "{\"logit_bias\":{\"5\":\"1\"}}",
        "{\"logit_bias\":{\"5\":1,\"05\":2}}", "{\"logit_bias\":{\"4294967297\":1}}", "{\"logit_bias\":{\"5\":null}}",
    };
    Arena arena;
    Error error;
    LogitBias *bias;
    uint32_t n;
    cJSON *json;
    arena_init(&arena, 4096, SIZE_MAX);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_not(read_bias(wrong[i], &bias, &n, &error, &arena, &json), "accepted: %s", wrong[i]);
        cr_expect(strncmp(error.param, "logit_bias", 10) == 0);
        cJSON_Delete(json);
    }
    cr_assert(read_bias("{\"logit_bias\":{\"7\":-100,\"3\":2.5}}", &bias, &n, &error, &arena, &json));
    cr_expect(eq(u32, n, 2));
    cr_expect(bias[0].id == 3 && bias[0].bias == 2.5f && bias[1].id == 7 && bias[1].bias == -100);
    cJSON_Delete(json);
    arena_done(&arena);
}

Test(api_params, logprobs_have_two_forms)
{
    refuse("{\"logprobs\":1}", API_CHAT, ERR_INVALID, "logprobs");
    refuse("{\"logprobs\":true}", API_COMPLETION, ERR_INVALID, "logprobs");
    refuse("{\"top_logprobs\":2}", API_CHAT, ERR_INVALID, "top_logprobs");
    refuse("{\"logprobs\":true,\"top_logprobs\":21}", API_CHAT, ERR_INVALID, "top_logprobs");
    Body body = read_body("{\"logprobs\":true}", API_CHAT);
    cr_assert(body.ok && body.params.logprobs);
    cr_expect(eq(i64, body.params.top_logprobs, 0));
    cJSON_Delete(body.json);
    body = read_body("{\"logprobs\":0}", API_COMPLETION);
    cr_assert(body.ok && body.params.logprobs);
    cJSON_Delete(body.json);
}

#define NAMED(name)                                                                                                    \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\"},\"strict\":true}" \
    "}"
#define TOOL NAMED("f")
#define ALLOWED(mode, tool)                                                                                            \
    "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode "\",\"tools\":[" tool "]}}"

Test(api_params, a_choice_says_which_tools_may_be_called)
{
    static const struct {
        const char *choice;
        ToolChoice is;
        bool may_call, f, g;
    } cases[] = {
        {"\"auto\"", TOOLS_AUTO, true, true, true},
        {"\"none\"", TOOLS_NONE, false, true, true},
        {"null", TOOLS_AUTO, true, true, true},
        {"\"required\"", TOOLS_REQUIRED, true, true, true},
        {NAMED("g"), TOOLS_NAMED, true, false, true},
        {ALLOWED("auto", NAMED("g")), TOOLS_AUTO, true, false, true},
        {ALLOWED("required", NAMED("f")), TOOLS_REQUIRED, true, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"parallel_tool_calls\":%s,\"tool_choice\":%s,\"tools\":[" TOOL "," NAMED("g") "]}",
                 i ? "false" : "true", cases[i].choice);
        Body body = read_body(text, API_CHAT);
        cr_assert(body.ok, "%s: %s", text, body.error.text);
        const ApiTools *tools = &body.params.tools;
        cr_expect(tools->choice == cases[i].is && api_tools_may_call(tools) == cases[i].may_call);
        cr_expect_eq(api_tools_allows(tools, tools->list->child), cases[i].f);
        cr_expect_eq(api_tools_allows(tools, tools->list->child->next), cases[i].g);
        cr_expect_eq(tools->one_call, i > 0);
        cJSON_Delete(body.json);
    }
}

Test(api_params, tools_have_a_form)
{
    refuse("{\"tools\":{}}", API_CHAT, ERR_INVALID, "tools");
    refuse("{\"tools\":[1],\"tool_choice\":\"none\"}", API_CHAT, ERR_INVALID, "tools[0]");
    refuse("{\"tools\":[{}],\"tool_choice\":\"none\"}", API_CHAT, ERR_INVALID, "tools[0].type");
    refuse("{\"tools\":[{\"type\":\"function\"}]}", API_CHAT, ERR_INVALID, "tools[0].function");
    refuse("{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]}", API_CHAT, ERR_INVALID,
           "tools[0].function.name");
    refuse("{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}", API_CHAT,
           ERR_INVALID, "tools[0].function.parameters");
    refuse("{\"tools\":[" NAMED("f g") "]}", API_CHAT, ERR_INVALID, "tools[0].function.name");
    refuse("{\"tools\":[" TOOL "," TOOL "]}", API_CHAT, ERR_INVALID, "tools[1].function.name");
    refuse("{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]}", API_CHAT, ERR_INVALID,
           "tools[0].function.strict");
    char many[2048] = "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"";
    for (int i = 0; i < 64; i++) sprintf(many + strlen(many), ",\"m%d\":0", i);
    strcat(many, "}}]}");
    refuse(many, API_CHAT, ERR_INVALID, "tools[0].function");
    refuse("{\"tool_choice\":\"a|\"}", API_CHAT, ERR_INVALID, "tool_choice");
    refuse("{\"tool_choice\":1}", API_CHAT, ERR_INVALID, "tool_choice");
    refuse("{\"tool_choice\":\"required\"}", API_CHAT, ERR_INVALID, "tool_choice");
    refuse("{\"tool_choice\":{\"type\":\"function\"}}", API_CHAT, ERR_INVALID, "tool_choice.function");
    refuse("{\"tools\":[" TOOL "],\"tool_choice\":" NAMED("g") "}", API_CHAT, ERR_INVALID, "tool_choice.function.name");
    refuse("{\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("auto", NAMED("g")) "}", API_CHAT, ERR_INVALID,
           "tool_choice.allowed_tools.tools");
    refuse("{\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("auto", "") "}", API_CHAT, ERR_INVALID,
           "tool_choice.allowed_tools.tools");
    refuse("{\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("any time", TOOL) "}", API_CHAT, ERR_INVALID,
           "tool_choice.allowed_tools.mode");
}

Test(api_params, what_would_change_the_answer_is_refused)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"tools\":[{\"type\":\"retrieval\"}]}", "tools[0].type"},
        {"{\"best_of\":2}", "best_of"},
        {"{\"modalities\":[\"text\",\"audio\"]}", "modalities"},
        {"{\"longwave\":{\"attention\":{\"preset\":\"dense\",\"pages\":9}}}", "longwave.attention.pages"},
        {"{\"longwave\":{\"attention\":{\"wavelength\":{\"both\":9}}}}", "longwave.attention.wavelength.both"},
        {"{\"longwave\":{\"x\":1}}", "longwave.x"},
        {"{\"structured_outputs\":{\"structural_tag\":\"x\"}}", "structured_outputs.structural_tag"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].body, API_CHAT, ERR_UNSUPPORTED, cases[i].param);
    Body body =
        read_body("{\"tools\":[],\"tool_choice\":\"auto\",\"response_format\":{\"type\":\"text\"},\"grammar\":null,"
                  "\"best_of\":1,\"modalities\":[\"text\"],"
                  "\"longwave\":{\"attention\":\"dense\"},\"regex\":\"\",\"use_beam_search\":false}",
                  API_CHAT);
    cr_expect(body.ok, "%s", body.error.text);
    cr_expect(eq(u32, body.params.unknown_fields, 0));
    cJSON_Delete(body.json);
}

Test(api_params, an_answer_follows_one_field_at_most)
{
    static const struct {
        const char *body, *path;
        ApiGuideKind kind;
    } cases[] = {
        {"{\"grammar\":\"root ::= x\"}", "grammar", API_GUIDE_GRAMMAR},
        {"{\"guided_grammar\":\"root ::= x\",\"regex\":\"\"}", "guided_grammar", API_GUIDE_GRAMMAR},
        {"{\"regex\":\"a\",\"choice\":null,\"grammar\":\"\"}", "regex", API_GUIDE_REGEX},
        {"{\"guided_regex\":\"a\"}", "guided_regex", API_GUIDE_REGEX},
        {"{\"choice\":[\"a\",\"\"]}", "choice", API_GUIDE_CHOICE},
        {"{\"guided_choice\":[\"a\"]}", "guided_choice", API_GUIDE_CHOICE},
        {"{\"structured_outputs\":{\"regex\":null,\"choice\":[\"a\"]}}", "structured_outputs.choice", API_GUIDE_CHOICE},
        {"{\"response_format\":{\"type\":\"json_object\"}}", "response_format", API_GUIDE_JSON_OBJECT},
        {"{\"response_format\":{\"type\":\"json_object\",\"schema\":{}}}", "response_format.schema", API_GUIDE_SCHEMA},
        {"{\"response_format\":{\"type\":\"text\"},\"guided_json\":{}}", "guided_json", API_GUIDE_SCHEMA},
        {"{\"json_schema\":\"{}\",\"structured_outputs\":{\"json_object\":false}}", "json_schema", API_GUIDE_SCHEMA},
        {"{\"structured_outputs\":{\"json\":{}}}", "structured_outputs.json", API_GUIDE_SCHEMA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Body body = read_body(cases[i].body, i % 2 ? API_CHAT : API_COMPLETION);
        cr_assert(body.ok, "%s", body.error.text);
        cr_expect_eq(body.params.guide.kind, cases[i].kind, "%s", cases[i].body);
        cr_expect_str_eq(body.params.guide.path, cases[i].path);
        cJSON_Delete(body.json);
    }
    refuse("{\"regex\":\"a\",\"grammar\":\"b\"}", API_CHAT, ERR_INVALID, "grammar");
    refuse("{\"regex\":\"a\",\"structured_outputs\":{\"choice\":[\"b\"]}}", API_CHAT, ERR_INVALID,
           "structured_outputs.choice");
    refuse("{\"regex\":[\"a\"]}", API_CHAT, ERR_INVALID, "regex");
    refuse("{\"choice\":\"a\"}", API_CHAT, ERR_INVALID, "choice");
    refuse("{\"choice\":[\"a\",1]}", API_CHAT, ERR_INVALID, "choice[1]");
    refuse("{\"structured_outputs\":[]}", API_CHAT, ERR_INVALID, "structured_outputs");
}

Test(api_params, a_choice_or_schema_that_is_empty_is_refused)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"choice\":[]}", "choice"},
        {"{\"guided_choice\":[]}", "guided_choice"},
        {"{\"structured_outputs\":{\"choice\":[]}}", "structured_outputs.choice"},
        {"{\"structured_outputs\":{\"json\":\"\"}}", "structured_outputs.json"},
        {"{\"guided_json\":\"\"}", "guided_json"},
        {"{\"json_schema\":\"\"}", "json_schema"},
        {"{\"response_format\":{\"type\":\"json_object\",\"schema\":\"\"}}", "response_format.schema"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].body, i % 2 ? API_CHAT : API_COMPLETION, ERR_INVALID, cases[i].param);
}

#define FORMAT(members) "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":" members "}}"

Test(api_params, a_schema_of_response_format_is_checked_as_openai_does)
{
    Body body =
        read_body(FORMAT("{\"name\":\"a-B_1\",\"description\":\"d\",\"strict\":true,\"schema\":{\"type\":\"object\"}}"),
                  API_CHAT);
    cr_assert(body.ok, "%s", body.error.text);
    cr_expect_eq(body.params.guide.kind, API_GUIDE_SCHEMA);
    cr_expect_str_eq(body.params.guide.path, "response_format.json_schema.schema");
    cr_expect(body.params.guide.is_strict);
    cJSON_Delete(body.json);
    body = read_body(FORMAT("{\"name\":\"a\",\"strict\":null,\"schema\":{}}"), API_COMPLETION);
    cr_expect(body.ok && !body.params.guide.is_strict);
    cJSON_Delete(body.json);
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"response_format\":\"json_object\"}", "response_format"},
        {"{\"response_format\":{}}", "response_format.type"},
        {"{\"response_format\":{\"type\":\"xml\"}}", "response_format.type"},
        {"{\"response_format\":{\"type\":1}}", "response_format.type"},
        {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format.json_schema"},
        {FORMAT("[]"), "response_format.json_schema"},
        {FORMAT("{\"schema\":{}}"), "response_format.json_schema.name"},
        {FORMAT("{\"name\":\"a b\",\"schema\":{}}"), "response_format.json_schema.name"},
        {FORMAT("{\"name\":\"\",\"schema\":{}}"), "response_format.json_schema.name"},
        {FORMAT("{\"name\":\"a\"}"), "response_format.json_schema.schema"},
        {FORMAT("{\"name\":\"a\",\"schema\":\"{}\"}"), "response_format.json_schema.schema"},
        {FORMAT("{\"name\":\"a\",\"schema\":{},\"strict\":1}"), "response_format.json_schema.strict"},
        {FORMAT("{\"name\":\"a\",\"schema\":{},\"description\":1}"), "response_format.json_schema.description"},
        {"{\"response_format\":{\"type\":\"json_object\"},\"regex\":\"a\"}", "regex"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].body, API_CHAT, ERR_INVALID, cases[i].param);
}

Test(api_params, unknown_fields_are_counted)
{
    Body body =
        read_body("{\"frobnicate\":1,\"echo\":\"x\",\"Temperature\":9,\"user\":\"u\",\"metadata\":{}}", API_CHAT);
    cr_assert(body.ok, "%s", body.error.text);
    cr_expect(eq(u32, body.params.unknown_fields, 3));
    cJSON_Delete(body.json);
}

Test(api_params, fields_must_fit_together)
{
    refuse("{\"stream_options\":{\"include_usage\":true}}", API_CHAT, ERR_INVALID, "stream_options");
    refuse("{\"stream\":true,\"stream_options\":{\"include_usage\":1}}", API_CHAT, ERR_INVALID,
           "stream_options.include_usage");
    refuse("{\"continue_final_message\":true,\"add_generation_prompt\":true}", API_CHAT, ERR_INVALID,
           "continue_final_message");
    Body body = read_body("{\"continue_final_message\":true}", API_CHAT);
    cr_assert(body.ok);
    cr_expect_not(body.params.add_generation_prompt);
    cJSON_Delete(body.json);
    for (ApiRoute route = API_CHAT; route <= API_COMPLETION; route++) {
        body = read_body("{\"max_tokens\":0}", route);
        cr_expect(body.ok && api_params_max_tokens(&body.params) == 0);
        cJSON_Delete(body.json);
    }
}
