/* SPDX-License-Identifier: Apache-2.0 */
/* What a load asks for: the same each time, shared where it should be, and replayed as it was recorded. */
#include "server/api_json.h"
#include "server/load/dialogue.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Lengths exactly(uint32_t n)
{
    return (Lengths){.a = n, .b = n, .max = n};
}

static WorkloadParams params_of(WorkloadKind kind)
{
    return (WorkloadParams){.kind = kind,
                            .prompt = exactly(20),
                            .answer = exactly(9),
                            .prefix = exactly(50),
                            .tool = exactly(30),
                            .turns = exactly(3),
                            .n_prefixes = 1,
                            .is_chat = true,
                            .ignores_eos = true,
                            .model = "a \"model\"",
                            .seed = 7};
}

static Workload *make(const WorkloadParams *params)
{
    Workload *workload;
    Error error;
    cr_assert(workload_new(params, &workload, &error), "%s", error.text);
    return workload;
}

/* The request of the dialogue's turn. */
static cJSON *request_of(const Dialogue *dialogue, const Workload *workload)
{
    Buffer body;
    Error error;
    cJSON *json = NULL;
    buffer_init(&body, 1 << 20);
    cr_assert(dialogue_write(dialogue, workload, &body, &error) && json_parse(body.data, body.n, &json, &error), "%s",
              error.text);
    buffer_done(&body);
    return json;
}

static const char *content_of(const cJSON *request, int i, const char *role)
{
    const cJSON *message = cJSON_GetArrayItem(json_member(request, "messages"), i);
    cr_assert(strcmp(cJSON_GetStringValue(json_member(message, "role")), role) == 0);
    return cJSON_GetStringValue(json_member(message, "content"));
}

static uint32_t count_words(const char *text)
{
    uint32_t n = 1;
    for (; *text; text++) n += *text == ' ' || *text == '\n';
    return n;
}

static cJSON *first_request(const Workload *workload, uint64_t index)
{
    Dialogue dialogue;
    Error error;
    dialogue_init(&dialogue);
    cr_assert(dialogue_begin(&dialogue, workload, index, &error));
    cJSON *request = request_of(&dialogue, workload);
    dialogue_done(&dialogue);
    return request;
}

Test(load_dialogue, random_prompts_share_nothing_and_come_again)
{
    WorkloadParams params = params_of(WORKLOAD_RANDOM);
    Workload *workload = make(&params);
    cJSON *first = first_request(workload, 0), *second = first_request(workload, 1),
          *again = first_request(workload, 0);
    cr_expect(cJSON_Compare(first, again, true) && !cJSON_Compare(first, second, true));
    cr_expect(cJSON_GetArraySize(json_member(first, "messages")) == 1);
    cr_expect(count_words(content_of(first, 0, "user")) == 20);
    cr_expect(json_member(first, "max_tokens")->valueint == 9 && cJSON_IsTrue(json_member(first, "ignore_eos")));
    cr_expect(cJSON_IsTrue(json_member(first, "stream")));
    cr_expect(strcmp(cJSON_GetStringValue(json_member(first, "model")), params.model) == 0);
    cJSON_Delete(first);
    cJSON_Delete(second);
    cJSON_Delete(again);
    workload_free(workload);
}

Test(load_dialogue, prefixes_are_shared)
{
    WorkloadParams params = params_of(WORKLOAD_PREFIX);
    Workload *workload = make(&params);
    cJSON *first = first_request(workload, 0), *second = first_request(workload, 1);
    const Buffer *prefix = &workload->prefixes[0];
    const char *one = content_of(first, 0, "user"), *other = content_of(second, 0, "user");
    cr_expect(!strncmp(one, prefix->data, prefix->n) && !strncmp(other, prefix->data, prefix->n));
    cr_expect(count_words(one + prefix->n) == 20 && strcmp(one + prefix->n, other + prefix->n) != 0);
    cJSON_Delete(first);
    cJSON_Delete(second);
    workload_free(workload);
    params.n_prefixes = 4;
    params.is_chat = params.ignores_eos = false;
    workload = make(&params);
    uint32_t uses[4] = {0};
    for (uint64_t i = 0; i < 200; i++) {
        cJSON *request = first_request(workload, i);
        const char *prompt = cJSON_GetStringValue(json_member(request, "prompt"));
        cr_assert(prompt != NULL && !json_member(request, "messages") && !json_member(request, "ignore_eos"));
        for (uint32_t k = 0; k < 4; k++)
            uses[k] += !strncmp(prompt, workload->prefixes[k].data, workload->prefixes[k].n);
        cJSON_Delete(request);
    }
    cr_expect(uses[0] + uses[1] + uses[2] + uses[3] == 200);
    for (uint32_t k = 0; k < 4; k++) cr_expect(uses[k] > 20, "prefix %u: %u", k, uses[k]);
    workload_free(workload);
}

Test(load_dialogue, each_turn_of_an_agent_begins_as_the_one_before)
{
    WorkloadParams params = params_of(WORKLOAD_AGENT);
    Workload *workload = make(&params);
    Dialogue dialogue;
    Error error;
    Buffer answer;
    dialogue_init(&dialogue);
    buffer_init(&answer, 100);
    cr_assert(buffer_append_text(&answer, "I call \"it\".", &error));
    cr_assert(dialogue_begin(&dialogue, workload, 3, &error));
    cJSON *before = request_of(&dialogue, workload);
    cr_expect(cJSON_GetArraySize(json_member(before, "messages")) == 1 && !dialogue_is_last(&dialogue));
    for (int turn = 1; turn < 3; turn++) {
        cr_assert(dialogue_answer(&dialogue, workload, &answer, &error));
        cJSON *request = request_of(&dialogue, workload);
        const cJSON *messages = json_member(request, "messages"), *old = json_member(before, "messages");
        cr_expect(cJSON_GetArraySize(messages) == 1 + 2 * turn);
        for (int i = 0; i < cJSON_GetArraySize(old); i++)
            cr_expect(cJSON_Compare(cJSON_GetArrayItem(messages, i), cJSON_GetArrayItem(old, i), true));
        cr_expect(strcmp(content_of(request, 2 * turn - 1, "assistant"), "I call \"it\".") == 0);
        cr_expect(count_words(content_of(request, 2 * turn, "user")) == 30 + 4, "the heading has four words");
        cJSON_Delete(before);
        before = request;
    }
    cr_expect(dialogue_is_last(&dialogue));
    cJSON_Delete(before);
    buffer_done(&answer);
    dialogue_done(&dialogue);
    workload_free(workload);
}

static bool load_text(const char *text, Replay *replay, Error *error)
{
    char path[] = "/tmp/longwave-replay-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    bool ok = replay_load(path, replay, error);
    unlink(path);
    return ok;
}

Test(load_replay, lines_are_requests)
{
    WorkloadParams params = params_of(WORKLOAD_AGENT);
    Replay replay;
    Error error;
    cr_assert(load_text("{\"at\":0,\"prompt\":\"Say \\u00e9\",\"answer_tokens\":5}\n\n"
                        "{\"at\":1.5,\"prompt_tokens\":12,\"answer_tokens\":6,\"user\":\"x\"}\n"
                        "{\"at\":1.5,\"prompt_tokens\":3,\"answer_tokens\":1}",
                        &replay, &error),
              "%s", error.text);
    cr_assert(replay.n == 3);
    cr_expect(replay.entries[1].at_usec == 1500000 && replay.entries[2].at_usec == 1500000);
    params.replay = &replay;
    Workload *workload = make(&params);
    cJSON *first = first_request(workload, 0), *second = first_request(workload, 1);
    cr_expect(strcmp(content_of(first, 0, "user"), "Say \xC3\xA9") == 0);
    cr_expect(json_member(first, "max_tokens")->valueint == 5);
    cr_expect(count_words(content_of(second, 0, "user")) == 12);
    cJSON_Delete(first);
    cJSON_Delete(second);
    workload_free(workload);
    replay_done(&replay);
}

Test(load_replay, a_wrong_line_is_named)
{
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "no request"},
        {"\n", "no request"},
        {"{\"at\":0,\"prompt_tokens\":1,\"answer_tokens\":1}\nx", "line 2"},
        {"[]", "line 1"},
        {"{\"prompt_tokens\":1,\"answer_tokens\":1}", "'at'"},
        {"{\"at\":-1,\"prompt_tokens\":1,\"answer_tokens\":1}", "at"},
        {"{\"at\":1,\"prompt_tokens\":1,\"answer_tokens\":1}\n{\"at\":0,\"prompt_tokens\":1,\"answer_tokens\":1}",
         "earlier"},
        {"{\"at\":0,\"answer_tokens\":1}", "prompt_tokens"},
        {"{\"at\":0,\"prompt_tokens\":0,\"answer_tokens\":1}", "prompt_tokens"},
        {"{\"at\":0,\"prompt\":5,\"answer_tokens\":1}", "prompt"},
        {"{\"at\":0,\"prompt\":\"x\"}", "answer_tokens"},
        {"{\"at\":0,\"prompt\":\"x\",\"answer_tokens\":1.5}", "answer_tokens"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Replay replay;
        Error error = {0};
        cr_expect(!load_text(rows[i].text, &replay, &error), "%s", rows[i].text);
        cr_expect(strstr(error.text, rows[i].said) != NULL, "%s: %s", rows[i].text, error.text);
    }
    Replay replay;
    Error error;
    cr_expect(!replay_load("/nonexistent/trace", &replay, &error) && strstr(error.text, "/nonexistent/trace"));
}
