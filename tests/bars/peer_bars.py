# SPDX-License-Identifier: Apache-2.0
"""The comparisons of texts with llama.cpp, for a model with a chat template or one that continues text. Both print and exit
as bars do."""
import itertools
import pathlib
import statistics
import sys
import tempfile

from bar_server import server
from peer_prompts import N_TOKENS, QUESTIONS, first_turn, given_text, need_peer, prompt_ids, run_peer

BAR_MEAN, BAR_EXACT = 0.02, 1e-4


def distance(a, b):
    return statistics.fmean(abs(x - y) for x, y in zip(a, b, strict=True))


def average(runs):
    return [statistics.fmean(values) for values in zip(*runs)]


def ids_of(reference):
    return [token["id"] for token in reference]


def logprobs_of(references):
    return [token["logprob"] for reference in references for token in reference]


def measure(model, prompts, texts, *options):
    """For each text (log-probabilities, the best token's), and all log-probabilities in one list."""
    with server("--ctx", "512", *options, model=model) as (_, port, _):
        pairs = [given_text(port, prompt, ids) for prompt, ids in zip(prompts, texts)]
    return pairs, [logprob for taken, _ in pairs for logprob in taken]


def count_equal(references, pairs):
    equal = 0
    for question, reference, pair in zip(QUESTIONS, references, pairs, strict=True):
        turn, tie = first_turn(reference, *pair)
        equal += turn is None
        print(f"{question}: {'equal' if turn is None else f'turns at token {turn}, margin %.3f' % reference[turn]['margin']}"
              f" (first tie at {tie} of {len(reference)})")
    return equal


def greedy(model, chat):
    """Greedy text, and the log-probabilities of its tokens, against llama.cpp as it is."""
    need_peer()
    prompts = prompt_ids(model, chat)
    references = run_peer("peer_greedy.py", model, N_TOKENS, given=prompts)
    pairs, ours = measure(model, prompts, map(ids_of, references), "--kv-type", "f16")
    equal, mean = count_equal(references, pairs), distance(ours, logprobs_of(references))
    print(f"{equal} of {len(QUESTIONS)} equal up to a tie, bar {len(QUESTIONS)}; mean difference {mean:.4f} over "
          f"{len(ours)} tokens, bar {BAR_MEAN}")
    sys.exit(0 if equal == len(QUESTIONS) and mean <= BAR_MEAN else 1)


def print_runs(name, runs, exact):
    half = len(runs) // 2
    print(f"{name}: two runs {statistics.fmean(distance(a, b) for a, b in itertools.combinations(runs, 2)):.4f} apart, one "
          f"{statistics.fmean(distance(run, exact) for run in runs):.4f} from fp32, the mean of {len(runs)} "
          f"{distance(average(runs), exact):.4f}; means of {half} {distance(average(runs[:half]), average(runs[half:])):.4f} apart")


def noise(model, chat, n_copies):
    """fp32 weights against llama.cpp's; then runs of either over copies of the file whose roundings fall another way."""
    need_peer()
    prompts, ours, theirs = prompt_ids(model, chat), [], []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "copy.gguf"
        run_peer("peer_copy.py", model, path, "fp32")
        references = run_peer("peer_greedy.py", path, N_TOKENS, "f32", given=prompts)
        texts, exact = [ids_of(reference) for reference in references], logprobs_of(references)
        pairs, ours_exact = measure(path, prompts, texts, "--kv-type", "f32")
        for seed in range(n_copies):
            run_peer("peer_copy.py", model, path, seed)
            ours.append(measure(path, prompts, texts, "--kv-type", "f16")[1])
            theirs.append(run_peer("peer_given.py", path, given=[prompts, texts]))
    equal, error, apart = count_equal(references, pairs), distance(ours_exact, exact), distance(average(ours), average(theirs))
    half = n_copies // 2
    print_runs("longwave", ours, exact)
    print_runs("llama.cpp", theirs, exact)
    print(f"one run of each: {statistics.fmean(distance(a, b) for a in ours for b in theirs):.4f} apart; means of {half} "
          f"{distance(average(ours[:half]), average(theirs[half:])):.4f}")
    print(f"fp32 weights: {equal} of {len(QUESTIONS)} equal up to a tie, bar {len(QUESTIONS)}; mean difference {error:.1e} over "
          f"{len(exact)} tokens, bar {BAR_EXACT}; the file's weights, means of {n_copies} runs: {apart:.4f}, bar {BAR_MEAN}")
    sys.exit(0 if equal == len(QUESTIONS) and error <= BAR_EXACT and apart <= BAR_MEAN else 1)
