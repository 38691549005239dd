#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what docs/fidelity.md reports, as many processes at once as there are cores, in so many seconds.

usage: run.py --binary longwave --models DIR --roles DIR --text FILE --state DIR --seconds N [--cores N] [--only NAME,...] [--gpu]

What was measured stands in --state (one file a job, eval's --resume files) and is not measured again.
"""
import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs


def answers_of(path):
    try:
        return json.loads(path.read_text()).get("answers", [])
    except (OSError, ValueError):
        return []


class Runner:
    def __init__(self, options):
        self.options, self.state = options, Path(options.state)
        self.end = time.monotonic() + options.seconds
        self.running, self.waiting, self.done, self.failed = [], [], set(), []
        self.state.mkdir(parents=True, exist_ok=True)
        self.made = self.state / "roles"
        self.made.mkdir(exist_ok=True)
        self.done = {path.stem for path in self.state.glob("*.done")}

    def file(self, name):
        return self.state / f"{name}.json"

    def roles_path(self, name):
        made = self.made / f"{name}.json"
        return made if made.exists() else Path(self.options.roles) / f"{name}.json"

    def seed(self, job):
        """The dense answers of a cell are measured once."""
        if not job.base or self.file(job.name).exists():
            return
        try:
            whole = json.loads(self.file(job.base).read_text())
        except (OSError, ValueError):
            return
        whole["answers"] = [answer for answer in whole["answers"] if answer["policy"] == "dense"]
        self.file(job.name).write_text(json.dumps(whole))

    def start(self, job):
        options = self.options
        self.seed(job)
        model = str(Path(options.models) / jobs.MODELS[job.model])
        args = [str(Path(options.text).resolve()) if arg == "text.txt" else arg for arg in job.args]
        memory = ["--host-memory", "6G"] if job.device == "cpu" else ["--gpu-memory", options.gpu_memory, "--kv-type", "f16"]
        command = [options.binary, job.command, "-m", model, "--threads", str(job.threads), "--device", job.device, *memory]
        if job.command == "eval":
            command += ["--resume", str(self.file(job.name))]
        else:
            args[args.index("--output") + 1] = str(self.file(job.name))
        if job.roles:
            command += ["--roles", ",".join(f"{name}={self.roles_path(name)}" for name in job.roles)]
        log = open(self.state / f"{job.name}.log", "w")
        process = subprocess.Popen(command + args, stdout=log, stderr=subprocess.STDOUT)
        self.running.append((process, job, log, time.monotonic()))

    def reap(self):
        for entry in list(self.running):
            process, job, log, begin = entry
            status = process.poll()
            if status is None:
                continue
            self.running.remove(entry)
            log.close()
            if status == 0:
                self.done.add(job.name)
                (self.state / f"{job.name}.done").write_text(f"{time.monotonic() - begin:.1f} s\n")
            else:
                self.failed.append(job.name)
                text = (self.state / f"{job.name}.log").read_text(errors="replace").strip().splitlines()
                print(f"{job.name}: status {status}: {text[-1] if text else ''}", flush=True)

    def may_start(self, job):
        return all(need in self.done for need in job.needs) and all(self.roles_path(r).exists() for r in job.roles)

    def fill(self):
        free = self.options.cores - sum(job.threads for _, job, _, _ in self.running)
        for job in list(self.waiting):
            job.threads = min(job.threads, self.options.cores)
            if job.name in self.done:
                self.waiting.remove(job)
            elif self.may_start(job):
                if job.threads > free:
                    return
                self.waiting.remove(job)
                self.start(job)
                free -= job.threads

    # ---- what depends on results ----

    def make_roles(self, made, calibration):
        ranking = json.loads(self.file(calibration).read_text())["ranking"]
        for name, (share, sink, recent) in made.items():
            layers = {}
            for head in ranking[: math.ceil(share * (len(ranking) - 1))]:
                layers.setdefault(head["layer"], []).append(head["head"])
            roles = {"sink": sink, "recent": recent, "recent_prefill": 8192,
                     "streaming": [{"layer": n, "heads": sorted(layers[n])} for n in sorted(layers)]}
            (self.made / f"{name}.json").write_text(json.dumps(roles, indent=1) + "\n")

    def summarise(self, model, label, haystacks):
        """By policy: mean and worst change over the tasks in points, share of the bytes."""
        by = {}
        for path in self.state.glob(f"{model}-{label}*.json"):
            if not re.match(rf"{model}-{label}\d+-\d+-", path.stem):
                continue
            for a in answers_of(path):
                if a["haystack"] in haystacks and a["length"] == jobs.LENGTH:
                    by.setdefault(a["policy"].split("#")[0], {}).setdefault(a["task"], {})[a["haystack"]] = a
        dense, found = by.get("dense", {}), []
        for policy, tasks in by.items():
            changes, read, whole = [], 0, 0
            for task, answers in tasks.items():
                pairs = [(a["right"], dense[task][h]["right"]) for h, a in answers.items() if h in dense.get(task, {})]
                n = sum(len(own) for own, _ in pairs)
                if n:
                    changes.append(100 * sum(own.count("1") - of.count("1") for own, of in pairs) / n)
                read += sum(a["kv_bytes"] + a["select_bytes"] for a in answers.values())
                whole += sum(a["dense_bytes"] for a in answers.values())
            if changes and whole:
                found.append((sum(changes) / len(changes), min(changes), read / whole, len(changes), policy))
        return sorted(found, reverse=True)

    def follow(self):
        """Roles are made as soon as their ranking is there."""
        for calibration, made in jobs.MADE_ROLES.items():
            if calibration in self.done and not all((self.made / f"{name}.json").exists() for name in made):
                self.make_roles(made, calibration)

    def stop(self):
        for process, *_ in self.running:
            process.terminate()
        for process, *_ in self.running:
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self):
        only = self.options.only.split(",")
        all_jobs = jobs.gpu() if self.options.gpu else jobs.fixed()
        self.waiting = [job for job in all_jobs if any(part in job.name for part in only)]
        while time.monotonic() < self.end:
            self.reap()
            self.follow()
            self.fill()
            if not self.running:
                break
            time.sleep(0.1)
        left = len(self.waiting) + len(self.running)
        self.stop()
        print(f"{len(self.done)} jobs done, {len(self.failed)} failed, {left} left", flush=True)
        for mean, worst, share, n, policy in self.summarise("smollm2", "prefill-", set(range(100))):
            print(f"{mean:+6.2f} {worst:+6.2f} {100 * share:6.1f} % of {n} tasks  {policy}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("binary", "models", "roles", "text", "state"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="jobs whose names hold this, or one of these with commas between")
    parser.add_argument("--gpu", action="store_true", help="what a GPU can do, on the first one")
    parser.add_argument("--gpu-memory", default="12G", help="of each process")
    parser.add_argument("--length", type=int, default=jobs.LENGTH, help="of prompts, to try it out")
    options = parser.parse_args()
    jobs.LENGTH = options.length
    runner = Runner(options)
    signal.signal(signal.SIGTERM, lambda *_: setattr(runner, "end", 0))
    runner.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
