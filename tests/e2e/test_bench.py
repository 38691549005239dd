# SPDX-License-Identifier: Apache-2.0
"""longwave bench: the figures that must be there, in a sane relation to each other; and wrong options."""
import subprocess

import pytest

from longwave_server import BINARY, make_tiny_model, strict_json

QUICK = ("--prefill", "7,64", "--depth", "0,100", "--decode", "5", "-r", "3", "-t", "1")


def bench(*options):
    return subprocess.run([BINARY, "bench", *options], capture_output=True, timeout=300, text=True)


def figures(*options):
    done = bench(*options, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no progress when stderr is no terminal"
    return strict_json(done.stdout)


def test_figures_of_a_model(tiny_path):
    found = figures("-m", str(tiny_path), *QUICK)
    assert found["threads"] == 1 and found["repetitions"] == 3 and found["device"].startswith("cpu-")
    assert found["read_ceiling"]["gb_per_second"] > 0 and found["read_ceiling"]["bytes"] >= 16 << 20
    assert [row["tokens"] for row in found["prefill"]] == [7, 64]
    assert [(row["depth"], row["tokens"]) for row in found["decode"]] == [(0, 5), (100, 5)]
    for row in found["prefill"] + found["decode"]:
        rate = row["tokens_per_second"]
        assert 0 < rate["min"] <= rate["median"] <= rate["max"]
    for row in found["decode"]:
        steps = row["step_ms"]
        assert steps["n"] == 3 * 5 and 0 < steps["p50"] <= steps["p99"] <= steps["max"]
        assert steps["p50"] <= 1000 / row["tokens_per_second"]["min"] * 5
    near, far = found["decode"]
    assert found["weight_bytes"] < near["bytes_per_token"] < far["bytes_per_token"]
    for row in (near, far):
        achieved = row["tokens_per_second"]["median"] * row["bytes_per_token"] / 1e9
        share = 100 * achieved / found["read_ceiling"]["gb_per_second"]
        assert row["floor_percent"] == pytest.approx(share, rel=0.01, abs=0.02)


def test_the_type_of_the_cache_counts(tiny_path):
    extra = []
    for kv_type in ("f16", "f32"):
        found = figures("-m", str(tiny_path), *QUICK, "--kv-type", kv_type)
        extra.append(found["decode"][1]["bytes_per_token"] - found["decode"][0]["bytes_per_token"])
    assert extra[1] == 2 * extra[0] > 0


def test_policies_decode_side_by_side(tiny_path):
    found = figures("-m", str(tiny_path), "--prefill", "none", "--depth", "300,350", "--decode", "3", "-r", "1", "--policies",
                    "dense,lserve-4k:sink=64:recent=64:budget=256")
    assert [(row["policy"].split(":")[0], row["depth"]) for row in found["decode"]] == \
        [("dense", 300), ("dense", 350), ("lserve-4k", 300), ("lserve-4k", 350)]
    assert ["floor_percent" in row for row in found["decode"]] == [True, True, False, False]


def test_heads_that_stream(tiny_path, tmp_path):
    roles = tmp_path / "roles.json"
    roles.write_text('{"sink": 64, "recent": 64, "recent_prefill": 128, "streaming": [{"layer": 0, "heads": [0]}]}')
    found = figures("-m", str(tiny_path), "--prefill", "200", "--depth", "300", "--decode", "3", "-r", "1", "--batch", "2",
                    "--roles", f"mine={roles},half=50%", "--policies", "dense,lserve-4k:budget=512,dense:roles=mine,dense:roles=half")
    # Prompts are timed once for all that read them alike.
    assert [row["policy"] for row in found["prefill"]] == ["dense", "dense:roles=mine", "dense:roles=half"]
    for rows in (found["decode"], found["batches"]):
        assert [row["policy"] for row in rows] == ["dense", "lserve-4k:budget=512", "dense:roles=mine", "dense:roles=half"]
    assert "lists" not in found, "they are compared with the CPU's, not on it"
    done = bench("-m", str(tiny_path), *QUICK, "--roles", f"mine={roles}", "--policies", "dense:roles=mine")
    assert done.returncode == 0 and done.stdout.count("dense:roles=mine") == 4


@pytest.mark.parametrize("roles, said", [("mine=/none", "/none"), ("mine", "NAME=PATH"), ("mine=101%", "101%")])
def test_wrong_roles(tiny_path, roles, said):
    done = bench("-m", str(tiny_path), *QUICK, "--roles", roles)
    assert done.returncode == 1 and said in done.stderr


def test_a_synthetic_model_goes_as_far_as_is_timed():
    found = figures("--synthetic", "smollm2-135m:q4_1", "--prefill", "none", "--depth", "9000", "--decode", "1", "-r", "1",
                    "--kv-type", "int8", "--policies", "lserve-4k")
    assert found["decode"][0]["depth"] == 9000  # trained for 8192, were it trained


@pytest.mark.parametrize("policies, said", [("sparse", "'sparse'"), ("dense,", "a policy is a name"), ("dense:roles=half", "roles"),
                                            ("lserve-4k:budget=5", "budget"), (",".join(["dense"] * 17), "more than 16")])
def test_wrong_policies(tiny_path, policies, said):
    done = bench("-m", str(tiny_path), *QUICK, "--policies", policies)
    assert done.returncode == 1 and said in done.stderr


def test_text_holds_the_same_rows(tiny_path):
    done = bench("-m", str(tiny_path), *QUICK)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert sum(line.startswith("prefill of ") for line in lines) == 2
    assert sum(line.startswith("decode of ") and line.endswith(" of the bytes-bound floor") for line in lines) == 2


def test_a_row_of_the_kernels_and_none(tiny_path):
    found = figures("-m", str(tiny_path), "--row", "cpu-scalar", "--prefill", "none", "--depth", "3", "--decode", "2")
    assert found["device"] == "cpu-scalar" and found["prefill"] == [] and len(found["decode"]) == 1


def test_a_synthetic_model():
    found = figures("--synthetic", "smollm2-135m:q4_1", "--ctx", "64", "--prefill", "5", "--depth", "3", "--decode", "2")
    assert found["model"] == "smollm2-135m:Q4_1"
    assert 134515008 * 5 / 8 < found["weight_bytes"] < 134515008 * 5.1 / 8
    assert found["prefill"][0]["tokens_per_second"]["median"] > 0 and found["decode"][0]["tokens_per_second"]["median"] > 0


def test_memory_is_asked_for_what_is_timed(tmp_path):
    """A whole context of this model, or images of all pages at once, would not fit."""
    path = make_tiny_model(tmp_path / "long.gguf", "context=1048576")
    quick = ("-m", str(path), "--kv-type", "int8", "-r", "1", "-t", "1")
    found = figures(*quick, "--prefill", "8000", "--depth", "none", "--host-memory", "2M")
    assert found["prefill"][0]["tokens"] == 8000
    found = figures(*quick, "--prefill", "none", "--depth", "8000", "--decode", "5", "--batch", "2", "--host-memory", "6M")
    assert found["decode"][0]["depth"] == found["batches"][0]["depth"] == 8000
    done = bench(*quick, "--ctx", "1000000", "--host-memory", "2M")
    assert done.returncode == 1 and "host_memory" in done.stderr


def test_sequences_together(tiny_path):
    found = figures("-m", str(tiny_path), "--prefill", "none", "--depth", "70", "--decode", "3", "--batch", "1,5", "-r", "2")
    assert [(row["sequences"], row["depth"], row["tokens"]) for row in found["batches"]] == [(1, 70, 3), (5, 70, 3)]
    for row in found["batches"]:
        assert 0 < row["tokens_per_second"]["median"] and 0 < row["ideal_tokens_per_second"]


def test_kernels():
    found = figures("--kernels", "-t", "1")
    names = [row["kernel"] for row in found["kernels"]]
    assert len(names) == len(set(names))
    assert all(any(name.startswith(what) for name in names) for what in ("matmul ", "attend ", "rmsnorm ", "glu "))
    for row in found["kernels"]:
        assert row["usec"] > 0 and row["gb_per_second"] > 0 and row["ceiling_percent"] > 0


@pytest.mark.parametrize("options, words, status", [
    ((), "--model", 2),
    (("-m", "{tiny}", "--kernels"), "--kernels", 2),
    (("-m", "{tiny}", "--synthetic", "smollm2-135m:q8_0"), "--synthetic", 2),
    (("--synthetic", "smollm2:q8_0"), "smollm2-135m", 2),
    (("--synthetic", "smollm2-135m:q4_k"), "576", 2),
    (("-m", "{tiny}", "--prefill", "0"), "--prefill", 2),
    (("-m", "{tiny}", "--prefill", "5,"), "--prefill", 2),
    (("-m", "{tiny}", "--prefill", "4294967808"), "--prefill", 2),
    (("-m", "{tiny}", "--depth", "x"), "--depth", 2),
    (("-m", "{tiny}", "--depth", "4096"), "4096", 1),
    (("-m", "{tiny}", "--prefill", "4097"), "4097", 1),
    (("-m", "{tiny}", "--row", "cpu-none"), "cpu-scalar", 2),
    (("-m", "{tiny}", "--decode", "0"), "--decode", 2),
    (("-m", "{tiny}", "--batch", "0"), "--batch", 2),
    (("-m", "/nonexistent.gguf"), "/nonexistent.gguf", 1),
])
def test_what_is_wrong_is_named(tiny_path, options, words, status):
    done = bench(*(option.format(tiny=tiny_path) for option in options))
    assert done.returncode == status and done.stdout == ""
    assert words in done.stderr
