/* SPDX-License-Identifier: Apache-2.0 */
/* How what a device must find for a piece of work lies in the memory that goes over (device_step.h): offsets in bytes.
 */
#pragma once
#include <stddef.h>

/* What a packet is of. */
typedef struct PacketShape {
    size_t n_rows, n_spans, n_layers;
    size_t n_plans;   /* of one span, where spans select: plans of their own; 0: none does */
    size_t n_planned; /* spans, the first ones, that may */
    size_t n_asks;
} PacketShape;

/*
 * Where its parts begin; ids come first. Views: [n_spans, KV_MAX_CLASSES]; spans and jobs: [n_layers, n_spans]; plans:
 * [n_planned, n_plans]; asks: [n_asks].
 */
typedef struct Packet {
    size_t positions, views, spans, jobs, plans, asks, bytes;
    size_t n_plans;
} Packet;

size_t packet_aligned(size_t n);
Packet packet_of(PacketShape shape);
