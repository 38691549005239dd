/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket: TCP ("127.0.0.1", "::1", a name) or a Unix socket ("unix:PATH"). Loop thread, at start-up. */
#pragma once
#include "base/error.h"
#include <stdint.h>

/* port 0: any free one; *ret_port tells which (0 for a Unix socket). A dead Unix socket file is replaced. */
LW_CHECK bool listen_open(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port, Error *error);
/* The port that a socket is bound to; 0: it has none. */
uint16_t listen_port(int fd);
/* Can other machines not reach it? Of a loopback address or a Unix socket. */
bool listen_is_local(int fd);
/* Removes the file of a Unix socket; does nothing for TCP. */
void listen_remove(const char *host);
