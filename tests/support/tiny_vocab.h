/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of tiny models: special tokens, the 256 bytes, then what the merges make. Any thread. */
#pragma once
#include "tests/support/gguf_writer.h"

uint32_t tiny_vocab_size(void);
/* Writes the tokenizer.* keys. */
void tiny_vocab_write(GgufWriter *writer, const char *pre, bool add_bos);
/* A small SentencePiece vocabulary: <unk>, <s>, </s>, the 256 bytes, then letters and words with scores. */
void tiny_vocab_write_spm(GgufWriter *writer);
void tiny_vocab_write_chat(GgufWriter *writer, const char *pre, bool add_bos, const char *chat_template);
