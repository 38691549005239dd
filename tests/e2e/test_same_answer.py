# SPDX-License-Identifier: Apache-2.0
"""What is reused gives the answer that would be computed: greedy text and log-probabilities, to the last digit printed,
against a server that caches nothing and is asked one thing at a time."""
import concurrent.futures
import contextlib
import json
import random

import pytest

import longwave_server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
KV_TYPES = ["f32", "f16", "bf16", "f8", "int8", "int4"]
PAGE_TOKENS, CONTEXT, LEAST_MEMORY = 64, 1024, "1M"
random.seed(3)
LONG = [random.randrange(3, 250) for _ in range(700)]
OTHER = [random.randrange(3, 250) for _ in range(150)]
# One after the other: a hit of all, within a page, at the edge of a page, of a part that another one has continued.
PROMPTS = [LONG, LONG, LONG[:500] + OTHER, LONG[:5 * PAGE_TOKENS], LONG[:5 * PAGE_TOKENS + 1], LONG + OTHER, LONG[:40], LONG,
           LONG[:500] + OTHER + LONG[:90]]


class Kind:
    """What an answer depends on: a model, the type of its cache, how it attends: roles of heads, or a policy of its own."""

    def __init__(self, model, kv_type="f16", roles=None, folder=None):
        self.model, self.options, self.attention = model, ["--kv-type", kv_type, "--ctx", str(CONTEXT)], {}
        self.is_own = bool(roles) and "preset" in roles
        if self.is_own:
            self.attention = {"longwave": {"attention": roles}}
            self.options.append("--baselines")
        elif roles:
            path = folder / "roles.json"
            path.write_text(json.dumps(roles))
            self.options += ["--roles", f"r={path}"]
            self.attention = {"longwave": {"attention": {"preset": "dense", "roles": "r"}}}

    @contextlib.contextmanager
    def server(self, *options):
        server = longwave_server.Server(self.model, *self.options, *options)
        try:
            yield server
        finally:
            assert server.stop() == 0

    def complete(self, server, prompt, max_tokens=8, **more):
        """The choices, their numbers as printed; and how much of the prompt was cached."""
        fields = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 5, "ignore_eos": True}
        return choices_of(server, COMPLETIONS, {**fields, **self.attention, **more})

    def talk(self, server, n_turns=4):
        """A conversation: what was decoded is the beginning of the next prompt."""
        messages, answers = [], []
        for turn in range(n_turns):
            messages.append({"role": "user", "content": f"{turn} the weather with the world, " * 8})
            fields = {"messages": messages, "max_tokens": 70, "temperature": 0, "logprobs": True, "top_logprobs": 3}
            answers.append(choices_of(server, CHAT, {**fields, **self.attention}))
            messages.append({"role": "assistant", "content": answers[-1][0][0]["message"]["content"]})
        return answers


def choices_of(server, path, fields):
    status, _, answer = server.request("POST", path, fields)
    assert status == 200, answer
    answer = json.loads(answer, parse_float=str)
    return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def same(got, wanted):
    assert [choices for choices, _ in got] == [choices for choices, _ in wanted]
    return sum(cached for _, cached in got)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "llama.gguf", "context=4096")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Few of its tokens fit the least memory even with small elements."""
    return longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "wide.gguf", "context=4096", "layers=3",
                                           "kv_heads=4")


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory):
    """Five of its six layers see 96 tokens: not a multiple of a page."""
    return longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "gemma3.gguf", "arch=gemma3", "context=4096",
                                           "layers=6", "window=96")


SAME_REACH = {"sink": 64, "recent": 128, "recent_prefill": 128, "streaming": [{"layer": 0, "heads": [0]}, {"layer": 1, "heads": [0, 1]}]}
ALL_STREAM = {"sink": 64, "recent": 64, "recent_prefill": 64, "streaming": [{"layer": 0, "heads": [0, 1]}, {"layer": 1, "heads": [0, 1]}]}
OTHER_REACH = {**SAME_REACH, "recent_prefill": 256}  # decoded tokens differ from those of a prompt
# Decoded rows that select; blocks of prompts that do too; keys cut by distance.
PAGES = {"preset": "lserve-4k", "budget": 512}
BLOCKS = {"preset": "vertical-slash", "budget": 512, "wavelength": {"prefill": 4, "decode": 4}}
RANGES = {"preset": "streaming-llm", "budget": 256}
KINDS = [*(("wide" if "int" in kv_type else "llama", kv_type, None) for kv_type in KV_TYPES), ("gemma3", "f16", None), ("gemma3", "int8", None),
         ("gemma3", "full=int4,window=bf16", None), ("llama", "f16", SAME_REACH), ("wide", "int8", SAME_REACH),
         ("llama", "f16", ALL_STREAM), ("llama", "f16", OTHER_REACH), ("wide", "int4", OTHER_REACH), ("llama", "f16", PAGES),
         ("llama", "f32", PAGES), ("wide", "int8", PAGES), ("llama", "bf16", BLOCKS), ("wide", "int4", BLOCKS), ("gemma3", "f8", RANGES)]
NAMES = [f"{model}-{kv_type}" + {id(SAME_REACH): "-streaming", id(ALL_STREAM): "-all_stream", id(OTHER_REACH): "-reaches",
                                 id(PAGES): "-pages", id(BLOCKS): "-blocks", id(RANGES): "-ranges"}.get(id(roles), "")
         for model, kv_type, roles in KINDS]


@pytest.fixture(scope="module", params=KINDS, ids=NAMES)
def cold(request, llama, wide, gemma3, tmp_path_factory):
    """A kind and its answers without any reuse."""
    model, kv_type, roles = request.param
    kind = Kind({"llama": llama, "wide": wide, "gemma3": gemma3}[model], kv_type, roles, tmp_path_factory.mktemp("roles"))
    with kind.server("--cache", "off") as server:
        kind.prompts = [kind.complete(server, prompt) for prompt in PROMPTS]
        kind.turns = kind.talk(server)
        kind.grown = [kind.complete(server, OTHER[10 * i:10 * i + 40], 300) for i in range(10)]
        kind.long = [kind.complete(server, prompt, 40) for prompt in many_prompts()]
        everything = kind.prompts + kind.turns + kind.grown + kind.long
        assert same(everything, everything) == 0
    kind.decodes_as_prefilled = roles is not OTHER_REACH and not kind.is_own
    return kind


def many_prompts():
    """Two families, so that some share much."""
    return [LONG[:300 + 20 * i] + OTHER[i:] if i % 2 else OTHER[i:] + LONG[:20 * i] for i in range(12)]


@pytest.mark.parametrize("cache", ["on", "exact"])
def test_a_hit_equals_a_cold_run(cold, cache):
    with cold.server("--cache", cache) as server:
        n_cached = same([cold.complete(server, prompt) for prompt in PROMPTS], cold.prompts)
        assert n_cached > 2500
        if cache == "exact" or cold.decodes_as_prefilled:
            assert same(cold.talk(server), cold.turns) > 300


@pytest.mark.parametrize("cache", ["on", "exact"])
def test_under_eviction(cold, cache):
    """Memory for a few contexts at most: little stays, and what does is right. Every salt has pages of its own."""
    with cold.server("--host-memory", LEAST_MEMORY, "--cache", cache) as server:
        order = random.sample([(i, salt) for i in range(12) for salt in "abc"], 36)
        order = [ask for at, ask in enumerate(order) for _ in range(1 + (at % 3 == 0))]  # some at once again
        got = [cold.complete(server, many_prompts()[i], 40, cache_salt=salt) for i, salt in order]
        assert same(got, [cold.long[i] for i, _ in order]) > 0
        server.wait_metric("longwave_prefix_cache_evicted_pages_total", lambda value: value > 0)
        if cache == "exact" or cold.decodes_as_prefilled:
            same(cold.talk(server), cold.turns)
        server.wait_idle()


def test_after_preemption(cold):
    """Short prompts, long answers; every salt has pages of its own."""
    with cold.server("--host-memory", LEAST_MEMORY, "--cache", "exact") as server:
        def ask(i):
            return cold.complete(server, OTHER[10 * (i % 10):10 * (i % 10) + 40], 300, cache_salt=str(i))
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            got = list(pool.map(ask, range(40)))
        same(got, cold.grown * 4)
        server.wait_idle()
        assert server.metric("vllm:num_preemptions_total") > 0


def test_after_a_restore(cold, tmp_path):
    options = ("--session-dir", str(tmp_path), "--cache", "exact")
    with cold.server(*options) as server:
        cold.complete(server, LONG[:10 * PAGE_TOKENS])
        assert server.post("/v1/sessions/long/save", {"prompt": LONG, **cold.attention})[0] == 200
    with cold.server(*options) as server:
        if cold.is_own:  # a policy that the server did not begin with is asked for again
            assert server.post("/v1/sessions/long/restore", {})[0] == 400
        status, restored = server.post("/v1/sessions/long/restore", cold.attention)
        assert status == 200 and restored["tokens"] == 10 * PAGE_TOKENS
        assert same([cold.complete(server, prompt) for prompt in PROMPTS], cold.prompts) > 2000


def test_the_real_model(tmp_path):
    prompts = [list(range(1000, 1000 + n)) + list(range(400, 440)) for n in (300, 300, 200, 300)]
    for kv_type in ("f16", "int8"):
        kind = Kind(longwave_server.MODEL, kv_type)
        with kind.server("--cache", "off") as server:
            wanted = [kind.complete(server, prompt) for prompt in prompts]
        with kind.server() as server:
            assert same([kind.complete(server, prompt) for prompt in prompts], wanted) > 600
