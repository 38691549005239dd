/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what is repeated many times a build under a sanitizer repeats. */
#pragma once

/*
 * Sanitizers look at what is touched, not at figures: draws for a distribution, random inputs and steps through all
 * sizes are one in SANITIZED_SHARE there, and whole in a plain build. Odd, so that steps of it meet all residues.
 */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED_SHARE = 5 };
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED_SHARE = 5 };
#else
enum { SANITIZED_SHARE = 1 };
#endif
#else
enum { SANITIZED_SHARE = 1 };
#endif
