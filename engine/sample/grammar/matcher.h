/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One text on its way through a grammar: a pushdown automaton over bytes, all of whose stacks are followed at once.
 * What it has found out about the grammar it leaves there for others, so all matchers of one grammar are used by one
 * thread at a time. Small; copies are cheap, so a check is a copy that is thrown away.
 */
#pragma once
#include "engine/sample/grammar/grammar.h"

typedef struct GrammarMatcher GrammarMatcher;

/* At the beginning of a text; takes a reference of the grammar. */
LW_CHECK bool matcher_new(Grammar *grammar, GrammarMatcher **ret_matcher, Error *error);
void matcher_free(GrammarMatcher *matcher); /* NULL is fine */
/* Where 'from' is, a matcher of the same grammar. */
void matcher_copy(GrammarMatcher *matcher, const GrammarMatcher *from);
LW_CHECK bool matcher_reset(GrammarMatcher *matcher, Error *error); /* to the beginning */

/*
 * The text goes on with these bytes, or with this token. ERR_INVALID: that is no text of the grammar, or one that can
 * be read in too many ways at once; ERR_TOO_LARGE: it is nested too deeply. After an error the matcher is where it was.
 */
LW_CHECK bool matcher_push_bytes(GrammarMatcher *matcher, const uint8_t *bytes, size_t n, Error *error);
LW_CHECK bool matcher_push_token(GrammarMatcher *matcher, uint32_t id, Error *error);
bool matcher_may_end(const GrammarMatcher *matcher);
/* May the text end behind this token? */
LW_CHECK bool matcher_may_end_by(GrammarMatcher *matcher, uint32_t id, bool *ret_may, Error *error);
/* Nothing may follow: the text is whole. */
bool matcher_is_over(const GrammarMatcher *matcher);
/* The bytes that must come next, whatever comes, at most max; *ret_n of them into out. The matcher stays. */
LW_CHECK bool matcher_forced(GrammarMatcher *matcher, uint8_t *out, size_t max, size_t *ret_n, Error *error);

/*
 * The tokens that may come next: bit id % 64 of word id / 64, valid until the next call that takes a matcher of this
 * grammar. *ret_n: how many. Every one of them can be pushed, and no other, but for ERR_TOO_LARGE.
 */
LW_CHECK bool matcher_mask(GrammarMatcher *matcher, const uint64_t **ret_words, uint32_t *ret_n, Error *error);
