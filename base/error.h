/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error type. A function that can fail returns bool, is marked LW_CHECK, takes an Error * last and leaves its
 * outputs untouched on failure. Errors never own memory: an Error may be copied and forgotten. Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define LW_CHECK __attribute__((warn_unused_result))
#define LW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ErrorCode {
    ERR_NONE,
    ERR_INVALID,        /* a value, file or text that breaks its own rules */
    ERR_UNSUPPORTED,    /* well-formed, but longwave does not do it */
    ERR_NOT_FOUND,      /* a file, a model name, a route */
    ERR_TOO_LARGE,      /* over a limit of size, depth, steps or time */
    ERR_CONTEXT_LENGTH, /* prompt and answer do not fit the context */
    ERR_TEMPLATE,       /* a chat template raised or broke */
    ERR_SCHEMA,         /* a JSON schema, grammar or pattern cannot be compiled */
    ERR_BUSY,           /* a queue is full; trying later may work */
    ERR_CANCELLED,      /* the client left or aborted, or the server stops */
    ERR_DEADLINE,       /* the request's time limit was reached */
    ERR_NO_MEMORY,
    ERR_IO,         /* the operating system said no; text has strerror */
    ERR_DEVICE,     /* the accelerator failed; not to be trusted any more */
    ERR_NON_FINITE, /* NaN or infinity in logits */
    ERR_INTERNAL,   /* a broken promise of our own */
    ERR_COUNT
} ErrorCode;

typedef struct Error {
    ErrorCode code;
    char param[64]; /* the field, option or key at fault; "" when there is none */
    char text[400]; /* one line for a person, no trailing full stop needed; cut at a UTF-8 boundary */
} Error;

/* Is the program or its machine at fault, and not what it was given, its load, or somebody who did not want to wait? */
bool error_is_own(ErrorCode code);

/* Fills *error and returns false, so that failing is one line: return error_set(error, ERR_INVALID, "..."). */
bool error_set(Error *error, ErrorCode code, const char *fmt, ...) LW_PRINTF(3, 4);

/* The same, and names the field, option or key at fault. */
bool error_set_param(Error *error, ErrorCode code, const char *param, const char *fmt, ...) LW_PRINTF(4, 5);

/* Puts "<context>: " before the text of an error that travels upwards; returns false. */
bool error_prefix(Error *error, const char *fmt, ...) LW_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
