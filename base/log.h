/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr: logfmt or JSON, one write(2) a line. Folders base, config, kernels and engine only log at debug:
 * they return Error; scheduler and server log once, where an error stops travelling. Never prompt text. Any thread.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

typedef enum LogLevel { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;
typedef enum LogFormat { LOG_TEXT, LOG_JSON } LogFormat;

/* Atomic. */
void log_configure(LogLevel level, LogFormat format);
bool log_enabled(LogLevel level);

/* Lines that could not be written, the disk being full for example; the next one that can be tells of them. */
uint64_t log_lost(void);

/* request 0: no request. User strings inside the message stand in single ticks. */
void log_write(LogLevel level, uint64_t request, const char *fmt, ...) LW_PRINTF(3, 4);

/* One named value of a line. WORD: a text in quotes, left out when it is NULL. */
typedef enum LogFieldKind { LOG_WORD, LOG_WHOLE, LOG_REAL, LOG_FLAG } LogFieldKind;
typedef struct LogField {
    const char *key;
    LogFieldKind kind;
    const char *word;
    uint64_t whole; /* of a LOG_FLAG: 0 or 1 */
    double real;    /* three digits behind the point */
} LogField;

/* msg and then the fields [n]; the first one that does not fit is cut, if it is a text, and ends the line. */
void log_fields(LogLevel level, uint64_t request, const char *msg, const LogField *fields, size_t n);

#define log_error(...) log_write(LOG_ERROR, 0, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, 0, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, 0, __VA_ARGS__)
#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, 0, __VA_ARGS__) : (void)0)
