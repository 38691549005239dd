/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_vocab.h"
#include "tests/support/tiny_chat.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <string.h>

static const char *const special_tokens[] = {
    [TINY_ENDOFTEXT] = "<|endoftext|>",
    [TINY_IM_START] = "<|im_start|>",
    [TINY_IM_END] = "<|im_end|>",
};

/* In order of rank; halves are bytes or made by earlier rows. U+0120 stands for the blank, U+010A for the newline. */
static const char *const merges[] = {
    "Ġ t",        "h e",         "Ġt he",    "Ġ a",       "Ġ Ġ",       "Ġ w",    "Ġ i",       "Ġ s",      "Ġ o",
    "i n",        "a t",         "Ġa n",     "Ġ f",       "Ġ c",       "r e",    "l l",       "a n",      "Ġt o",
    "Ġo f",       "Ġi s",        "Ġc a",     "v e",       "s t",       "o n",    "e r",       "ĠĠ Ġ",     "Ġw e",
    "Ġt h",       "Ġan d",       "Ġ n",      "Ġ 1",       "u n",       "t he",   "r an",      "o u",      "ll o",
    "i t",        "i on",        "c e",      "a l",       "Ġthe y",    "Ġs e",   "Ġi n",      "Ġf un",    "Ġfun c",
    "Ġfunc t",    "Ġfunct ion",  "Ġca p",    "Ġcap it",   "Ġcapit al", "Ġa s",   "Ġas s",     "Ġass i",   "Ġassi st",
    "Ġassist an", "Ġassistan t", "Ġa re",    "Ġ v",       "Ġ h",       "Ġ d",    "Ġ T",       "ĠT he",    "Ġ H",
    "ĠH e",       "ĠHe llo",     "Ġ F",      "ĠF ran",    "ĠFran ce",  "Ġ 2",    "Ċ ĠĠĠ",     "Ã ©",      "u e",
    "r n",        "o w",         "o r",      "in g",      "i s",       "h at",   "ĠĠ ĠĠĠ",    "ĠĠ ĠĠĠĠĠ", "Ġwe n",
    "Ġwen t",     "Ġwe at",      "Ġweat he", "Ġweathe r", "Ġw or",     "Ġwor l", "Ġworl d",   "Ġw it",    "Ġwit h",
    "Ġw hat",     "Ġw at",       "Ġwat er",  "Ġw a",      "Ġwa s",     "Ġv u",   "Ġv al",     "Ġval ue",  "Ġto d",
    "Ġtod a",     "Ġtoda y",     "Ġthe re",  "Ġth re",    "Ġthre e",   "Ġth is", "Ġth at",    "Ġt w",     "Ġtw o",
    "Ġt e",       "Ġte n",       "Ġse ve",   "Ġseve n",   "Ġse a",     "Ġs y",   "Ġsy st",    "Ġsyst e",  "Ġsyste m",
    "Ġs un",      "Ġs o",        "Ġs i",     "Ġsi x",     "Ġs h",      "Ġsh in", "Ġshin ing", "Ġo u",
};

enum {
    N_SPECIAL = sizeof special_tokens / sizeof *special_tokens,
    N_MERGES = sizeof merges / sizeof *merges,
    N_TOKENS = N_SPECIAL + 256 + N_MERGES,
};

uint32_t tiny_vocab_size(void)
{
    return N_TOKENS;
}

/* Byte-level BPE writes a byte as a printable code point: itself where it is one, else the next from U+0100 on. */
static void byte_text(unsigned byte, unsigned *next, char text[4])
{
    bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    unsigned point = is_printable ? byte : (*next)++;
    if (point < 0x80) {
        snprintf(text, 4, "%c", (char)point);
    } else {
        snprintf(text, 4, "%c%c", (char)(0xC0 | point >> 6), (char)(0x80 | (point & 63)));
    }
}

static void write_tokens(GgufWriter *writer)
{
    char texts[N_TOKENS][16];
    const char *tokens[N_TOKENS];
    int32_t types[N_TOKENS];
    unsigned next = 256;
    for (unsigned i = 0; i < N_TOKENS; i++) {
        char *text = texts[i];
        if (i < N_SPECIAL) {
            snprintf(text, sizeof texts[i], "%s", special_tokens[i]);
        } else if (i < N_SPECIAL + 256) {
            byte_text(i - N_SPECIAL, &next, text);
        } else {
            const char *merge = merges[i - N_SPECIAL - 256], *blank = strchr(merge, ' ');
            snprintf(text, sizeof texts[i], "%.*s%s", (int)(blank - merge), merge, blank + 1);
        }
        tokens[i] = text;
        types[i] = i < N_SPECIAL ? 3 : 1; /* control, normal */
    }
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", tokens, N_TOKENS);
    gguf_writer_array(writer, "tokenizer.ggml.token_type", GGUF_I32, types, N_TOKENS);
}

/* The best first; U+2581 stands for the blank. */
static const char *const spm_words[] = {
    "▁the", "▁and", "▁▁", "▁▁▁▁", "▁th", "he", "an", "▁a", "nd", "▁t", "in", "ing",  "▁in", "é",
    "dé",   "\n\n", "ab", "ba",   "aa",  "▁",  "e",  "t",  "a",  "o",  "i",  "n",    "s",   "h",
    "r",    "d",    "l",  "u",    "b",   "g",  "1",  "2",  "\n", "日", "本", "日本",
};
enum { N_SPM = N_SPECIAL + 256 + sizeof spm_words / sizeof *spm_words };

void tiny_vocab_write_spm(GgufWriter *writer)
{
    static const char *const specials[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
    char bytes[256][8];
    const char *tokens[N_SPM];
    int32_t types[N_SPM];
    float scores[N_SPM];
    for (int i = 0; i < N_SPM; i++) {
        int byte = i - N_SPECIAL, word = byte - 256;
        bool is_byte = byte >= 0 && byte < 256;
        if (is_byte) snprintf(bytes[byte], sizeof bytes[byte], "<0x%02X>", (unsigned)byte);
        tokens[i] = byte < 0 ? specials[i] : is_byte ? bytes[byte] : spm_words[word];
        types[i] = i == 0 ? 2 : byte < 0 ? 3 : is_byte ? 6 : 1; /* unknown, control, byte, normal */
        scores[i] = word < 0 ? 0 : (float)-word;
    }
    gguf_writer_string(writer, "tokenizer.ggml.model", "llama");
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", tokens, N_SPM);
    gguf_writer_array(writer, "tokenizer.ggml.token_type", GGUF_I32, types, N_SPM);
    gguf_writer_array(writer, "tokenizer.ggml.scores", GGUF_F32, scores, N_SPM);
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_bool(writer, "tokenizer.ggml.add_space_prefix", false);
}

void tiny_vocab_write(GgufWriter *writer, const char *pre, bool add_bos)
{
    tiny_vocab_write_chat(writer, pre, add_bos, tiny_chat_template("calls"));
}

void tiny_vocab_write_chat(GgufWriter *writer, const char *pre, bool add_bos, const char *chat_template)
{
    gguf_writer_string(writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string(writer, "tokenizer.ggml.pre", pre);
    write_tokens(writer);
    gguf_writer_strings(writer, "tokenizer.ggml.merges", merges, N_MERGES);
    gguf_writer_u32(writer, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gguf_writer_u32(writer, "tokenizer.ggml.unknown_token_id", TINY_ENDOFTEXT);
    gguf_writer_u32(writer, "tokenizer.ggml.padding_token_id", TINY_IM_END);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", add_bos);
    gguf_writer_string(writer, "tokenizer.chat_template", chat_template);
}
