/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by quantize.c, which has the table of formats, and quantize_k.c, which has those in blocks of 256. */
#pragma once
#include <stddef.h>
#include <stdint.h>

int quantize_nearest(float x, int low, int high);
float quantize_extreme(const float *x, size_t n); /* the element of largest magnitude, with its sign */
float quantize_inverse(float d);                  /* 0 for 0 */
uint8_t *quantize_put_f16(uint8_t *out, float value);
int quantize_nearest_iq4(float x); /* index of the nearest of the 16 values */

/* x: [256] */
void quantize_q2_k(const float *x, uint8_t *out);
void quantize_q3_k(const float *x, uint8_t *out);
void quantize_q4_k(const float *x, uint8_t *out);
void quantize_q5_k(const float *x, uint8_t *out);
void quantize_q6_k(const float *x, uint8_t *out);
void quantize_iq4_xs(const float *x, uint8_t *out);
