/* SPDX-License-Identifier: Apache-2.0 */
#include "server/api_answer.h"
#include "tests/support/tiny_model.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

typedef struct World {
    Buffer file, out_bytes;
    Gguf *gguf;
    Tokenizer *tokenizer;
    ApiAnswer answer;
    JsonOut out;
} World;

static void world_init(World *world, AnswerKind kind, bool logprobs)
{
    Error error;
    TinyModel tiny = tiny_model_default();
    *world = (World){0};
    buffer_init(&world->file, SIZE_MAX / 2);
    cr_assert(tiny_model_build(&tiny, &world->file, &error));
    cr_assert(gguf_open_memory(world->file.data, world->file.n, "tiny", &world->gguf, &error), "%s", error.text);
    cr_assert(tok_new(world->gguf, &world->tokenizer, &error), "%s", error.text);
    world->answer = (ApiAnswer){.kind = kind,
                                .id = "id-1",
                                .created_unix = 5,
                                .model = "a\"b",
                                .fingerprint = "fp",
                                .attention = {"dense", "ha\"lf"},
                                .tokenizer = world->tokenizer,
                                .want_logprobs = logprobs,
                                .n_top_logprobs = 2,
                                .n_choices = 2};
    cr_assert(api_answer_init(&world->answer, &error));
    buffer_init(&world->out_bytes, 1 << 20);
    json_begin(&world->out, &world->out_bytes);
}

static void world_done(World *world)
{
    api_answer_done(&world->answer);
    buffer_done(&world->out_bytes);
    tok_free(world->tokenizer);
    gguf_close(world->gguf);
    buffer_done(&world->file);
}

static void add(World *world, uint32_t choice, uint32_t id, float logprob, const char *text, bool is_prompt)
{
    Error error;
    EventToken token = {.sample = {.id = id, .logprob = logprob, .n_top = 1, .top = {{TINY_FIRST_BYTE, -INFINITY}}},
                        .text_bytes = (uint32_t)strlen(text)};
    TokensPayload payload = {
        .is_prompt = is_prompt, .n_tokens = 1, .tokens = &token, .text = (char *)text, .text_bytes = token.text_bytes};
    cr_assert(api_answer_add_tokens(&world->answer, choice, &payload, &error), "%s", error.text);
}

static void expect(const World *world, const char *needle)
{
    cr_expect(strstr(world->out_bytes.data, needle) != NULL, "no '%s' in: %s", needle, world->out_bytes.data);
}

static uint32_t byte_id(unsigned char byte)
{
    return TINY_FIRST_BYTE + byte;
}

Test(api_answer, whole_answers_are_valid_json)
{
    for (int kind = ANSWER_CHAT; kind <= ANSWER_COMPLETION; kind++) {
        World world;
        world_init(&world, (AnswerKind)kind, true);
        add(&world, 0, byte_id('x'), -0.25f, "x", false);
        add(&world, 1, byte_id('"'), NAN, "\"", false);
        api_answer_write_object(&world.answer, &world.out);
        cJSON *json = cJSON_Parse(world.out_bytes.data);
        cr_assert(json != NULL, "%s", world.out_bytes.data);
        cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "choices")), 2);
        expect(&world, "\"model\":\"a\\\"b\"");
        expect(&world, "-9999");
        expect(&world, "null");
        cJSON_Delete(json);
        world_done(&world);
    }
}

Test(api_answer, a_delta_is_written_once)
{
    World world;
    world_init(&world, ANSWER_CHAT, false);
    cr_expect_not(api_answer_has_delta(&world.answer, 1));
    add(&world, 1, byte_id('x'), 0, "x", false);
    cr_expect(api_answer_has_delta(&world.answer, 1));
    api_answer_write_delta(&world.answer, 1, &world.out);
    expect(&world,
           "\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    cr_expect_not(api_answer_has_delta(&world.answer, 1));
    cr_expect_not(api_answer_has_delta(&world.answer, 0));
    world_done(&world);
}

Test(api_answer, tokens_that_are_no_text_show_their_bytes)
{
    World world;
    world_init(&world, ANSWER_COMPLETION, true);
    add(&world, 0, byte_id(0xC3), -1, "", false);
    add(&world, 0, byte_id(0xA9), -1, "\xC3\xA9", false);
    add(&world, 0, byte_id('z'), -1, "z", false);
    api_answer_write_delta(&world.answer, 0, &world.out);
    expect(&world, "\"text\":\"\xC3\xA9z\"");
    expect(&world, "\"tokens\":[\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"z\"]");
    expect(&world, "\"text_offset\":[0,0,1]");
    world_done(&world);
    world_init(&world, ANSWER_CHAT, true);
    add(&world, 0, byte_id(0xC3), -1, "", false);
    api_answer_write_delta(&world.answer, 0, &world.out);
    expect(&world, "{\"token\":\"\\\\xc3\",\"logprob\":-1,\"bytes\":[195],\"top_logprobs\":[");
    world_done(&world);
}

/* Each of them is a replacement character of the text. */
Test(api_answer, offsets_count_what_dead_bytes_become)
{
    World world;
    world_init(&world, ANSWER_COMPLETION, true);
    add(&world, 0, byte_id(0x80), 0, "\xEF\xBF\xBD", true);
    add(&world, 0, byte_id('a'), 0, "a", true);
    add(&world, 0, byte_id(0xF0), 0, "\xEF\xBF\xBD", true); /* the prompt ends within a character */
    add(&world, 0, byte_id(0x9F), -1, "\xEF\xBF\xBD", false);
    add(&world, 0, byte_id('z'), -1, "z", false);
    api_answer_write_delta(&world.answer, 0, &world.out);
    expect(&world, "\"text_offset\":[0,1,2,3,4]");
    world_done(&world);
}

Test(api_answer, the_token_that_ends_an_answer_is_no_part_of_it)
{
    World world;
    world_init(&world, ANSWER_CHAT, true);
    add(&world, 0, TINY_IM_END, -1, "", false);
    cr_expect_not(api_answer_has_delta(&world.answer, 0));
    world_done(&world);
}

Test(api_answer, a_prompts_first_token_has_no_probability)
{
    World world;
    world_init(&world, ANSWER_COMPLETION, true);
    add(&world, 0, byte_id('a'), 0, "a", true);
    add(&world, 0, byte_id('b'), -2, "b", true);
    api_answer_write_delta(&world.answer, 0, &world.out);
    expect(&world, "\"token_logprobs\":[null,-2],\"top_logprobs\":[null,{");
    expect(&world, "\"text\":\"\"");
    world_done(&world);
}

Test(api_answer, finish_and_usage)
{
    World world;
    world_init(&world, ANSWER_CHAT, false);
    world.answer.include_usage = true;
    world.answer.timings =
        (RequestTimings){.prompt_tokens = 7, .completion_tokens = 3, .cached_tokens = 2, .prefill_usec = 1000000};
    world.answer.choices[1].finish = FINISH_LENGTH;
    api_answer_write_finish(&world.answer, 1, true, &world.out);
    expect(&world, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]");
    expect(&world, "\"prefill_tokens_per_second\":5.000,\"decode_tokens_per_second\":0.000");
    expect(&world, "\"usage\":null}\n\n");
    api_answer_write_usage_frame(&world.answer, &world.out);
    expect(&world, "\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10");
    expect(&world, "\"cached_tokens\":2}");
    world_done(&world);
}
