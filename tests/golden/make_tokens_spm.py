#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokens_spm.json: hard strings with the token ids of SentencePiece vocabularies. Run by hand:

    make_tokens_spm.py gemma-3-270m-q4_k_m.gguf        (needs gguf, tokenizers, llama-cpp-python)

The reference is llama.cpp; dead bytes are decoded with errors='replace' first. Vocabularies: 'gemma', which puts no blank
before a text, and 'small', with ('small_blank') and without one. 'small' is trained here without any splitting, so that
its tokens run across blanks, with scores that are often equal, and without tokens for rare characters. llama.cpp lets
plain text become a control or byte token where merges lead there, and takes Gemma's user-defined </s> for a control token;
such ids are kept under "llama.cpp" only.
"""
import json
import sys
import tempfile

import gguf
import llama_cpp
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from make_tokens import DEAD, HERE, PLAIN, has_dead, random_texts

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BLANK = "\u2581"
MORE = ["<0x41>", "a<0x0A>b", "<s>", "</s>x", "<bos>", "<eos> <eos>", "<start_of_turn>user\nhi<end_of_turn>\n", BLANK,
        f"a{BLANK}b {BLANK} {BLANK}{BLANK}", ">" + " </", "> </a> </b>", " >  </", "\n\n\n\n", "a\n\nb", "\t\t\tx", "aaaaaaaaaaa",
        "abababababab", "the the  the   the", "<table><tr><td>1</td></tr></table>", "\r\n\r\n", "z" * 65]


def train_small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme="never", split=False)
    texts = random_texts(2000, 24, 1) + PLAIN[:80]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, show_progress=False, limit_alphabet=120))
    merges = ["".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    tokens = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
    tokens += [(f"<0x{b:02X}>", BYTE, 0.0) for b in range(256)]
    tokens += [("<tool>", USER_DEFINED, 0.0), ("\n\n", USER_DEFINED, 0.0), ("<s", NORMAL, -3.0), ("<0", NORMAL, -2.0),
               ("<0x", NORMAL, -2.0)]
    known = {text for text, _, _ in tokens}
    for rank, text in enumerate(dict.fromkeys(merges)):
        if text not in known:
            tokens.append((text, NORMAL, -float(rank // 4)))
    known = {text for text, _, _ in tokens}
    letters = sorted(text for text in tokenizer.get_vocab() if len(text) == 1 and text not in known)
    tokens += [(text, NORMAL, -1000.0 - i) for i, text in enumerate(letters)]
    return {"tokens": [t for t, _, _ in tokens], "types": [k for _, k, _ in tokens], "scores": [s for _, _, s in tokens]}


def write_vocabulary(path, vocabulary, add_blank):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_scores(vocabulary["scores"])
    writer.add_token_types(vocabulary["types"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(add_blank)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def small_reference(vocabulary, add_blank):
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        write_vocabulary(file.name, vocabulary, add_blank)
        return llama_cpp.Llama(file.name, vocab_only=True, verbose=False)


def kinds_of(path):
    field = gguf.GGUFReader(path).fields["tokenizer.ggml.token_type"]
    return field.contents()


def reference_ids(reference, data, special):
    text = data.decode(errors="replace").encode()
    return reference.tokenize(text, add_bos=False, special=special) if text else []


def make_cases(references):
    data = [text.encode() for text in PLAIN + MORE + random_texts(60, 12, 2)] + DEAD
    cases, differences = [], []
    for number, d in enumerate(data):
        case = {"text": d.decode()} if not has_dead(d) and b"\0" not in d else {"hex": d.hex()}
        for name, (reference, kinds) in references.items():
            ids = reference_ids(reference, d, False)
            spelled = [bytes(f"<0x{b:02X}>", "ascii") for b in range(256)]
            forbidden = any(kinds[i] in (UNKNOWN, CONTROL) for i in ids) or \
                any(kinds[i] == BYTE for i in ids) and any(s in d for s in spelled) or name == "gemma" and b"</s>" in d
            if forbidden:
                differences.append({"case": number, "vocabulary": name, "ids": ids})
            else:
                case[name] = ids
        cases.append(case)
    return cases, differences


def make_trusted(references):
    """Whole texts in which control tokens count."""
    texts = ["<s>a b</s>", "<bos><start_of_turn>user\nHello  there<end_of_turn>\n<start_of_turn>model\n", "<s>", "x<s> y </s> z",
             "<s><tool> <tool>x", "<eos>", "<start_of_turn>"]
    return [{"text": text} | {name: reference_ids(reference, text.encode(), True) for name, (reference, _) in
                              references.items()} for text in texts]


def main():
    small = train_small()
    references = {"gemma": (llama_cpp.Llama(sys.argv[1], vocab_only=True, verbose=False), kinds_of(sys.argv[1])),
                  "small": (small_reference(small, False), small["types"]),
                  "small_blank": (small_reference(small, True), small["types"])}
    cases, differences = make_cases(references)
    parts = {"cases": cases, "trusted": make_trusted(references), "llama.cpp": differences}

    def line(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with open(HERE / "tokens_spm.json", "w", encoding="utf-8") as out:
        out.write("{\n")
        for name, part in parts.items():
            out.write(f'"{name}":[\n' + ",\n".join(line(value) for value in part) + "\n],\n")
        out.write('"small":' + line(small) + "\n}\n")


if __name__ == "__main__":
    main()
