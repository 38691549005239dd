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

/* request 0: no request. User strings inside the message stand in single ticks. */
void log_write(LogLevel level, uint64_t request, const char *fmt, ...) LW_PRINTF(3, 4);

#define log_error(...) log_write(LOG_ERROR, 0, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, 0, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, 0, __VA_ARGS__)
#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, 0, __VA_ARGS__) : (void)0)
