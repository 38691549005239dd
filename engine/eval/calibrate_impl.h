/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of calibrate: for its own files alone. */
#pragma once
#include "engine/eval/calibrate.h"
#include "engine/eval/files.h"

enum { CALIBRATE_MAX_TASKS = 16, CALIBRATE_MAX_POLICIES = 24, CALIBRATE_MACHINE = 160 };
enum { PROMPT_WORK = 16 }; /* heads that are measured while a prompt is read, about */

struct Calibrate {
    CalibrateParams params;
    Calibration found;
    char machine[CALIBRATE_MACHINE];
    TaskSpec tasks[CALIBRATE_MAX_TASKS];
    PolicySpec specs[CALIBRATE_MAX_POLICIES];
    uint32_t n_tasks, n_specs;
    Engine *engine; /* of the stage that runs */
    PromptFrame frame;
    HeadRoles roles;
    FileLock lock;      /* of the output */
    double done, whole; /* of the work, for the bar */
    uint64_t saved_usec;
};

/* Opens the engine with dense attention, and the found roles where is_with_roles. */
LW_CHECK bool calibrate_open(Calibrate *calibrate, bool is_with_roles, Error *error);
void calibrate_close(Calibrate *calibrate);
/* A part of the work is done: the bar moves, and now and then the file is written. */
LW_CHECK bool calibrate_step(Calibrate *calibrate, double work, Error *error);

/* Losses of all heads on all prompts. */
LW_CHECK bool calibrate_rank(Calibrate *calibrate, Error *error);
/* The chosen heads stream: their policy on prompts of their own. Then the policies at each length. */
LW_CHECK bool calibrate_check(Calibrate *calibrate, Error *error);
LW_CHECK bool calibrate_crossover(Calibrate *calibrate, Error *error);
