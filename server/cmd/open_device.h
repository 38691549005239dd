/* SPDX-License-Identifier: Apache-2.0 */
/* What computes: the device that the options name, and the defaults that depend on which one it is. One thread. */
#pragma once
#include "config/config.h"
#include "engine/device.h"
#include "engine/engine.h"

/*
 * *ret_config: config with the device's defaults where nothing was given; strings stay config's. *why_not: why auto
 * found no GPU, else ERR_NONE. The device is closed after its engines.
 */
LW_CHECK bool open_device(const Config *config, Config *ret_config, Device **ret_device, Error *why_not, Error *error);

/*
 * Is the engine's refusal one that the CPU would not have, and was auto asked for? Then the device is closed, and
 * *device and *config are those of the CPU.
 */
bool open_device_give_up(const Config *given, const Error *refusal, Config *config, Device **device);

/*
 * Has the device the policies of a list [NAME,...]? Where auto chose one that lacks some it is given up for the CPU, as
 * by open_device_give_up, and *why_not names the first of these; else an error does.
 */
LW_CHECK bool open_device_policies(const Config *given, const char *policies, Config *config, Device **device,
                                   Error *why_not, Error *error);

/* What engines are told of it. */
void open_device_params(const Config *config, Device *device, EngineParams *params);

/* Whether the context is shorter than the model's own because memory holds no more: a line that says so. */
bool open_device_cut_context(const Config *config, const Device *device, const Engine *engine, char *text, size_t n);
