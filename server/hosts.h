/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By which names clients may reach this server: the Host header of their requests. A web page can point its own name at
 * the address of a server on its reader's machine or network (DNS rebinding) and then counts as that server's own page;
 * its requests still carry its name. Loop thread.
 */
#pragma once
#include "base/error.h"

typedef struct Hosts Hosts;

/* list: names without a port, separated by commas; '*': any; NULL: none is given. */
LW_CHECK bool hosts_new(const char *list, Hosts **ret_hosts, Error *error);
void hosts_free(Hosts *hosts); /* NULL is fine */
/*
 * host: the header, NULL: there is none, which no browser leaves out. Names that lead nowhere but here pass always:
 * addresses, localhost and what ends in .localhost. is_guarded: without a list no other name passes either.
 */
bool hosts_allow(const Hosts *hosts, const char *host, bool is_guarded);
