/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What systemd, or another service manager with its protocol, gives and is told: a listening socket (LISTEN_PID,
 * LISTEN_FDS), states (NOTIFY_SOCKET) and the watchdog (WATCHDOG_PID, WATCHDOG_USEC). Without one nothing happens.
 * Loop thread.
 */
#pragma once
#include "base/error.h"
#include <stdint.h>

/* The one listening stream socket that was passed, non-blocking and close-on-exec; -1: none was. At start-up, once. */
LW_CHECK bool service_take_socket(int *ret_fd, Error *error);
/* Lines such as "READY=1", with a line end between several; who does not listen misses them. */
void service_notify(const char *fmt, ...) LW_PRINTF(1, 2);
/* How often the service manager wants to hear "WATCHDOG=1"; 0: never. */
uint64_t service_watchdog_usec(void);
