/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of options: the only place that knows an option's name, type, default, range and meaning. Command line,
 * environment, file, help, example file and reference all read it. Immutable; any thread. Private to config/ and its
 * tests.
 */
#pragma once
#include "config/config.h"

typedef enum OptionKind {
    OPTION_TEXT,    /* const char * */
    OPTION_FLAG,    /* bool; on, off, true, false, yes, no, 1, 0 */
    OPTION_INTEGER, /* uint16_t, uint32_t or uint64_t; decimal */
    OPTION_TOKENS,  /* the same, with K, M, G (powers of 1024) */
    OPTION_BYTES,   /* the same, with B, K, KiB, M, MiB, G, GiB, T, TiB (powers of 1024) */
    OPTION_SECONDS, /* the same, with s, m, h; none is 0 */
    OPTION_REAL,    /* float */
    OPTION_CHOICE,  /* an enum of 4 bytes */
    OPTION_SHARE,   /* ConfigShare; a fraction of something such as 0.9, or a size */
    OPTION_LIST,    /* ConfigList of numbers as OPTION_TOKENS has them; none is the empty list */
} OptionKind;

typedef struct OptionChoice {
    const char *name; /* NULL ends the list */
    uint32_t value;
} OptionChoice;

typedef struct ConfigOption {
    const char *name; /* with underscores; dashes are taken too, but for the environment */
    char letter;      /* -m; 0: none */
    OptionKind kind;
    uint16_t width;        /* bytes of the field */
    uint32_t offset;       /* of the field in Config */
    uint32_t seen_offset;  /* of a bool that turns true when the option is given; 0: none */
    uint32_t rival_offset; /* of a text that yields when the command line gives this option; 0: none */
    const char *fallback;  /* default, in the option's own notation; NULL: the field stays NULL */
    const char *shown;     /* how help shows the default when the notation would not tell; NULL: as it is */
    uint64_t min, max;     /* whole numbers, those of lists too */
    double real_min, real_max;
    const OptionChoice *choices;
    const char *section; /* of the file; NULL: not in a file, this run only */
    uint32_t commands;   /* CommandId bits that take it */
    uint32_t required;   /* CommandId bits that cannot do without */
    bool reloads;        /* a running server takes a new value on SIGHUP */
    const char *metavar;
    const char *help;
} ConfigOption;

extern const ConfigOption config_options[];
extern const size_t config_n_options;

/* The option of this name (n bytes, '-' equals '_'), or NULL. */
const ConfigOption *option_find(const char *name, size_t n);
const ConfigOption *option_find_letter(char letter);
/* The closest name among those that 'commands' take (file_only: and that may stand in a file), or NULL if none is
 * close. */
const char *option_nearest(const char *name, size_t n, uint32_t commands, bool file_only);
/* "--max-body" into text, which has room for 64 bytes. */
void option_flag_text(const ConfigOption *option, char text[static 64]);
/* "LONGWAVE_MAX_BODY". */
void option_environment_text(const ConfigOption *option, char text[static 64]);
