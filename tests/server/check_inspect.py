#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_inspect.py LONGWAVE MAKE_TINY_MODEL. Fails when 'longwave inspect' tells something else than what is there."""
import json
import pathlib
import subprocess
import sys
import tempfile

longwave, make_tiny_model = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
model = pathlib.Path(folder.name) / "tiny \x1b[31m.gguf"
results = []


def inspect(*args):
    return subprocess.run([longwave, "inspect", *args], capture_output=True, text=True, check=False)


def check(name, fine):
    results.append(bool(fine))
    if not fine:
        print(f"check_inspect: failed: {name}")


subprocess.run([make_tiny_model, model, "type=Q8_0"], check=True)
found = json.loads(inspect("-m", model, "--json", "--tensors", "--ctx", "100").stdout)
matrix = 64 * 64 * 2 + 64 * 32 * 2 + 64 * 128 * 3
counts = {row["type"]: (row["tensors"], row["parameters"], row["bytes"]) for row in found["types"]}
check("matrices of a layer", counts["Q8_0"] == (14, 2 * matrix, 2 * matrix * 34 // 32))
check("sums", sum(row[1] for row in counts.values()) == found["parameters"])
check("file size", found["file_bytes"] == model.stat().st_size and found["gguf_version"] == 3)
check("tensor list", len(found["tensors"]) == found["n_tensors"] == 20)
check("tensor", {"name": "blk.1.attn_k.weight", "type": "Q8_0", "dims": [64, 32]}.items() <=
      next(t for t in found["tensors"] if t["name"] == "blk.1.attn_k.weight").items())
check("scalar key", found["metadata"]["llama.block_count"] == 2 and found["metadata"]["tokenizer.ggml.pre"] == "smollm")
check("array key", found["metadata"]["tokenizer.ggml.tokens"]["first"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
check("shape", found["shape"]["n_kv_heads"] == 2 and found["shape"]["head_dim"] == 16 and found["shape"]["tied_output"])
kv = {row["type"]: row for row in found["memory"]["kv"]}
check("memory", kv["f32"]["bytes_per_token"] == 2 * 2 * 32 * 4 and kv["f16"]["kv_bytes"] == 100 * 2 * 2 * 32 * 2)
check("total", kv["f16"]["total_bytes"] == kv["f16"]["kv_bytes"] + found["weight_bytes"] and kv["f16"]["selected"])

text = inspect("-m", model)
check("text", text.returncode == 0 and "blk.0" not in text.stdout and "memory of one sequence of 512 tokens" in text.stdout)
check("no escape codes from a file name", "\x1b" not in text.stdout and "\\x1b" in text.stdout)
check("tensors in text", "blk.0.ffn_down.weight" in inspect("-m", model, "--tensors").stdout)

named = json.loads(inspect("--shape", "llama-3.1-8b", "--json", "-c", "128K").stdout)
check("named shape", named["memory"]["kv"][1]["kv_bytes"] == 16 << 30 and named["parameters"] == 8030261248)
waves = json.loads(inspect("--shape", "qwen2.5-0.5b", "--wavelength", "--json", "-c", "32K").stdout)["wavelength"]
check("wavelength counts", round(waves["exact"]["prefill"]["pruned"], 4) == 0.4764 and
      round(waves["exact"]["last_row"]["pruned"], 4) == 0.5127 and waves["layers"] == 24)
check("closed form", round(waves["closed_form"]["prefill"], 4) == 0.4608 and waves["context"] == 32768)
check("bands", waves["table"] == [{"first_distance": d, "channels": c} for d, c in
                                  ((0, 64), (259, 48), (8161, 32), (258054, 16))])
check("bands keep more", 0.3 < waves["bands"]["prefill"]["pruned"] < waves["exact"]["prefill"]["pruned"])
gemma = json.loads(inspect("--shape", "gemma3-270m", "--wavelength", "--json", "--wavelength-k", "4").stdout)["wavelength"]
check("layers without windows", gemma["layers"] == 3 and gemma["k"] == 4 and gemma["table"][0]["channels"] == 256)
scaled = json.loads(inspect("--shape", "llama-3.2-3b", "--wavelength", "--json", "-c", "8K").stdout)["wavelength"]
check("no closed form of scaled wavelengths", scaled["closed_form"] is None)
stretched = json.loads(inspect("--shape", "qwen2.5-0.5b", "--wavelength", "--json", "--rope", "yarn=5").stdout)
check("yarn", round(stretched["wavelength"]["exact"]["prefill"]["pruned"], 4) == 0.5377 and
      stretched["shape"]["train_context"] == 160 << 10 and stretched["shape"]["rope_yarn_factor"] == 5)
bad_rope = inspect("--shape", "qwen2.5-0.5b", "--rope", "yarn")
check("no factor", bad_rope.returncode == 1 and "a factor from 1" in bad_rope.stderr and not bad_rope.stdout)
own = json.loads(inspect("-m", model, "--wavelength", "--json").stdout)["wavelength"]
check("wavelengths of a file", own["table"] == [{"first_distance": 0, "channels": 16}] and own["context"] == 512)
check("wavelength text", "by its closed form" in inspect("-m", model, "--wavelength").stdout and
      "\n           259         48\n" in inspect("--shape", "qwen2.5-0.5b", "--wavelength").stdout)
check("no periods", inspect("--shape", "llama-2-7b", "--wavelength-k", "0").returncode == 2)
wrong = inspect("--shape", "llama-9")
check("unknown shape", wrong.returncode == 1 and "qwen2.5-0.5b" in wrong.stderr and not wrong.stdout)
plan = json.loads(inspect("--shape", "llama-3.1-8b", "--json", "-c", "128K", "--plan", "--gpu-memory", "72G", "--host-memory", "32G",
                          "--policies", "dense,lserve-4k").stdout)["plan"]
rows = {(row["place"], row["kv_type"], row["policy"]): row for row in plan["rows"]}
bf16 = rows["gpu", "bf16", "dense"]
room = (72 << 30) - plan["weight_bytes"] - plan["buffer_bytes"]
check("contexts of a plan", plan["contexts"] == [2048, 8192, 32768, 131072] and len(rows) == len(plan["rows"]) == 2 * 3 * 4)
check("weights of a named shape", abs(plan["weight_bytes"] / 8030261248 - 34 / 32) < 0.001 and plan["buffer_bytes"] > 1 << 30)
check("bytes of a token", bf16["bytes_per_token"] == 2 * 32 * 8 * 128 * 2 and bf16["sequences"] ==
      [room // (n * 131072) for n in plan["contexts"]])
check("the longest", bf16["longest"] == room // (64 * 131072) * 64 and bf16["memory_bytes"] == 72 << 30)
check("a host maps its weights", rows["host", "bf16", "dense"]["longest"] == (32 << 30) // (64 * 131072) * 64)
on_host = rows["host", "bf16", "dense"]["longest"]
check("streaming heads and small types hold more", on_host * 1.8 < rows["host", "bf16", "dense, 50 % stream"]["longest"] and
      on_host * 1.8 < rows["host", "int8", "dense"]["longest"] and bf16["longest"] * 1.8 < rows["gpu", "int8", "dense"]["longest"])
check("a GPU keeps images of pages for each pass", rows["gpu", "int8", "dense"]["sequences"][-1] == 6)
check("bounds cost", rows["gpu", "bf16", "lserve-4k"]["longest"] < bf16["longest"])
text = inspect("-m", model, "--plan", "--sparsity", "0", "--kv-type", "f16").stdout.split("what fits")[1]
check("a plan as text", len(text.splitlines()) == 3 + 5 + 1 + 1 and " stream" not in text)
check("a plan goes beyond the training", text.splitlines()[-1].startswith("beyond 512 tokens"))
check("no GPU keeps f32", {row["place"] for row in json.loads(inspect("-m", model, "--plan", "--kv-type", "f32", "--json").stdout)
                           ["plan"]["rows"]} == {"host"})
check("a card without room", json.loads(inspect("--shape", "llama-3.1-8b", "--json", "--plan", "--gpu-memory", "4G").stdout)["plan"]
      ["rows"][0]["sequences"] == [0, 0, 0, 0])
check("unknown policies", inspect("-m", model, "--plan", "--policies", "nonsense").returncode == 1)
check("neither", inspect().returncode == 2)
check("both", inspect("-m", model, "--shape", "llama-2-7b").returncode == 2)
check("help", "--tensors" in inspect("--help").stdout)
missing = inspect("-m", f"{folder.name}/none.gguf")
check("missing file", missing.returncode == 1 and "none.gguf: No such file" in missing.stderr)
model.write_bytes(model.read_bytes()[:-1])
cut = inspect("-m", model)
check("cut file", cut.returncode == 1 and "the file ends at" in cut.stderr)

print(f"check_inspect: {sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
