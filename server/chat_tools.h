/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools for templates that know nothing of them: as part of the system message, calls as an assistant's text in the
 * form that the model is to write, results as the user's. Pool thread.
 */
#pragma once
#include "server/api_tools.h"

/* messages: normalised. *ret_told: what the template is to get instead, for cJSON_Delete; NULL: them as they are. */
LW_CHECK bool chat_tools_tell(const AnswerStyle *style, const ApiTools *tools, const cJSON *messages, cJSON **ret_told,
                              Error *error);
