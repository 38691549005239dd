# SPDX-License-Identifier: Apache-2.0
"""What is measured for docs/fidelity.md: jobs of `longwave eval` and `longwave calibrate`, the most important first.

A job is one process. Its file in the folder of results is eval's own --resume file, so that work that was broken off
goes on where it ended. `base`: another job whose dense answers it starts from. `needs`: jobs whose files it looks at.
"""

TASKS = {"smollm2": ["passkey:repeats=6:near=0", "multikey:repeats=8:near=0", "kv:repeats=8:near=0:needles=5"],
         "gemma": ["passkey:repeats=6:near=0", "multikey:repeats=8:near=0", "kv:repeats=8:near=0"]}
WORDS = "words:repeats=12:near=0:needles=5"  # its answer is told by the prompt's last row: it counts where questions are decoded
RANKED_BY = [*TASKS["smollm2"][:2], WORDS]   # what heads are ranked by
GEMMA_TRIES = ["passkey:repeats=6:near=0", "passkey:repeats=12:near=0:needles=10", "multikey:repeats=8:near=0",
               "kv:repeats=8:near=0", "kv:repeats=4:needles=5", "words:repeats=12:near=0:needles=5",
               "variables:hops=0:repeats=8", "words:repeats=24:near=0:needles=3"]
MODELS = {"smollm2": "smollm2.gguf", "gemma": "gemma.gguf"}
PER_HAYSTACK = 25
EXPLORED = range(4)       # haystacks of every cell: 100 questions of each task
CERTIFIED = range(4, 24)  # others, of the policies that may become a default: 500
LENGTH = 8192

# Policies that read prompts alike stand together: each line is a job a prompt.
GRID = {
    "pages": ["lserve-4k:budget=1024", "lserve-4k:budget=2048", "lserve-4k", "quest",
              "lserve-4k:budget=2048:unit=16:refresh=1", "lserve-4k:budget=2048:k_decode=4",
              "lserve-4k:budget=2048:missing=0.05"],
    "exact": ["oracle:budget=1024", "oracle:budget=2048", "random", "dense:k_decode=2"],
    "wave": ["dense:k=1", "dense:k=2", "dense:k=4", "dense:k=8"],
    "stream": ["dense:roles=n25", "dense:roles=n50", "lserve-4k:budget=2048:roles=n50",
               "lserve-4k:roles=n50:k_decode=4"],
    "hip": ["hip-3k", "hip-5k", "hip-3k:k=2"],
    "others": ["streaming-llm"],
    "slash": ["vertical-slash"],
}
# What a GPU has not: it measures the rest of Gemma's.
GEMMA_GRID = {"lists": ["quest", *GRID["exact"], "lserve-4k:budget=2048", "lserve-4k"],
              **{group: GRID[group] for group in ("hip", "wave", "others", "slash")}}
# What was tried for the default: at most a quarter of the bytes at 8K.
LIST = "unit=16:refresh=1"
CANDIDATES = {"a": ["dense:roles=n75:k_decode=4", "dense:roles=n80"],
              "b": [f"lserve-4k:roles=n60:{LIST}", f"lserve-4k:roles=n60:{LIST}:scan=center",
                    f"lserve-4k:roles=n60:{LIST}:k_decode=4"],
              "c": [f"lserve-4k:budget=5120:roles=n70:{LIST}", f"lserve-4k:budget=3072:roles=n50:{LIST}"],
              "d": [f"lserve-4k:budget=6144:roles=n70:{LIST}:k_decode=4", "dense:roles=n75:k_decode=2"]}
DEFAULT = CANDIDATES["d"][0]
# Share of the heads that stream, their sink and recent range; prompts are read densely up to 8K.
MADE_ROLES = {"calibrate-smollm2": {"n25": (0.25, 128, 256), "n50": (0.5, 128, 256), "n60": (0.6, 128, 256),
                                    "n70": (0.7, 128, 256), "n75": (0.75, 128, 256), "n80": (0.8, 128, 256)}}


# What a GPU has (docs/eval.md), and the roles that it ranks itself; n70 is the default's of the CPU.
GPU_MADE_ROLES = {"smollm2-gpu-calibrate": {"g25": (0.25, 128, 256), "g50": (0.5, 128, 256), "g60": (0.6, 128, 256),
                                            "g70": (0.7, 128, 256), "g75": (0.75, 128, 256), "g80": (0.8, 128, 256)},
                  "gemma-gpu-calibrate": {"e50": (0.5, 128, 256)}}
MADE_ROLES.update(GPU_MADE_ROLES)
GPU_LISTS = ["lserve-4k:budget=1024", "lserve-4k:budget=2048", "lserve-4k:budget=3072", "lserve-4k", "lserve-4k:budget=6144",
             "lserve-4k:budget=2048:refresh=1", "lserve-4k:refresh=1"]
GPU_WINDOWED = [f"lserve-4k:budget=6144:roles=n70:{more}k_decode=4" for more in ("", "refresh=1:")]
GPU_WAVE = [*GRID["wave"], "dense:k_decode=2"]
GPU_CERTIFIED = ["lserve-4k:budget=6144:roles=n70", "lserve-4k:budget=6144:roles=n70:refresh=1", "dense:roles=n70"]
GPU_GRID = {"lists": [*GPU_LISTS, *GPU_CERTIFIED],
            "roles": [*(f"dense:roles={name}" for name in GPU_MADE_ROLES["smollm2-gpu-calibrate"]), "lserve-4k:roles=g50",
                      "lserve-4k:budget=2048:roles=g50", "lserve-4k:budget=3072:roles=g50:refresh=1",
                      "lserve-4k:roles=g60:refresh=1", "lserve-4k:budget=5120:roles=g70:refresh=1",
                      "lserve-4k:budget=6144:roles=g70"]}
GPU_GEMMA = [*GPU_LISTS, "dense:roles=e50", "lserve-4k:budget=2048:roles=e50"]


class Job:
    def __init__(self, name, model, args, threads=1, base=None, needs=(), roles=(), command="eval", device="cpu"):
        self.name, self.model, self.args, self.threads, self.device = name, model, args, threads, device
        self.base, self.needs, self.roles, self.command = base, tuple(needs), tuple(roles), command


def roles_of(policies):
    return sorted({part[6:] for policy in policies for part in policy.split(":") if part.startswith("roles=")})


def ask(name, model, task, haystack, policies, rows="prefill", length=None, more=(), **rest):
    args = ["--lengths", str(length or LENGTH), "--positions", "0", "--questions", str(PER_HAYSTACK), "--per-haystack",
            str(PER_HAYSTACK), "--first-haystack", str(haystack), "--question-rows", rows, "--tasks", task,
            "--policies", ",".join(policies) or "dense", *more]
    return Job(name, model, args, roles=roles_of(policies), **rest)


def rows(name, model, policies, **rest):
    args = ["--lengths", str(LENGTH), "--questions", "0", "--positions", "6", "--rows", "64", "--text", "text.txt",
            "--policies", ",".join(policies)]
    return Job(name, model, args, roles=roles_of(policies), **rest)


def calibrate(name, model, tasks, threads, **rest):
    args = ["--length", str(LENGTH), "--prompts", "1", "--per-haystack", "25", "--seed", "1", "--tasks", ",".join(tasks),
            "--sparsity", "0.8", "--recent-prefill", "8192", "--lengths", "none", "--output", f"{name}.json"]
    return Job(name, model, args, threads=threads, command="calibrate", **rest)


def cells(model, tasks, haystacks, groups, mode, label="", more=(), needs=()):
    """The dense answers of a cell come first; all groups of it begin with them."""
    for haystack in haystacks:
        for t, task in enumerate(tasks):
            at = f"{model}-{label}{mode}-{t}-{haystack}"
            yield ask(f"{at}-dense", model, task, haystack, [], mode, more=more, needs=needs)
            for group, policies in groups.items():
                yield ask(f"{at}-{group}", model, task, haystack, policies, mode, more=more, base=f"{at}-dense",
                          needs=(*needs, f"{at}-dense"))


def beyond(length, t, haystack=0, threads=8):
    """SmolLM2 was trained for 8K: positions that it knows, moved or stretched, against its own."""
    task, at = TASKS["smollm2"][t], f"smollm2-beyond-{length}-{t}-{haystack}"
    base = f"{at}-plain"
    yield ask(base, "smollm2", task, haystack, ["streaming-llm"], length=length, threads=threads)
    yield ask(f"{at}-ntk", "smollm2", task, haystack, [], length=length, more=["--rope", f"ntk={length // 8192}"],
              threads=threads)
    for group in (["hip-3k"], ["self-extend"], ["hip-5k"]):
        yield ask(f"{at}-{group[0]}", "smollm2", task, haystack, group, length=length, base=base, needs=[base],
                  threads=threads)


def fixed():
    """All of it, in the order of what is missed most. Roles named n.. are made from a calibration among it."""
    smollm2, gemma = TASKS["smollm2"], TASKS["gemma"]
    yield from cells("smollm2", smollm2, CERTIFIED, {"default": [DEFAULT]}, "prefill")
    yield calibrate("calibrate-smollm2", "smollm2", RANKED_BY, 8)
    yield from beyond(16384, 0)
    yield from beyond(32768, 0)
    candidates = {f"candidates-{part}": policies for part, policies in CANDIDATES.items()}
    groups = {**GRID, **candidates}
    del groups["slash"]
    for haystack in EXPLORED:
        yield from cells("smollm2", smollm2, [haystack], groups, "prefill")
        yield from cells("gemma", gemma, [haystack], GEMMA_GRID, "prefill")
    yield rows("smollm2-rows-wave", "smollm2", GRID["wave"])
    yield rows("smollm2-rows-lists", "smollm2", ["lserve-4k:budget=2048", "lserve-4k", "hip-3k", "oracle:budget=2048"])
    yield rows("smollm2-rows-default", "smollm2", [DEFAULT])
    yield rows("gemma-rows-wave", "gemma", GRID["wave"])
    for t, task in enumerate(GEMMA_TRIES):
        yield ask(f"gemma-try-{t}", "gemma", task, 0, [])
    yield from beyond(16384, 1)
    decoded = {"lists": ["oracle:budget=2048", "lserve-4k:budget=2048", "lserve-4k:budget=2048:unit=16:refresh=1"],
               "streaming": ["dense:roles=n50"], "default": [DEFAULT]}
    yield from cells("smollm2", [*smollm2[:2], WORDS], EXPLORED, decoded, "decode")
    yield from cells("smollm2", smollm2, EXPLORED, {"slash": GRID["slash"]}, "prefill")


def gpu():
    """What a GPU can do, in few processes, since it reads a prompt in less time than one takes to start."""
    on = {"device": "cuda", "threads": 1}
    smollm2, gemma = TASKS["smollm2"], TASKS["gemma"]
    yield calibrate("smollm2-gpu-calibrate", "smollm2", RANKED_BY, threads=3, device="cuda")
    yield calibrate("gemma-gpu-calibrate", "gemma", gemma, **on)
    for mode, tasks in (("prefill", smollm2), ("decode", [*smollm2[:2], WORDS])):
        for haystack in EXPLORED:
            for part, policies in GPU_GRID.items():
                yield ask(f"smollm2-gpu-{mode}-{haystack}-{part}", "smollm2", ",".join(tasks), haystack, policies, mode, **on)
            yield ask(f"gemma-gpu-{mode}-{haystack}", "gemma", ",".join(gemma), haystack, GPU_GEMMA, mode, **on)
    for haystack in CERTIFIED:
        yield ask(f"smollm2-gpu-prefill-{haystack}", "smollm2", ",".join(smollm2), haystack, GPU_CERTIFIED, **on)
    for haystack in EXPLORED:
        yield ask(f"smollm2-gpu-prefill-{haystack}-wave", "smollm2", ",".join(smollm2), haystack, [*GPU_WAVE, *GPU_WINDOWED], **on)
        yield ask(f"gemma-gpu-prefill-{haystack}-wave", "gemma", ",".join(gemma), haystack, GPU_WAVE, **on)
    for haystack in CERTIFIED:
        yield ask(f"smollm2-gpu-prefill-{haystack}-wave", "smollm2", ",".join(smollm2), haystack, GPU_WINDOWED, **on)
    for model in ("smollm2", "gemma"):
        yield rows(f"{model}-gpu-rows-wave", model, GRID["wave"], **on)
    yield rows("smollm2-gpu-rows", "smollm2", ["lserve-4k:budget=2048", "lserve-4k", *GPU_CERTIFIED], **on)
    yield rows("gemma-gpu-rows", "gemma", ["lserve-4k:budget=2048", "lserve-4k", "dense:roles=e50"], **on)
    for factor in (2, 4):
        for t, task in enumerate(smollm2[:1]):
            yield ask(f"smollm2-gpu-beyond-{factor}-{t}", "smollm2", task, 0, ["lserve-4k"], length=factor * LENGTH,
                      more=["--rope", f"ntk={factor}"], **on)
