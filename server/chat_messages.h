/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "messages" of a chat, checked and brought into the form that templates expect: content as one string, role
 * 'developer' as 'system'. Order and number of turns are the template's business. Pool thread.
 */
#pragma once
#include "server/api_json.h"

enum { CHAT_MAX_MESSAGES = 65536 };

/* Changes the tree in place. body: the request. */
LW_CHECK bool chat_messages_normalise(cJSON *body, Error *error);
