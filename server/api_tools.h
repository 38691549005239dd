/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "tools" and "tool_choice" of a chat, and the calls in its messages: their form is checked here. Pool thread; nodes
 * are borrowed from the body's tree.
 */
#pragma once
#include "engine/text/answer_parser.h"
#include "server/api_json.h"

enum { API_MAX_TOOLS = 1024 };

typedef enum ToolChoice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED, TOOLS_NAMED } ToolChoice;

/* {0}: none at all. */
typedef struct ApiTools {
    const cJSON *list; /* functions with names of their own; NULL: absent or empty */
    bool has_choice;
    ToolChoice choice;
    const char *name;     /* TOOLS_NAMED */
    const cJSON *allowed; /* allowed_tools: the only ones that may be called; NULL: all */
    bool one_call;        /* parallel_tool_calls is false */
} ApiTools;

LW_CHECK bool api_tools_read(const cJSON *tools, ApiTools *ret_tools, Error *error);
LW_CHECK bool api_tools_read_choice(const cJSON *choice, ApiTools *tools, Error *error);
/* Once all fields are read: a choice names tools that are there. */
LW_CHECK bool api_tools_check_together(const ApiTools *tools, Error *error);
bool api_tools_may_call(const ApiTools *tools);
bool api_tools_allows(const ApiTools *tools, const cJSON *tool);
const char *api_tool_name(const cJSON *tool);
/* The "tool_calls" of a message; path: how errors name it. */
LW_CHECK bool api_tools_check_calls(const cJSON *calls, const char *path, Error *error);
