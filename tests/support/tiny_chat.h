/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates for tiny models: one for each way of writing calls of tools and reasoning. */
#pragma once

/* NULL: no such name. "calls" is the default: calls between marks of no known format. */
const char *tiny_chat_template(const char *name);
