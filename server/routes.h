/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes, and what is checked before any handler runs: path, method, key, media type, readiness. */
#pragma once
#include "server/server_state.h"

/* HttpParams.on_head and .on_request; arg is the Server. */
void routes_on_head(void *arg, Exchange *exchange);
void routes_on_request(void *arg, Exchange *exchange);
/* The line of an exchange that has none yet: at debug for status routes and for what was only read. */
void routes_log(const HttpClosed *closed);
