/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the engine live? It does when nothing is to be computed, or when it showed life (a layer, a turn) within
 * stall_ms; with a device that has failed it does not. Time in which the whole process was held, as with its machine,
 * does not count. The service manager's watchdog and the health routes hear of nothing else. Loop thread.
 */
#pragma once
#include "server/server_state.h"

bool heartbeat_is_alive(const Server *server);
/* The timer that feeds the watchdog and logs a stall and its end; its handle is the server's. */
void heartbeat_start(Server *server);
