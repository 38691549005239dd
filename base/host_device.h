/* SPDX-License-Identifier: Apache-2.0 */
/* LW_INLINE: what "static inline" is to a small definition that kernels on a GPU share with the CPU. */
#pragma once

#ifdef __CUDACC__
#define LW_INLINE static inline __host__ __device__
#else
#define LW_INLINE static inline
#endif
