# SPDX-License-Identifier: Apache-2.0
"""longwave calibrate: a file of roles that eval takes, work that goes on after a kill, gates, wrong options."""
import json
import re
import subprocess
import time

from longwave_server import BINARY, strict_json

QUICK = ("--length", "1024", "--tasks", "passkey:repeats=1,words:needles=2", "--per-haystack", "4", "--sink", "64",
         "--recent", "64", "--recent-prefill", "128", "--policies", "dense:roles=found", "--lengths", "1024", "-t", "1")


def calibrate(*options):
    return subprocess.run([BINARY, "calibrate", *options], capture_output=True, timeout=300, text=True)


def test_the_file_is_one_of_roles(tiny_path, tmp_path):
    path = tmp_path / "roles.json"
    done = calibrate("-m", str(tiny_path), "-o", str(path), *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no progress when stderr is no terminal"
    found = strict_json(done.stdout)
    assert found == json.loads(path.read_text())
    losses = [head["loss"] for head in found["ranking"]]
    assert losses == sorted(losses)
    streaming = {(entry["layer"], head) for entry in found["streaming"] for head in entry["heads"]}
    first = {(head["layer"], head["head"]) for head in found["ranking"][:len(streaming)]}
    assert streaming == first and len(streaming) == len(losses) // 2
    assert [cell["policy"] for cell in found["crossover"]["cells"]] == ["dense:roles=found"]
    used = subprocess.run([BINARY, "eval", "-m", str(tiny_path), "--roles", f"mine={path}", "--policies",
                           "dense:roles=mine", "--lengths", "1024", "--tasks", "words", "--questions", "2",
                           "--per-haystack", "2", "--positions", "0", "-t", "1", "--json"],
                          capture_output=True, timeout=300, text=True)
    assert used.returncode == 0, used.stderr
    text = calibrate("-m", str(tiny_path), "-o", str(path), *QUICK)
    assert text.returncode == 0 and f"{len(streaming)} of {len(losses)} KV heads stream" in text.stdout


def test_it_goes_on_after_a_kill(tiny_path, tmp_path):
    path, whole = tmp_path / "roles.json", tmp_path / "whole.json"
    options = ("-m", str(tiny_path), *QUICK[:-6], "-t", "1")
    process = subprocess.Popen([BINARY, "calibrate", "-o", str(path), *options])
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if path.exists() and re.search(r'"losses":\t\[[-0-9]', path.read_text()):
            break
    process.kill()
    process.wait()
    assert path.exists()
    for one in (path, whole):
        done = calibrate("-o", str(one), *options)
        assert done.returncode == 0, done.stderr
    assert path.read_text() == whole.read_text()


def test_gates_and_what_is_wrong_with_them(tiny_path, tmp_path):
    gates, path = tmp_path / "gates.tsv", tmp_path / "roles.json"
    gates.write_text("0.5\t0.25\n1\t0\n")
    done = calibrate("-m", str(tiny_path), "-o", str(path), "--gates", str(gates), *QUICK[:-6], "--json")
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout)["streaming"] == [{"layer": 0, "heads": [1]}, {"layer": 1, "heads": [1]}]
    gates.write_text("0.5\t0.25\n1\tzero\n")
    done = calibrate("-m", str(tiny_path), "-o", str(tmp_path / "other.json"), "--gates", str(gates), *QUICK)
    assert done.returncode == 2 and f"{gates}: line 2, column 3" in done.stderr, done.stderr


def test_wrong_options(tiny_path, tmp_path):
    for options in ((), ("-m", str(tiny_path)), ("-o", "x"), ("-m", str(tiny_path), "-o", "x", "--sparsity", "2")):
        assert calibrate(*options).returncode == 2, options
    done = calibrate("-m", str(tiny_path), "-o", str(tmp_path / "x"), "--sink", "32")
    assert done.returncode == 2 and "'sink' is 32 tokens; it has to be a multiple of 64" in done.stderr, done.stderr
    assert "--sparsity" in calibrate("--help").stdout
