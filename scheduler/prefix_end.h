/* SPDX-License-Identifier: Apache-2.0 */
/* Why the tokens that a prompt found in the prefix cache end where they do. */
#pragma once

typedef enum PrefixEnd {
    PREFIX_WHOLE,   /* all that may match did */
    PREFIX_NEW,     /* nobody went further than this */
    PREFIX_DIFFERS, /* others went on with another token */
    PREFIX_EVICTED, /* the pages that follow were given up */
    PREFIX_WINDOW,  /* no checkpoint further on */
} PrefixEnd;
