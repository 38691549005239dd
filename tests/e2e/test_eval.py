# SPDX-License-Identifier: Apache-2.0
"""longwave eval: the report as text, JSON and a page; work that goes on where it ended; arrays of a trace; wrong options."""
import ast
import html.parser
import json
import struct
import subprocess
import time

import pytest

from longwave_server import BINARY, strict_json

QUICK = ("--lengths", "2048", "--tasks", "passkey:repeats=1,words:needles=2", "--questions", "6", "--per-haystack", "3",
         "--positions", "2", "--rows", "8", "-t", "1")
POLICIES = ("--policies", "dense:k=2,lserve-4k:budget=512")


def evaluate(*options):
    return subprocess.run([BINARY, "eval", *options], capture_output=True, timeout=300, text=True)


def report(*options):
    done = evaluate(*options, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no progress when stderr is no terminal"
    return strict_json(done.stdout)


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (n,) = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10:10 + n].decode())
    kind = {"<u4": "I", "<f4": "f"}[header["descr"]]
    values = struct.unpack(f"<{(len(data) - 10 - n) // 4}{kind}", data[10 + n:])
    return header["shape"], values


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def test_what_is_reported(tiny_path, tmp_path):
    page = tmp_path / "page.html"
    found = report("-m", str(tiny_path), *QUICK, *POLICIES, "--html", str(page), "--trace", str(tmp_path))
    assert {row["policy"] for row in found["tasks"]} == {"dense", "dense:k=2", "lserve-4k:budget=512"}
    for row in found["tasks"]:
        assert row["questions"] == 6 == sum(row["questions_by_depth"])
        assert row["right"] == sum(row["right_by_depth"])
        low, high = row["share_95"]
        assert low <= row["share"] <= high
        assert (row["kv_share"] < 0.6) == row["policy"].startswith("lserve")
    kinds = {(row["policy"], row["kind"]) for row in found["rows"]}
    assert kinds == {("dense:k=2", "decode"), ("dense:k=2", "prefill"), ("lserve-4k:budget=512", "decode")}
    assert all(0 < row["recall"] <= 1 for row in found["recall"])
    parsed = Page()
    parsed.feed(page.read_text())
    assert {"svg", "rect", "polyline", "table"} <= set(parsed.tags)
    assert "script" not in parsed.tags and parsed.links == []

    (n, columns), plans = read_npy(next(tmp_path.glob("*-plans.npy")))
    assert columns == 8 and n > 0
    name = next(tmp_path.glob("*-plans.npy")).name
    (n_masses, four), masses = read_npy(tmp_path / name.replace("plans", "masses"))
    assert (n_masses, four) == (n, 4) and all(0 <= x <= 1.0001 for x in masses)
    (n_lists,), lists = read_npy(tmp_path / name.replace("plans", "lists"))
    last = plans[-8:]
    assert last[6] + last[5] == n_lists
    listed = lists[last[6]:]
    assert list(listed) == sorted(set(listed)) and listed[-1] * 16 < last[0]


@pytest.mark.parametrize("device, said", [("cuda", "CUDA"), ("cuda:x", "auto, cpu, cuda or cuda:N"), ("abacus", "abacus")])
@pytest.mark.parametrize("command", ["eval", "calibrate"])
def test_a_device_that_is_not_there(tiny_path, tmp_path, command, device, said):
    output = ("-o", str(tmp_path / "roles.json")) if command == "calibrate" else ()
    done = subprocess.run([BINARY, command, "-m", str(tiny_path), "--device", device, *output], capture_output=True, timeout=60,
                          text=True)
    assert done.returncode == 1 and said in done.stderr and done.stdout == ""
    assert not (tmp_path / "roles.json").exists()


def test_work_goes_on(tiny_path, tmp_path):
    kept = tmp_path / "kept.json"
    first = report("-m", str(tiny_path), *QUICK, "--resume", str(kept))
    before = kept.read_text()
    assert report("-m", str(tiny_path), *QUICK, "--resume", str(kept)) == first
    assert kept.read_text() == before
    both = report("-m", str(tiny_path), *QUICK, *POLICIES, "--resume", str(kept))
    assert [row for row in both["tasks"] if row["policy"] == "dense"] == first["tasks"]
    other = evaluate("-m", str(tiny_path), *QUICK, "--resume", str(kept), "--seed", "9")
    assert other.returncode == 2 and "seed" in other.stderr
    kept.write_text(json.dumps({"longwave_eval": 1}))
    broken = evaluate("-m", str(tiny_path), *QUICK, "--resume", str(kept))
    assert broken.returncode == 2 and str(kept) in broken.stderr


def test_text_names_every_policy(tiny_path):
    done = evaluate("-m", str(tiny_path), *QUICK, *POLICIES)
    assert done.returncode == 0, done.stderr
    for name in ("dense:k=2", "lserve-4k:budget=512"):
        assert done.stdout.count(name) >= 4


def test_nothing_that_fails_is_certified(tiny_path):
    done = evaluate("-m", str(tiny_path), *QUICK, *POLICIES, "--certify")
    assert done.returncode == 1 and "no policy can be certified" in done.stderr
    assert not tiny_path.with_name(tiny_path.name + ".certificate.json").exists()


def test_beyond_the_trained_context(tiny_path):
    """Policies that move keys go there, and dense as it is beside them; other positions have other names."""
    far = ("--lengths", "6000", "--tasks", "passkey:repeats=1", "--questions", "2", "--per-haystack", "2", "--positions",
           "1", "--rows", "4", "-t", "1", "-m", str(tiny_path))
    found = report(*far, "--policies", "streaming-llm:budget=1024")
    share = {row["policy"]: row["kv_share"] for row in found["tasks"]}
    assert share["dense"] == 1 and share["streaming-llm:budget=1024"] < 0.3
    assert all(row["kl"] > 0 for row in found["rows"])
    refused = evaluate(*far, "--policies", "lserve-4k")
    assert refused.returncode == 1 and "trained" in refused.stderr
    stretched = report(*far, "--policies", "lserve-4k", "--rope", "ntk=2")
    assert {row["policy"] for row in stretched["tasks"]} == {"dense@ntk=2", "lserve-4k@ntk=2"}


@pytest.mark.parametrize("options, part", [
    (("--policies", "fast"), "fast"),
    (("--policies", "lserve-4k:budget=10"), "budget"),
    (("--tasks", "needle"), "needle"),
    (("--tasks", "kv:digits=99"), "digits"),
    (("--lengths", "100"), "lengths"),
    (("--lengths", "8192"), "8192"),
    (("--question-rows", "both"), "question-rows"),
    (("--questions", "-1"), "questions"),
])
def test_wrong_options(tiny_path, options, part):
    done = evaluate("-m", str(tiny_path), *options)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert part in done.stderr


def test_what_cannot_be_written_is_known_at_the_beginning(tiny_path, tmp_path):
    """Before the model is loaded, and without a device or a pipe being replaced by a file."""
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "not" / "there")
    for option, path in (("--html", nowhere), ("--html", "/dev/null"), ("--resume", nowhere), ("--trace", nowhere),
                         ("--trace", str(tmp_path / "file"))):
        done = evaluate("-m", str(tiny_path), *QUICK, option, path)
        assert done.returncode == 1 and option in done.stderr and path in done.stderr, done.stderr
    done = evaluate("-m", str(tmp_path / "not" / "model.gguf"), *QUICK, "--certify")
    assert done.returncode == 1 and "--certify" in done.stderr
    for text, why in (("", "no JSON"), ("{}", "longwave calibrate"), ('{"longwave_calibration": 1}', "model"),
                      ('{"longwave_calibration": 1, "model": "00", "streaming": [], "recent": 64}', "model")):
        (tmp_path / "file").write_text(text)
        done = evaluate("-m", str(tiny_path), *QUICK, "--certify", "--calibration", str(tmp_path / "file"))
        assert done.returncode == 2 and str(tmp_path / "file") in done.stderr and why in done.stderr, done.stderr


def test_one_process_at_a_time_has_the_results(tiny_path, tmp_path):
    kept = tmp_path / "kept.json"
    options = ("-m", str(tiny_path), "--resume", str(kept), "--lengths", "2048", "-t", "1")
    first = subprocess.Popen([BINARY, "eval", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not tmp_path.joinpath("kept.json.lock").exists() and time.monotonic() < end:
            time.sleep(0.01)
        second = evaluate(*options)
        assert second.returncode == 2 and "another process" in second.stderr and str(kept) in second.stderr
    finally:
        first.kill()
        first.wait()
    done = evaluate(*options, "--tasks", "words", "--questions", "1", "--per-haystack", "25", "--positions", "0")
    assert done.returncode == 0, done.stderr
    assert not tmp_path.joinpath("kept.json.lock").exists()
