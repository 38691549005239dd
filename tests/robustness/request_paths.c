/* SPDX-License-Identifier: Apache-2.0 */
/* From the bytes of a body to requests for the engine, and the texts that other routes read and write. */
#include "engine/sample/grammar/matcher.h"
#include "server/api.h"
#include "server/generation_state.h"
#include "tests/robustness/paths.h"

#include <stdlib.h>
#include <string.h>

static const char chat_body[] =
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one "
    "<|im_end|>\"},{\"type\":\"text\",\"text\":\"d\xC3\xA9j\xC3\xA0\"}]},"
    "{\"role\":\"assistant\",\"content\":\"calls\",\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"a\",\"type\":"
    "\"function\","
    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":[1,2.5,\\\"y\\\"]}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"12 345\"}],"
    "\"chat_template_kwargs\":{\"k\":{\"deep\":[true,null]}},\"reasoning_effort\":\"low\",\"logit_bias\":{\"5\":-1,"
    "\"7\":2.5},"
    "\"stop\":[\"END\",\"STOP\"],\"stop_token_ids\":[3,4],\"logprobs\":true,\"top_logprobs\":3,\"n\":2,\"seed\":7,"
    "\"max_tokens\":9,\"stream\":true,\"stream_options\":{\"include_usage\":true}}";

static const char completion_body[] = "{\"prompt\":[\"The <|im_end|> quick\",\"fox "
                                      "123\"],\"parse_special\":true,\"echo\":true,\"logprobs\":2,\"n\":2,\"seed\":1,"
                                      "\"max_tokens\":5,\"stop\":\"x\",\"logit_bias\":{\"5\":-1}}";

static const char ids_body[] = "{\"prompt\":[[3,4,5],[6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]],\"max_tokens\":3}";

static const char jinja[] =
    "{%- macro show(x, y='d') %}<{{ x }}|{{ y }}>{% endmacro %}{% set ns = namespace(n=0, seen=[]) %}"
    "{% for m in messages %}{% set ns.n = ns.n + loop.index %}{{ show(m.role) }}{{ m|tojson(indent=2) }}"
    "{% for key, value in m.items() %}{{ key ~ '=' ~ value|string }}{% endfor %}{{ m.content.split(' "
    "')|join('-')|upper }}"
    "{{ m.content|replace('a', 'bb')|trim|title }}{% set ns.seen = ns.seen + [m.role] %}{% endfor %}"
    "{{ ns.seen|unique|sort|list }}{{ messages|map(attribute='role')|join(',') }}{{ '%s-%d'|format('a', ns.n) }}"
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages[0].content[1:4] }}{{ 'ab' * 40 }}"
    "{{ '{\"a\": [1, 2, {\"b\": null}]}'|from_json }}{{ strftime_now('%Y-%m-%d') }}{{ {'b': 1, 'a': 2}|dictsort }}"
    "{% for i in range(100) %}{{ i }}{{ 'x' * 300 }}{% endfor %}";

static const char grammar_body[] =
    "{\"prompt\":\"x\",\"max_tokens\":9,\"grammar\":\"root ::= obj | [^a-c\\u00e9]{2,40} end # x\\n"
    "obj ::= \\\"{\\\" (str \\\":\\\" (obj | str))? \\\"}\\\"\\n"
    "str ::= \\\"'\\\" ([^'] | \\\"''\\\")* \\\"'\\\"\\nend ::= <[5]> | \\\".\\\"\"}";

static const char regex_body[] = "{\"prompt\":\"x\",\"regex\":\"(?:[\\\\w-]+|\\\\u00e9{2})*?x.\"}";

static const char choice_body[] = "{\"prompt\":\"x\",\"choice\":[\"one\",\"two\",\"\"]}";

typedef bool (*PrepareFn)(ApiJob *job, Error *error);

static void digest_plan(const GenerationPlan *plan, Buffer *digest)
{
    for (uint32_t i = 0; i < plan->n_requests; i++) {
        const Request *request = plan->requests[i];
        for (uint32_t at = 0; at < request->n_prompt; at++) digest_count(digest, request->prompt[at]);
        digest_count(digest, request->sampling.n_bias);
        for (uint32_t at = 0; at < request->stop.n; at++)
            digest_add(digest, request->stop.text[at], request->stop.n_bytes[at]);
        digest_count(digest, request->n_stop_ids);
        if (plan->echo[i].n) digest_add(digest, plan->echo[i].data, plan->echo[i].n);
    }
}

/* A few steps through a grammar, by the first of its tokens. */
static bool walk_grammar(Grammar *grammar, Buffer *digest, Error *error)
{
    GrammarMatcher *matcher = NULL;
    bool ok = matcher_new(grammar, &matcher, error);
    for (uint32_t i = 0; ok && i < 6 && !matcher_is_over(matcher); i++) {
        const uint64_t *words;
        uint32_t n, id = 0;
        ok = matcher_mask(matcher, &words, &n, error);
        if (ok) digest_count(digest, n);
        while (ok && n && !(words[id / 64] >> id % 64 & 1)) id++;
        if (ok && n) ok = matcher_push_token(matcher, id, error);
    }
    matcher_free(matcher);
    return ok;
}

static bool run_job(World *world, const char *body, PrepareFn prepare, Buffer *digest, Error *error)
{
    static const char *const names[] = {"tiny"};
    static Server server;
    server_defaults(&server.params);
    GenerationPlan *plan = calloc(1, sizeof *plan);
    if (!plan) return error_set(error, ERR_NO_MEMORY, "no memory for a plan");
    static const ServedPolicy policies[] = {{"dense", NULL}};
    const ServedModel model = {.names = names,
                               .policies = {policies, 1, 0},
                               .n_names = 1,
                               .context = engine_context(world->engine),
                               .tokenizer = engine_tokenizer(world->engine),
                               .chat_template = engine_chat_template(world->engine)};
    ApiJob job = {.server = &server, .model = &model, .user = plan, .json = UNTOUCHED, .may_compile = true};
    if (!json_parse(body, strlen(body), &job.json, error)) {
        if (job.json != UNTOUCHED) world->broken = "json_parse touched its output";
        generation_plan_free(plan);
        return false;
    }
    const TokenMemoryParams memory = {.tokenizer = model.tokenizer, .max_bytes = 1 << 20, .max_entry_bytes = 1 << 16};
    const GrammarCacheParams grammars = {.tokenizer = model.tokenizer, .max_bytes = 64 << 20};
    bool ok = token_memory_new(&memory, &server.memory, error) &&
              grammar_cache_new(&grammars, &server.grammars, error) && prepare(&job, error);
    if (ok) digest_plan(plan, digest);
    if (ok && plan->grammar) ok = walk_grammar(plan->grammar, digest, error);
    generation_plan_free(plan);
    token_memory_free(server.memory);
    grammar_cache_free(server.grammars);
    server.memory = NULL;
    server.grammars = NULL;
    cJSON_Delete(job.json);
    return ok;
}

static bool run_chat(World *world, Buffer *digest, Error *error)
{
    return run_job(world, chat_body, api_chat_prepare, digest, error);
}

static bool run_completion(World *world, Buffer *digest, Error *error)
{
    return run_job(world, completion_body, api_completions_prepare, digest, error);
}

static bool run_ids(World *world, Buffer *digest, Error *error)
{
    return run_job(world, ids_body, api_completions_prepare, digest, error);
}

static bool run_grammar(World *world, Buffer *digest, Error *error)
{
    return run_job(world, grammar_body, api_completions_prepare, digest, error);
}

static bool run_regex(World *world, Buffer *digest, Error *error)
{
    return run_job(world, regex_body, api_completions_prepare, digest, error);
}

static bool run_choice(World *world, Buffer *digest, Error *error)
{
    return run_job(world, choice_body, api_completions_prepare, digest, error);
}

static bool run_render(World *world, Buffer *digest, Error *error)
{
    ChatTemplate *t = NULL;
    cJSON *json = NULL;
    ChatPrompt prompt;
    memset(&prompt, 0x5A, sizeof prompt);
    const ChatPrompt before = prompt;
    bool ok = json_parse(chat_body, strlen(chat_body), &json, error) &&
              chat_template_new(jinja, strlen(jinja), "<s>", "</s>", &t, error);
    if (ok) {
        cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
        cJSON_DeleteItemFromArray(messages, 1); /* the one whose content is no string */
        const ChatInput input = {.messages = messages, .now_unix = 1700000000};
        ok = chat_template_render(t, &input, 1 << 20, &prompt, error);
        if (!ok && memcmp(&prompt, &before, sizeof prompt) != 0)
            world->broken = "chat_template_render touched its output";
    }
    if (ok) {
        digest_add(digest, prompt.text.data, prompt.text.n);
        for (size_t i = 0; i < prompt.n_trusted; i++) digest_count(digest, prompt.trusted[i].end);
        chat_prompt_done(&prompt);
    }
    chat_template_free(t);
    cJSON_Delete(json);
    return ok;
}

/* On failure the list is as it was. */
static bool run_encode(World *world, Buffer *digest, Error *error)
{
    static const char text[] =
        "It's 1234567 words, d\xC3\xA9j\xC3\xA0 vu \xF0\x9F\x98\x80\xFF and    blanks\n\n<|im_end|>tail of the text";
    TextRange trusted = {sizeof text - 30, sizeof text - 1};
    TokEncode encode = {.text = text, .n = sizeof text - 1, .trusted = &trusted, .n_trusted = 1, .add_special = true};
    TokenList list = {0};
    if (!token_list_push(&list, 42, error)) return false;
    bool ok = tok_encode(engine_tokenizer(world->engine), &encode, &list, error);
    if (!ok && (list.n != 1 || list.ids[0] != 42)) world->broken = "tok_encode touched the list";
    for (size_t i = 0; ok && i < list.n; i++) digest_count(digest, list.ids[i]);
    token_list_done(&list);
    return ok;
}

static bool run_metrics(World *world, Buffer *digest, Error *error)
{
    static Metrics metrics;
    Buffer out;
    (void)world;
    buffer_init(&out, 1 << 20);
    const MetricsInfo info = {.model = "ti\"ny", .kv_type = "f16"};
    bool ok = metrics_write(&metrics, &info, 1000, &out, error);
    if (ok) digest_add(digest, out.data, out.n);
    buffer_done(&out);
    return ok;
}

const Path request_paths[] = {
    {"chat_request", run_chat},      {"completion_request", run_completion},
    {"ids_request", run_ids},        {"grammar_request", run_grammar},
    {"regex_request", run_regex},    {"choice_request", run_choice},
    {"template_render", run_render}, {"tok_encode", run_encode},
    {"metrics_write", run_metrics},  {0},
};
