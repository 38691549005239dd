/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API described in OpenAPI 3.1. openapi.json has what is said by hand; routes, statuses, keys, and names and ranges
 * of a request's fields come from the tables that the server itself works by. Any thread.
 */
#pragma once
#include "server/server.h"

/* Appends the document. model: what is served, whose names and vocabulary are told; NULL: nothing yet. */
LW_CHECK bool openapi_write(const ServedModel *model, Buffer *out, Error *error);
