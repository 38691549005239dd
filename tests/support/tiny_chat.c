/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_chat.h"

#include <stddef.h>
#include <string.h>

#define TOOLS "{% if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}"
#define HINTED(hint)                                                                                                   \
    "{% if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '" hint "' + '<|im_end|>\n' }}{% endif %}"
#define TURN(call)                                                                                                     \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"                                       \
    "{% if message['reasoning_content'] %}{{ '<think>\n' + message['reasoning_content'] + '\n</think>\n\n' }}"         \
    "{% endif %}{{ message['content'] or '' }}{% for call in message['tool_calls'] or [] %}" call                      \
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
#define BEGIN(more) "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n" more "' }}{% endif %}"
/* Without thoughts if a request says so. */
#define THINK(more)                                                                                                    \
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"                            \
    "{{ '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}{% elif add_generation_prompt %}"                           \
    "{{ '<|im_start|>assistant\n" more "' }}{% endif %}"
#define ARGUMENTS "(call.function.arguments | tojson)"
#define HERMES                                                                                                         \
    "{{ ('\n' if message['content'] or not loop.first else '') + '<tool_call>\n{\"name\": \"' + call.function.name "   \
    "+ '\", \"arguments\": ' + " ARGUMENTS " + '}\n</tool_call>' }}"
#define CODER                                                                                                          \
    "{{ '\n<tool_call>\n<function=' + call.function.name + '>\n' }}{% for key, value in call.function.arguments | "    \
    "items %}{{ '<parameter=' + key + '>\n' + (value if value is string else (value | tojson)) + '\n</parameter>\n' "  \
    "}}{% endfor %}{{ '</function>\n</tool_call>' }}"

#define GLM                                                                                                            \
    "{{ '\n<tool_call>' + call.function.name + '\n' }}{% for key, value in call.function.arguments | items %}"         \
    "{{ '<arg_key>' + key + '</arg_key>\n<arg_value>' + (value if value is string else (value | tojson)) + "           \
    "'</arg_value>\n' }}{% endfor %}{{ '</tool_call>' }}"
#define SECTION(begin, call, end)                                                                                      \
    "{{ ('" begin "' if loop.first else '') + " call " + ('" end "' if loop.last else '') }}"
#define KIMI                                                                                                           \
    SECTION("<|tool_calls_section_begin|>",                                                                            \
            "'<|tool_call_begin|>functions.' + call.function.name + ':' + (loop.index0 | string) + "                   \
            "'<|tool_call_argument_begin|>' + " ARGUMENTS " + '<|tool_call_end|>'",                                    \
            "<|tool_calls_section_end|>")
#define DEEPSEEK(head, neck, tail)                                                                                     \
    SECTION("<｜tool▁calls▁begin｜>",                                                                                  \
            "'<｜tool▁call▁begin｜>" head "' + call.function.name + '" neck "' + " ARGUMENTS " + '" tail               \
            "<｜tool▁call▁end｜>'",                                                                                    \
            "<｜tool▁calls▁end｜>")
#define CHANNELS                                                                                                       \
    "{% for message in messages %}{% for call in message['tool_calls'] or [] %}"                                       \
    "{{ '<|start|>assistant<|channel|>commentary to=functions.' + call.function.name + ' "                             \
    "<|constrain|>json<|message|>' "                                                                                   \
    "+ " ARGUMENTS " + '<|call|>' }}{% endfor %}{% if message['content'] %}{{ '<|start|>' + message['role'] + "        \
    "('<|channel|>final' if message['role'] == 'assistant' else '') + '<|message|>' + message['content'] + '<|end|>' " \
    "}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"

static const struct {
    const char *name, *text;
} templates[] = {
    {"calls",
     TOOLS "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') }}"
           "{% for call in message['tool_calls'] or [] %}{{ '<call>' + (call['function'] | tojson) + '</call>' }}"
           "{% endfor %}{{ '<|im_end|>' + '\n' }}{% endfor %}" BEGIN("")},
    {"hermes", TOOLS TURN(HERMES) THINK("")},
    {"opens", TOOLS TURN(HERMES) THINK("<think>\n")},
    {"coder", TOOLS TURN(CODER) THINK("")},
    {"glm", TOOLS TURN(GLM) THINK("")},
    {"kimi", TOOLS TURN(KIMI) THINK("")},
    {"deepseek", TOOLS TURN(DEEPSEEK("function<｜tool▁sep｜>", "\n```json\n", "\n```")) THINK("")},
    {"deepseek31", TOOLS TURN(DEEPSEEK("", "<｜tool▁sep｜>", "")) THINK("")},
    {"channels", TOOLS CHANNELS},
    {"mistral", TOOLS TURN("{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' + " ARGUMENTS " }}") THINK("")},
    {"llama",
     HINTED("<|start_header_id|>{\"parameters\"}")
         TURN("{{ '{\"name\": \"' + call.function.name + '\", \"parameters\": ' + " ARGUMENTS " + '}' }}") THINK("")},
    {"pythonic", HINTED("[func_name1(") TURN("{{ '[' + call.function.name + '(a=1)]' }}") THINK("")},
    {"gemma", HINTED("<start_function_call>") TURN("") THINK("")},
    {"bare",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
     "{% endfor %}" BEGIN("")},
};

const char *tiny_chat_template(const char *name)
{
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (!strcmp(templates[i].name, name)) return templates[i].text;
    return NULL;
}
