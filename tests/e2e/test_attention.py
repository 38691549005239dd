# SPDX-License-Identifier: Apache-2.0
"""How a request attends: presets and role files by name."""
import json

import longwave_server

CHAT = "/v1/chat/completions"
TURNS = [{"role": "user", "content": "Count the ships in the harbour, one after the other. " * 40}]
FIELDS = {"messages": TURNS, "max_tokens": 8, "temperature": 0, "logprobs": True}


def test_presets(smollm2):
    answer = smollm2.post(CHAT, {**FIELDS, "longwave": {"attention": "dense"}})[1]
    told = answer["longwave"]["attention"]
    assert told["preset"] == "dense" and told["roles"] is None
    assert told["tokens_attended"] == told["tokens_of_context"] > 400 and told["bytes_read"] == told["bytes_of_context"]
    for attention in ("imaginary", {"preset": "imaginary"}, {"roles": "none"}):
        status, error = smollm2.error(CHAT, {**FIELDS, "longwave": {"attention": attention}})
        assert status == 400 and error["param"] == "longwave.attention" and "'dense'" in error["message"]


def test_roles_are_chosen_by_name(tmp_path):
    path = tmp_path / "half.json"
    path.write_text(json.dumps({"sink": 64, "recent": 64, "recent_prefill": 64,
                                "streaming": [{"layer": layer, "heads": [0, 1, 2]} for layer in range(30)]}))
    server = longwave_server.Server(longwave_server.MODEL, "--roles", f"half={path}", "--ctx", "2048",
                                    "--session-dir", str(tmp_path))
    try:
        dense = server.post(CHAT, FIELDS)[1]
        half = {**FIELDS, "longwave": {"attention": {"preset": "dense", "roles": "half"}}}
        first = server.post(CHAT, half)[1]
        told = first["longwave"]["attention"]
        assert told["preset"] == "dense" and told["roles"] == "half" and told["tokens_attended"] == 128
        assert first["longwave"]["cache"]["matched"] == 0  # what the other policy cached is not for this one
        assert first["choices"] != dense["choices"]
        second = server.post(CHAT, half)[1]
        assert second["choices"] == first["choices"] and second["longwave"]["cache"]["matched"] > 200
        assert server.metric("longwave_kv_pages") > 0
        status, saved = server.post("/v1/sessions/s/save", {"messages": TURNS, "longwave": half["longwave"]})
        assert status == 200 and saved["tokens"] > 200
        status, error = server.error(CHAT, {**FIELDS, "longwave": {"attention": {"roles": "other"}}})
        assert status == 400 and "'dense' with roles 'half'" in error["message"]
    finally:
        assert server.stop() == 0


def test_policies_of_requests():
    """Each with its own budget, side by side; what they read and left out is told and counted."""
    wishes = [{"preset": "lserve-4k", "budget": budget, "refresh": [2]} for budget in (448, 480)]
    wishes += [{"preset": "oracle", "budget": 448}, {"preset": "random", "budget": 448}, "hip-3k", "auto",
               {"preset": "quest", "budget": 256, "wavelength": {"prefill": 4, "decode": 2}}]
    server = longwave_server.Server(longwave_server.MODEL, "--ctx", "2048", "--attention", "lserve-8k",
                                    "--baselines")
    try:
        told = [server.post(CHAT, {**FIELDS, "longwave": {"attention": wish}})[1]["longwave"]["attention"]
                for wish in wishes]
        assert [each["preset"] for each in told] == ["lserve-4k", "lserve-4k", "oracle", "random", "hip-3k", "lserve-8k",
                                                     "quest"]
        for each in (told[4], told[5]):  # too short for them: dense
            assert each["tokens_attended"] == each["tokens_of_context"] and "missing_mass" not in each
        for each, budget in zip(told[:4], (448, 480, 448, 448)):
            assert budget - 96 < each["tokens_attended"] <= budget < each["tokens_of_context"]
            assert 0 < each["missing_mass"] < 1 and each["bytes_read"] > 0
        assert told[2]["missing_mass"] < told[3]["missing_mass"]  # the best list leaves out less than a random one
        assert server.metric("longwave_attention_missing_mass_count") == 5
        assert 0 < server.metric("longwave_attention_keys_seen_total") < server.metric("longwave_attention_keys_total")
        status, error = server.error(CHAT, {**FIELDS, "longwave": {"attention": {"preset": "lserve-4k", "budget": 1}}})
        assert status == 400 and error["param"] == "longwave.attention.budget"
    finally:
        assert server.stop() == 0


def test_audits():
    """Rows that are computed dense too tell what selecting changed, and change nothing."""
    wishes = [{"preset": "oracle", "budget": 448}, {"preset": "random", "budget": 448}, "dense"]
    answers = []
    for options in (["--audit", "2"], []):
        server = longwave_server.Server(longwave_server.MODEL, "--ctx", "2048", "--baselines", *options)
        try:
            answers.append([server.post(CHAT, {**FIELDS, "max_tokens": 24, "longwave": {"attention": wish}})[1]
                            for wish in wishes])
            n_audited = server.metric("longwave_attention_audited_kl_nats_count")
            assert n_audited == (2 if options else 0)
        finally:
            assert server.stop() == 0
    assert [each["choices"] for each in answers[0]] == [each["choices"] for each in answers[1]]
    oracle, random, dense = (each["longwave"]["attention"] for each in answers[0])
    assert 0 <= oracle["audited_kl"] < random["audited_kl"] < 10
    assert 0 < oracle["audited_missing_mass"] < random["audited_missing_mass"] < 1
    assert "audited_kl" not in dense and "audited_kl" not in answers[1][0]["longwave"]["attention"]


def test_selection_over_keys_of_32_bits(tmp_path):
    """Their lists are those of the same keys in 16 bits but for near ties, and each sector that is read weighs twice as much."""
    model = longwave_server.make_tiny_model(tmp_path / "tiny.gguf", "context=4096", "head_dim=64", "layers=5")
    fields = {"prompt": [3 + 7 * i * i % 240 for i in range(900)], "max_tokens": 12, "temperature": 0, "logprobs": 1,
              "ignore_eos": True}
    wishes = ["dense", {"preset": "lserve-4k", "budget": 512, "refresh": [1]}, {"preset": "quest", "budget": 256},
              {"preset": "oracle", "budget": 256}, {"preset": "streaming-llm", "budget": 256},
              {"preset": "vertical-slash", "budget": 512}, {"preset": "lserve-4k", "budget": 448, "positions": "packed"},
              {"preset": "lserve-4k", "budget": 512, "wavelength": {"prefill": 4, "decode": 2}}]
    told = {}
    for kv_type in ("f32", "f16"):
        server = longwave_server.Server(model, "--kv-type", kv_type, "--baselines")
        try:
            told[kv_type] = [server.post("/v1/completions", {**fields, "longwave": {"attention": wish}})[1] for wish in wishes]
            assert server.metric("vllm:corrupted_requests_total") == 0
        finally:
            assert server.stop() == 0
    dense = told["f32"][0]["choices"][0]["logprobs"]["token_logprobs"]
    for wish, wide, narrow in zip(wishes, told["f32"], told["f16"]):
        of_wide, of_narrow = wide["longwave"]["attention"], narrow["longwave"]["attention"]
        assert of_wide["tokens_attended"] == of_narrow["tokens_attended"]
        assert of_wide["bytes_of_context"] == 2 * of_narrow["bytes_of_context"]
        pairs = list(zip(*(each["choices"][0]["logprobs"]["token_logprobs"] for each in (wide, narrow))))
        assert abs(pairs[0][0] - pairs[0][1]) < 0.01, (wish, pairs)
        if wish != "dense":
            assert of_wide["tokens_attended"] < of_wide["tokens_of_context"] and [first for first, _ in pairs] != dense
