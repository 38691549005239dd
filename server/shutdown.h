/* SPDX-License-Identifier: Apache-2.0 */
/* How a server ends: drain, then stop (server_drain, server_stop and server_watch_signals of server.h). Loop thread. */
#pragma once
#include "server/server_state.h"

/* Is a drain complete? Called whenever an exchange is over. */
void shutdown_check(Server *server);
