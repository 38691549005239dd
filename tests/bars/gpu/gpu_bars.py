# SPDX-License-Identifier: Apache-2.0
"""What the bars on a GPU share: figures of `longwave bench` on synthetic weights of Llama-3.1-8B's shape, servers of such a model,
and the last line. Exit status: 0 held, 1 missed, 77 where there is no GPU to measure on.

LONGWAVE_BINARY names the program (build-gpu/server/longwave); other programs of the build are looked for in the folders beside it.
LONGWAVE_BAR_DEVICE=cpu and a small LONGWAVE_BAR_SHAPE are for trying a bar out.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("LONGWAVE_BINARY", "build-gpu/server/longwave")

BINARY = os.environ["LONGWAVE_BINARY"]
BUILD = pathlib.Path(BINARY).parent.parent
DEVICE = os.environ.get("LONGWAVE_BAR_DEVICE", "cuda")
SHAPE = "llama-3.1-8b"
NOT_HERE = 77


class Bar(NamedTuple):
    """measured None: it could not be measured, which counts as missed."""
    what: str
    measured: Optional[float]
    limit: float
    unit: str = "tokens/s"
    is_most: bool = False  # the limit is the largest that holds, not the least

    def holds(self):
        return self.measured is not None and (self.measured <= self.limit if self.is_most else self.measured >= self.limit)

    def __str__(self):
        measured = "not measured" if self.measured is None else f"{digits(self.measured)} {self.unit}"
        return f"{self.what} {measured} (bar {self.limit:g})"


def digits(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.3f}"


def finish(results):
    """results: Bars, or their first members; the last line has all of them."""
    bars = [bar if isinstance(bar, Bar) else Bar(*bar) for bar in results]
    held = all(bar.holds() for bar in bars)
    print("; ".join(map(str, bars)), "- held" if held else "- missed")
    sys.exit(not held)


def need_gpu():
    """Ends the program where no device can be used."""
    if DEVICE == "cpu":
        return
    try:
        status = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        status = None
    if status != 0:
        print("no GPU that CUDA can use: not measured")
        sys.exit(NOT_HERE)


def program(*names):
    """A program of the build, or one that lies beside longwave."""
    for place in [BUILD.joinpath(*names), pathlib.Path(BINARY).parent / names[-1], BUILD / names[-1]]:
        if place.exists():
            return str(place)
    raise SystemExit(f"{'/'.join(names)} is not in {BUILD}: build it")


def bench(*options):
    command = [BINARY, "bench", "--json", "--device", DEVICE, *map(str, options)]
    return json.loads(subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout)


def figures(weights, *options, prefill="none"):
    need_gpu()
    return bench("--synthetic", f"{SHAPE}:{weights}", "--prefill", prefill, *options)


def median(row):
    return row["tokens_per_second"]["median"]


def json_lines(command):
    return [json.loads(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()]


@contextlib.contextmanager
def synthetic_model(what=os.environ.get("LONGWAVE_BAR_SHAPE", f"{SHAPE}:q8_0")):
    """
    The path of a file of random weights, in memory if there is room: what is timed then is the link and the packing. LONGWAVE_BAR_MODEL
    names one that make_synthetic has written before, for several bars.
    """
    if os.environ.get("LONGWAVE_BAR_MODEL"):
        yield os.environ["LONGWAVE_BAR_MODEL"]
        return
    shm = "/dev/shm"
    room = os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize if os.path.isdir(shm) else 0
    maker = os.environ.get("LONGWAVE_MAKE_SYNTHETIC") or program("tests", "by_hand", "make_synthetic")
    with tempfile.TemporaryDirectory(dir=shm if room > 12 << 30 else None) as folder:
        path = f"{folder}/model.gguf"
        subprocess.run([maker, what, path], check=True)
        yield path


def tiny_model(path, *settings):
    subprocess.run([program("tests", "support", "make_tiny_model"), path, *settings], check=True)
    return path
