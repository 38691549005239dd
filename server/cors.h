/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which web pages may read answers: a list of origins, and the headers that tell browsers so (Fetch standard, CORS
 * protocol). Loop thread.
 */
#pragma once
#include "base/error.h"

typedef struct Cors Cors;

/* list: origins as scheme://host[:port], separated by commas; '*': all; NULL: none. */
LW_CHECK bool cors_new(const char *list, Cors **ret_cors, Error *error);
void cors_free(Cors *cors); /* NULL is fine */

/* What a browser sends. */
typedef struct CorsAsk {
    const char *origin;  /* Origin; NULL: no browser asks */
    const char *method;  /* Access-Control-Request-Method; NULL: it is no preflight */
    const char *headers; /* Access-Control-Request-Headers; NULL: none */
} CorsAsk;

/* Calls add for each header of the answer. allow: the methods of the path, or NULL. */
void cors_answer(const Cors *cors, const CorsAsk *ask, const char *allow,
                 void (*add)(void *arg, const char *name, const char *value), void *arg);
