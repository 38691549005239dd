#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokens.json: hard strings with the token ids that the reference tokenizers give. Run by hand:

    make_tokens.py SmolLM2-135M-Instruct.Q4_1.gguf        (needs gguf, tokenizers, llama-cpp-python)

The reference is Hugging Face's `tokenizers`, built here from a GGUF's vocabulary and merges with the pre-tokenizer that
a row's name stands for; dead bytes are decoded with errors='replace' first, since it takes only text. llama.cpp is
asked too; where it differs, its ids are kept under "llama.cpp" with the reason. The row 'default' exists in llama.cpp
alone: there its patterns are rebuilt as Hugging Face splits.

Two vocabularies: 'smollm2', and 'small', which is trained here without any splitting, so that its merges run across
every place where a pre-tokenizer has to cut. A row that is missing in a case has the ids of row 'smollm'.
"""
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import gguf
import llama_cpp
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

ROWS = ("smollm", "gpt-2", "llama-bpe", "default", "qwen2", "tekken", "gpt-4o")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
         r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
HERE = pathlib.Path(__file__).parent
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4

PLAIN = [
    "", " ", "a", "Hello world", "Hello world! Café déjà vu - 123 😊", "What is the capital of France?",
    "été à Noël, cœur, ñandú, Straße, İstanbul, ǅ", "e\u0301te\u0301 n\u0303 (combining)", "ﬁ ﬂ Ⅷ ½ ² ① ٣ ३ 五",
    "😊😊 👩‍👩‍👧‍👦 👍🏽 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇫🇷 ❤️", "你好，世界！今天天气很好。", "こんにちは世界 カタカナ", "안녕하세요 세계",
    "مرحبا بالعالم ١٢٣", "שלום עולם", "Привет, мир! Ёлка", "สวัสดีชาวโลก", "नमस्ते दुनिया", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠀀",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i] << 3; }",
    "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a='b' AND c>=10;", "#include <stdio.h>\r\n\r\nint main(void){}\r\n",
    "https://example.org/a/b?c=d&e=f#g", "a_b-c.d@e.fg", "x=1;y=2", "~~ ^^ || $$ ++ <<>> == ``", "\"'`´‘’“”«»…—–",
    "  two", "   three", "a  b", "a   b    c     d", "a ", "a  ", "a \n", "a\n ", "\n", "\n\n", "\n\n\n", " \n \n ",
    "\t", "\t\t", "\t a", " \t\n\r\x0b\x0c", "a\r\nb", "a\rb", "a\n\n  b", "end\n\n\n   ", "...\n\n", "!\n", "! \n", " !\n x",
    "\u00a0", "a\u00a0b", "a\u00a0\u00a0b", "\u2003\u2003x", "\u3000全角\u3000", "\u180e", "a\u180eb", "  \u180e  x",
    "\u200b\u200d\ufeff", "\u0085", "a\u0085\u0085b", "\u2028a\u2029\u2029b", "\u1680\u202f\u205f",
    "0", "12", "123", "1234", "12345678", "3.14159", "1,000,000.00", "0x1F", "1st 2nd", "a1b22c333", "  42", "v1.2.3-rc4",
    "I'm you're he's we've I'll I'd don't", "I'M YOU'RE HE'S WE'VE I'LL I'D DON'T", "'s't're've'm'll'd", "' s '", "''s",
    "it'S 'Tis rock'n'roll O'Neil's", "'ſ 'ſx x'ſ", "\u2019s it\u2019s",
    "<|im_end|>", "<|im_start|>user\nhi<|im_end|>\n", "a<|endoftext|>b", "<|im_end", "<|im_end|>>", "<|<|im_end|>|>",
    "\x00", "a\x00b", "\x01\x02\x03\x04\x05\x06\x07", "!\x04!", "a\x04b\x7f", "\x1b[31mred\x1b[0m",
    "\ufffd", "a\ufffd\ufffdb", "\ufffe\uffff", "\U0010ffff", "\ue000\U000f0000", "\u0378\U000e0fff",
    "a" * 300, "ab" * 150, " " * 200, " " * 130 + "x", "\n" * 90, "!" * 120, "5" * 50, "é" * 40, "漢" * 40,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "antidisestablishmentarianism" * 4,
    "unreachable unreachable\nunreachable", "<tool> <tool>>> x  \n  y   \n   <tool",
]
CASES = ["HelloWorld XMLHttpRequest iPhone", "theThe catThe erThe ingThe THEcat", "TheThe'sThe can't'LLx Don'Ts", "aÉb ÉCOLE École ÀB éÉ",
         "a/b//c/\n/x !/\n\n/ ...//", "e\u0301E\u0301a\u0301the\u0301The", "ǅungla Ǆǆ ʰThe", "世界The世界the 你the", "яЯ the\u0301'sThe", "x'sThe'S_The-The"]
DEAD = [b"\xff", b"a\xffb", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x8a\xf0\x9f\x98 \xf0\x9f", b"caf\xe9", b"\xc3", b"\xc3(", b"\x80\x80",
        b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82",
        b"\xe2\x82 x", b"\xe2(\xa1", b"1\xfe2", b" \xfd ", b"\xf0\x9f<|im_end|>"]
ABORTS = (b"\xf4\x90\x80\x80",)  # llama.cpp ends the process at code points beyond U+10FFFF
PIECES = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "the", "The", " of", "cat", "ing", "er", "'s", "'T", "'ll", "'Tis", "'really", "'LLx", "'ſo", "!", "...", ",", "(", ")",
          "<", ">", "|", "_", "-", "=", "$", "+", "0", "7", "19", "2024", "½", "é", "ü", "ñ", "ß", "你", "世界", "か", "😊", "👍🏽", "ع",
          "Я", "\u00a0", "\u3000", "\u200d", "\u0301", "`", "~", "^", "\"", "{", "}", "//", "#", "x", "y1", "Z"]


def random_texts(n, n_pieces, seed):
    rng = random.Random(seed)
    return ["".join(rng.choice(PIECES) for _ in range(n_pieces)) for _ in range(n)]


def written_bytes():
    """byte -> the character that stands for it in the file."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(others)}


def train_small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + 600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(random_texts(3000, 24, 1) + PLAIN, trainer)
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    tokens = [("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    tokens += [(text, NORMAL) for _, text in sorted(written_bytes().items())]
    tokens += [(merge.replace(" ", ""), NORMAL) for merge in merges]
    tokens += [("Ġunreachable", NORMAL), ("<tool>", USER_DEFINED), ("<tool>>", USER_DEFINED), ("  \n  ", USER_DEFINED)]
    return {"tokens": [t for t, _ in tokens], "types": [k for _, k in tokens], "merges": merges}


def read_vocabulary(path):
    reader = gguf.GGUFReader(path)

    def values(key):
        field = reader.fields[key]
        return [field.parts[i].tobytes().decode() if field.types[1] == gguf.GGUFValueType.STRING else int(field.parts[i][0])
                for i in field.data]
    return {"tokens": values("tokenizer.ggml.tokens"), "types": values("tokenizer.ggml.token_type"),
            "merges": values("tokenizer.ggml.merges")}


def hf_tokenizer(vocabulary, row, specials):
    """specials: which types are recognised in the text."""
    def splits(*patterns):
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [byte_level])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = Tokenizer(models.BPE(
        vocab={t: i for i, t in enumerate(vocabulary["tokens"])},
        merges=[tuple(merge.split(" ")) for merge in vocabulary["merges"]], ignore_merges=row in ("llama-bpe", "tekken")))
    tokenizer.pre_tokenizer = {
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "gpt-2": gpt2,
        "llama-bpe": splits(LLAMA3),
        "qwen2": splits(LLAMA3.replace("{1,3}", "")),
        "tekken": splits(CASED % ("", "", "")),
        "gpt-4o": splits(CASED % (CONTRACTION, CONTRACTION, "{1,3}")),
        "default": splits(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    }[row]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, kind in
                                  zip(vocabulary["tokens"], vocabulary["types"]) if kind in specials])
    return tokenizer


def write_vocabulary(path, vocabulary, pre):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_tokenizer(vocabulary, row):
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        write_vocabulary(file.name, vocabulary, row)
        return llama_cpp.Llama(file.name, vocab_only=True, verbose=False)


def has_dead(data):
    try:
        data.decode()
        return False
    except UnicodeDecodeError:
        return True


def reason(data, vocabulary, row):
    """Why llama.cpp may differ; None: no known reason."""
    if has_dead(data):
        return "one U+FFFD for each dead byte, not for each maximal subpart"
    missing = [b for b, text in written_bytes().items() if text not in vocabulary["tokens"]]
    if any(b in missing for b in data):
        return "merges stop at a byte without a token, where the reference leaves the byte out first"
    if row in ("tekken", "gpt-4o") and any(unicodedata.category(c)[0] == "M" or unicodedata.category(c) in ("Lu", "Ll", "Lt")
                                           and ord(c) > 127 for c in data.decode()):
        return "letters beyond ASCII count as upper and as lower case, marks as no letters"
    if "'ſ" in data.decode():
        return "upper and lower case of a contraction are listed, so that the long s (U+017F) is none"
    return None


def make_cases(vocabularies):
    data = [text.encode() for text in PLAIN + random_texts(40, 12, 2) + CASES] + DEAD
    cases = [{"text": d.decode()} if not has_dead(d) and b"\0" not in d else {"hex": d.hex()} for d in data]
    differences = []
    for name, vocabulary in vocabularies.items():
        for row in ROWS:
            reference, other = hf_tokenizer(vocabulary, row, (USER_DEFINED,)), llama_tokenizer(vocabulary, row)
            for number, d in enumerate(data):
                ids = reference.encode(d.decode(errors="replace"), add_special_tokens=False).ids
                of_row = cases[number].setdefault(name, {})
                if row == "smollm" or ids != of_row["smollm"]:
                    of_row[row] = ids
                if d in ABORTS:
                    continue
                theirs = other.tokenize(d, add_bos=False, special=False) if d else []
                if theirs != ids:
                    why = reason(d, vocabulary, row)
                    if not why:
                        print("UNEXPLAINED", name, row, d, ids, theirs, file=sys.stderr)
                    differences.append({"case": number, "vocabulary": name, "row": row, "ids": theirs, "why": why})
    return cases, differences


def make_trusted(vocabularies):
    """Whole texts in which control tokens count."""
    texts = ["<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>", "a<|im_end|>b", "<|im_end|><|im_end|>",
             "<|im_end", "<|<|im_end|>|>", " <|im_start|> x <|im_end|> ", "<|endoftext|>é😊<|endoftext|>", "<tool>><tool>", "<|im_start|><tool>x"]
    return [{"text": text} | {name: hf_tokenizer(v, "smollm", (CONTROL, USER_DEFINED)).encode(text, add_special_tokens=False).ids
                              for name, v in vocabularies.items()} for text in texts]


def make_replaced():
    """Random bytes and what Python makes of them."""
    rng = random.Random(3)
    bytes_ = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3,
              0xF4, 0xF5, 0xFF]
    data = [bytes(rng.choice(bytes_) for _ in range(rng.randint(1, 9))) for _ in range(150)]
    data += [bytes([lead, rng.choice(bytes_), 0x80, 0x80][:rng.randint(2, 4)]) for lead in bytes_ for _ in range(3)]
    return [[d.hex(), d.decode(errors="replace").encode().hex()] for d in data]


def main():
    small = train_small()
    vocabularies = {"small": small, "smollm2": read_vocabulary(sys.argv[1])}
    cases, differences = make_cases(vocabularies)
    parts = {"cases": cases, "trusted": make_trusted(vocabularies), "llama.cpp": differences, "replaced": make_replaced()}

    def line(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with open(HERE / "tokens.json", "w", encoding="utf-8") as out:
        out.write("{\n")
        for name, part in parts.items():
            out.write(f'"{name}":[\n' + ",\n".join(line(value) for value in part) + "\n],\n")
        out.write('"small":' + line(small) + "\n}\n")


if __name__ == "__main__":
    main()
