/* SPDX-License-Identifier: Apache-2.0 */
/* A whole server on a thread of its own, with the tiny model's tokenizer and template and the fake worker. */
#pragma once
#include "base/log.h"
#include "server/server.h"
#include "tests/support/fake_worker.h"

/* The names are tiny, alias/tiny and this one. */
#define FIXTURE_LONG_NAME                                                                                              \
    "a/name/that/is/longer/than/most/buffers/would/be/"                                                                \
    "0123456789012345678901234567890123456789012345678901234567890123"                                                 \
    "456789012345678901234567890123456789/end"

typedef struct Fixture Fixture;

typedef struct FixtureOptions {
    uint32_t step_usec; /* between two tokens */
    uint32_t max_queue;
    uint32_t context;
    const char *session_dir;
    LogLevel log_level;
    bool loading;        /* no model is attached */
    bool compiles_never; /* all places for that are taken, for ever */
    const char *chat;    /* of the tiny model; NULL: its default */
    ServerParams params; /* from fixture_defaults */
} FixtureOptions;

/* Short deadlines, a free port, a context of 512 tokens. */
FixtureOptions fixture_defaults(void);
Fixture *fixture_start(const FixtureOptions *options);
uint16_t fixture_port(const Fixture *fixture);
void fixture_tell_loading(Fixture *fixture, double fraction); /* as the thread that loads */
void fixture_drain(Fixture *fixture);                         /* as SIGTERM; returns at once */
void fixture_halt(Fixture *fixture);                          /* as a second SIGTERM */
/* The loop ended by itself within the time. */
bool fixture_ended(Fixture *fixture, uint32_t timeout_ms);
void fixture_stop(Fixture *fixture); /* halts if need be, joins, frees */
