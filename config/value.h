/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of one option value -> its field in Config. Strict: the whole text must be used, numbers must be inside the
 * option's range, units must be known. Private to config/ and its tests.
 */
#pragma once
#include "config/options.h"

/* Error text begins with the value in ticks; error->param is the option. Text is copied to config->arena. */
LW_CHECK bool option_set_value(const ConfigOption *option, const char *text, Config *config, Error *error);
