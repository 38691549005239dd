/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a subcommand works on: -p TEXT, or -f PATH with "-" for standard input. One thread. */
#pragma once
#include "base/buffer.h"
#include "config/config.h"

/* Appends the text; exactly one of the two options must be given. The bytes are the file's, valid UTF-8 or not. */
LW_CHECK bool cmd_read_prompt(const Config *config, Buffer *text, Error *error);
