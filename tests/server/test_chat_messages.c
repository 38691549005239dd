/* SPDX-License-Identifier: Apache-2.0 */
#include "server/chat_messages.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

static cJSON *parse(const char *text)
{
    cJSON *json;
    Error error;
    cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.text);
    return json;
}

static void refuse(const char *text, ErrorCode code, const char *param)
{
    cJSON *json = parse(text);
    Error error = {0};
    cr_expect_not(chat_messages_normalise(json, &error), "accepted: %s", text);
    cr_expect(eq(int, (int)error.code, (int)code), "%s: %s", text, error.text);
    cr_expect(eq(str, error.param, (char *)param), "%s: %s", text, error.text);
    cJSON_Delete(json);
}

static void expect(const char *text, const char *wanted)
{
    cJSON *json = parse(text);
    Error error;
    cr_expect(chat_messages_normalise(json, &error), "%s: %s", text, error.text);
    char *printed = cJSON_PrintUnformatted(json_member(json, "messages"));
    cr_expect(eq(str, printed, (char *)wanted));
    free(printed);
    cJSON_Delete(json);
}

Test(chat_messages, what_is_wrong_is_named)
{
    refuse("{}", ERR_INVALID, "messages");
    refuse("{\"messages\":[]}", ERR_INVALID, "messages");
    refuse("{\"messages\":{}}", ERR_INVALID, "messages");
    refuse("{\"messages\":[5]}", ERR_INVALID, "messages[0]");
    refuse("{\"messages\":[{\"content\":\"x\"}]}", ERR_INVALID, "messages[0].role");
    refuse("{\"messages\":[{\"role\":7,\"content\":\"x\"}]}", ERR_INVALID, "messages[0].role");
    refuse("{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}", ERR_INVALID, "messages[0].role");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\"}]}", ERR_INVALID,
           "messages[1].content");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":7}]}", ERR_INVALID, "messages[0].content");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":[7]}]}", ERR_INVALID, "messages[0].content[0]");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}", ERR_INVALID,
           "messages[0].content[0].type");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", ERR_INVALID,
           "messages[0].content[0].text");
    refuse("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", ERR_UNSUPPORTED,
           "messages[0].content[0].type");
}

Test(chat_messages, parts_become_one_text)
{
    expect(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
        "\"b\"}]}]}",
        "[{\"role\":\"user\",\"content\":\"a\\nb\"}]");
    expect("{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "[{\"role\":\"user\",\"content\":\"\"}]");
    expect("{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"}]}", "[{\"role\":\"system\",\"content\":\"a\"}]");
}

#define CALLS(calls) "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":" calls "}]}"

Test(chat_messages, turns_that_only_call_tools_need_no_content)
{
    expect(CALLS("[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"),
           "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
           "\"arguments\":\"{}\"}}]}]");
    expect("{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"4\"}]}",
           "[{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"4\"}]");
}

Test(chat_messages, calls_have_a_name_and_arguments)
{
    refuse(CALLS("{}"), ERR_INVALID, "messages[0].tool_calls");
    refuse(CALLS("[1]"), ERR_INVALID, "messages[0].tool_calls[0]");
    refuse(CALLS("[{}]"), ERR_INVALID, "messages[0].tool_calls[0].function");
    refuse(CALLS("[{\"function\":{\"arguments\":\"\"}}]"), ERR_INVALID, "messages[0].tool_calls[0].function.name");
    refuse(CALLS("[{\"function\":{\"name\":\"f\"}}]"), ERR_INVALID, "messages[0].tool_calls[0].function.arguments");
    refuse(CALLS("[{\"function\":{\"name\":\"f\",\"arguments\":[]}}]"), ERR_INVALID,
           "messages[0].tool_calls[0].function.arguments");
    refuse("{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"4\"}]}", ERR_INVALID,
           "messages[0].tool_call_id");
}
