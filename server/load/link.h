/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a server that carries one request after the other, made when there is a request and again when the
 * server has closed it. Events come from the uv loop, on its thread, and never from within link_send.
 */
#pragma once
#include "base/buffer.h"

#include <sys/socket.h>
#include <uv.h>

enum { LINK_READ_BYTES = 64 << 10, LINK_MAX_ADDRESSES = 8 };

/* Where the server is; all links read into its bytes. Outlives them. */
typedef struct LinkPeer {
    uv_loop_t *loop;
    struct sockaddr_storage addresses[LINK_MAX_ADDRESSES];
    uint32_t n_addresses;
    uint32_t first;    /* of the addresses, the one that is tried first: that which answered last */
    uint64_t n_resent; /* requests whose connection, which had idled, broke at once: they went out again */
    const char *path;  /* of a Unix socket; NULL: the addresses */
    char bytes[LINK_READ_BYTES];
} LinkPeer;

/* host: a name, an address or unix:PATH. Looks the name up, waiting for the answer. */
LW_CHECK bool link_peer_find(LinkPeer *peer, uv_loop_t *loop, const char *host, uint16_t port, Error *error);

typedef struct LinkEvents {
    /* A piece of the answer's body; false: the request is over, *error says why and goes to 'end'. */
    bool (*body)(void *arg, const char *bytes, size_t n, Error *error);
    /* The request is over; error: NULL when the answer is whole. A new request may be sent from here. */
    void (*end)(void *arg, const Error *error);
} LinkEvents;

typedef struct Link Link;

LW_CHECK bool link_new(LinkPeer *peer, const LinkEvents *events, void *arg, Link **ret_link, Error *error);
/* Without events; what the loop still holds of it goes when the loop runs. NULL is fine. */
void link_free(Link *link);

/*
 * A whole request, which stays as it is until 'end'. None may be under way. On an error there is no event.
 */
LW_CHECK bool link_send(Link *link, const Buffer *request, Error *error);
/* Ends the request that is under way, without events, and with it the connection. */
void link_drop(Link *link);

int link_status(const Link *link);             /* of the answer; 0: there is none yet */
uint32_t link_retry_after_s(const Link *link); /* 0: not said */
