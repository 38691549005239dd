/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of one or two tokens wait here, so that those that follow one another go as one kernel (gemv_dot.cuh), with
 * the attention of few keys between them. What else is put on the stream sends them first: every launch does
 * (launch.cuh), and so must whoever copies, waits, or ends a graph. One stream's, one thread at a time.
 */
#pragma once
#include "kernels/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

/* With memory of its own on the current device. NULL: there is none. */
MatmulQueue *matmul_queue_new(void);
void matmul_queue_free(MatmulQueue *queue); /* NULL is fine */
/* False: a launch failed. Without a queue, and without products in it: fine. */
bool matmul_queue_send(Stream stream);

#ifdef __cplusplus
}
#endif
