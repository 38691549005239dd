/* SPDX-License-Identifier: Apache-2.0 */
/* Many clients at random against a server: streams, whole answers, departures, aborts, status routes, bad bodies. */
#pragma once
#include <stdint.h>

/* Every client that stays must get a complete answer; what went wrong, 0: nothing. */
uint32_t clients_run(uint16_t port, uint32_t n_turns);
/* Streams that are open when the drain begins must end well. */
uint32_t clients_drain(uint16_t port, void (*drain)(void *arg), void *arg);
