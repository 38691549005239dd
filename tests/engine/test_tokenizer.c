/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/text/tokenizer.h"
#include "tests/support/gguf_writer.h"

#include <criterion/criterion.h>
#include <string.h>

Test(tokenizer, refuses_an_unknown_model)
{
    GgufWriter writer;
    gguf_writer_init(&writer);
    gguf_writer_string(&writer, "tokenizer.ggml.model", "no-such-model");
    Buffer file;
    buffer_init(&file, 1 << 20);
    gguf_writer_finish(&writer, &file);
    gguf_writer_done(&writer);
    Error error;
    Gguf *gguf;
    cr_assert(gguf_open_memory(file.data, file.n, "test", &gguf, &error), "%s", error.text);
    Tokenizer *tokenizer = NULL;
    cr_assert(!tok_new(gguf, &tokenizer, &error));
    cr_assert_eq(error.code, ERR_UNSUPPORTED);
    cr_assert_str_eq(error.param, "tokenizer.ggml.model");
    cr_assert(strstr(error.text, "no-such-model"), "%s", error.text);
    cr_assert_null(tokenizer);
    gguf_close(gguf);
    buffer_done(&file);
}
