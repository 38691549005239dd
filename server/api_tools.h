/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "tools" and "tool_choice" of a chat: the form is checked, the template shows the tools to the model. Only with
 * tool_choice "none", where no call can come back. Pool thread.
 */
#pragma once
#include "server/api_json.h"

enum { API_MAX_TOOLS = 1024 };

/* An array of functions with names. */
LW_CHECK bool api_tools_check(const cJSON *tools, Error *error);
/* *ret_none: is it "none"? */
LW_CHECK bool api_tools_read_choice(const cJSON *choice, bool *ret_none, Error *error);
/* Both together, either may be NULL. */
LW_CHECK bool api_tools_check_together(const cJSON *tools, bool choice_is_none, Error *error);
/* The "tool_calls" of a message; path: how errors name it. */
LW_CHECK bool api_tools_check_calls(const cJSON *calls, const char *path, Error *error);
