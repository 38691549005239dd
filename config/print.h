/* SPDX-License-Identifier: Apache-2.0 */
/* What the texts made from the table of options share; all go to stdout. Private to config/. Main thread. */
#pragma once
#include "config/options.h"

const char *print_default_text(const ConfigOption *option);
/* Names of the list that ends in a NULL name; NULL: none. */
void print_choices(const OptionChoice *choices, const char *between);
/* The kind of value and its range; tick stands around words. */
void print_values(const ConfigOption *option, const char *tick);
/* Names of commands, separated by commas. */
void print_commands(uint32_t commands);
/* Calls one() for every option of a file, with a heading before each section; rows of a section are neighbours. */
void print_sections(void (*heading)(const char *section), void (*one)(const ConfigOption *option));
