# SPDX-License-Identifier: Apache-2.0
"""longwave generate: what comes on stdout and stderr, and the exit status."""
import subprocess

import pytest

from longwave_server import BINARY, MODEL, strict_json

CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nCount from 1 to 20.<|im_end|>\n<|im_start|>assistant\n")


def generate(*options, **more):
    return subprocess.run([BINARY, "generate", *options], capture_output=True, timeout=300, **more)


def answer(*options, **more):
    done = generate("-m", str(MODEL), *options, **more)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"", "no progress when stderr is no terminal"
    return done.stdout.decode()


def test_the_chat_template_is_applied():
    text = answer("-p", "Count from 1 to 20.", "--temperature", "0", "-n", "24")
    assert text == answer("--raw", "-p", CHAT, "--temperature", "0", "-n", "24")
    assert "1" in text and "<|im_" not in text


def test_raw_continues_the_text():
    text = answer("--raw", "-p", "1, 2, 3, 4, 5, 6, 7, 8,", "--temperature", "0", "-n", "8")
    assert text.startswith(" 9, 1"), text


def test_json_has_the_same_text_and_figures():
    options = ("--raw", "-p", "One day", "--seed", "18446744073709551615", "-n", "20")
    figures = strict_json(answer(*options, "--json"))
    assert figures["text"] + "\n" == answer(*options)
    assert figures["seed"] == 18446744073709551615
    assert figures["finish_reason"] == ("length" if figures["generated_tokens"] == 20 else "stop")
    assert figures["prompt_tokens"] > 0 and figures["prefill_tokens_per_second"] > 0


def test_the_prompt_from_a_file_and_from_standard_input(tmp_path):
    (tmp_path / "prompt").write_text("One day")
    options = ("--raw", "--seed", "7", "-n", "12")
    text = answer("-p", "One day", *options)
    assert text == answer("-f", str(tmp_path / "prompt"), *options) == answer("-f", "-", *options, input=b"One day")


def test_threads_and_chunks_do_not_change_the_text():
    prompt = "The quick brown fox jumps over the lazy dog. " * 20
    texts = {answer("--raw", "-p", prompt, "--seed", "3", "-n", "12", "-t", t, "--prefill-chunk", c)
             for t in ("1", "2") for c in ("1", "7", "256")}
    assert len(texts) == 1


@pytest.mark.parametrize("options", [
    ("--mirostat", "2", "--mirostat-tau", "3"), ("--typical-p", "0.5"), ("--top-n-sigma", "1"),
    ("--xtc-probability", "1", "--xtc-threshold", "0.02"), ("--dynatemp-range", "0.7"),
    ("--repetition-penalty", "1.5", "--repeat-last-n", "8"),
])
def test_samplers_change_the_text_and_repeat_by_seed(options):
    plain = ("--raw", "-p", "la la la la la la la la", "--seed", "3", "-n", "24")
    text = answer(*plain, *options)
    assert text == answer(*plain, *options) != answer(*plain)


def test_dry_ends_a_loop():
    options = ("--raw", "-p", "The cat sat. " * 5 + "The cat", "--temperature", "0", "-n", "8")
    assert answer(*options).startswith(" sat.")
    assert not answer(*options, "--dry-multiplier", "5").startswith(" sat")


def test_the_context_is_what_memory_holds():
    done = generate("-m", str(MODEL), "--raw", "-p", "The cat", "-n", "2", "--host-memory", "20M")
    assert done.returncode == 0 and done.stdout
    assert b"the context is 896 tokens, not the model's own 8192" in done.stderr
    assert b"the context is" not in generate("-m", str(MODEL), "-p", "x", "-n", "2").stderr


@pytest.mark.parametrize("options, status, words", [
    (("-m", str(MODEL)), 2, "-p"),
    (("-m", str(MODEL), "-p", "x", "-f", "y"), 2, "-p"),
    (("-m", str(MODEL), "-p", "x", "--temperature", "hot"), 2, "temperature"),
    (("-m", str(MODEL), "-p", "x", "--mirostat", "3"), 2, "mirostat"),
    (("-m", str(MODEL), "-p", "x", "--xtc-probability", "-1"), 2, "xtc-probability"),
    (("-m", str(MODEL), "-p", "x", "--kv-type", "full=f17"), 2, "--kv-type: 'f17'"),
    (("-m", str(MODEL), "-p", "x", "--host-memory", "20M", "-c", "1000"), 1, "enough for a ctx of 896"),
    (("-m", str(MODEL), "-p", "x", "--host-memory", "10M"), 1, "enough for a ctx of "),
    (("-m", str(MODEL), "--raw", "-f", "/dev/null"), 1, "no tokens"),
    (("-m", "/nonexistent.gguf", "-p", "x"), 1, "/nonexistent.gguf"),
    (("-m", str(MODEL), "-p", "x", "-c", "9000"), 1, "8192"),
    (("-m", str(MODEL), "-p", "many words " * 40, "-c", "64"), 1, "64"),
])
def test_what_is_wrong_is_named(options, status, words):
    done = generate(*options)
    assert done.returncode == status and done.stdout == b""
    assert words in done.stderr.decode()
