# SPDX-License-Identifier: Apache-2.0
"""The metrics page: names that others look for, values that add up, and what Prometheus' own check says of it."""
import pathlib
import re
import shutil
import subprocess

COMPLETIONS = "/v1/completions"
EXPECTED = """
gauge vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:cache_config_info
gauge vllm:lora_requests_info longwave_kv_pages longwave_kv_bytes longwave_engine_idle_seconds longwave_prefix_cache_pages
counter vllm:num_preemptions_total vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:prompt_tokens_total
counter vllm:generation_tokens_total vllm:request_success_total vllm:corrupted_requests_total longwave_step_seconds_total
counter longwave_prefix_cache_evicted_pages_total longwave_attention_queries_total longwave_attention_selections_total
counter longwave_requests_aborted_total longwave_requests_rejected_total longwave_http_responses_total
histogram vllm:time_to_first_token_seconds vllm:inter_token_latency_seconds vllm:e2e_request_latency_seconds
histogram vllm:request_queue_time_seconds vllm:request_prefill_time_seconds vllm:request_decode_time_seconds
histogram vllm:request_prompt_tokens vllm:request_generation_tokens
"""


def test_names_and_types(smollm2):
    page = smollm2.request("GET", "/metrics")[2].decode()
    for line in EXPECTED.split("\n"):
        kind, *names = line.split() or [""]
        for name in names:
            assert f"# TYPE {name} {kind}\n" in page and f"# HELP {name} " in page, name
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z:_0-9]+\{model_name="smollm2",engine="0"[^}]*\} [0-9.e+-]+', line) for line in samples)
    blocks = re.search(r'vllm:cache_config_info\{.*block_size="(\d+)",num_gpu_blocks="(\d+)"', page)
    assert int(blocks[1]) * int(blocks[2]) >= 8192


def test_values_add_up(smollm2):
    names = ("vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count",
             "vllm:request_success_total", "vllm:prefix_cache_queries_total", "vllm:request_generation_tokens_sum")
    before = {name: smollm2.metric(name) for name in names}
    fields = {"prompt": "Count to ten", "max_tokens": 12, "ignore_eos": True}
    usage = smollm2.post(COMPLETIONS, fields)[1]["usage"]
    smollm2.wait_metric(names[0], lambda value: value == before[names[0]] + 12)
    grown = {name: smollm2.metric(name) - before[name] for name in names}
    assert list(grown.values()) == [12, 1, 11, 1, usage["prompt_tokens"], 12]
    hits = smollm2.metric("vllm:prefix_cache_hits_total")
    usage = smollm2.post(COMPLETIONS, fields)[1]["usage"]
    smollm2.wait_metric("vllm:prefix_cache_hits_total",
                        lambda value: value == hits + usage["prompt_tokens_details"]["cached_tokens"])


def test_alert_rules_ask_for_what_there_is(smollm2):
    page = smollm2.request("GET", "/metrics")[2].decode()
    names = set(re.findall(r"^# TYPE (\S+) ", page, re.M))
    rules = (pathlib.Path(__file__).parents[2] / "deploy" / "prometheus" / "longwave_rules.yml").read_text(encoding="utf-8")
    asked = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:vllm:|longwave_)\w+", rules)}
    assert len(asked) >= 8 and asked <= names, asked - names


if shutil.which("promtool"):  # tests/bars/metrics installs it

    def test_promtool_finds_only_the_colons(smollm2):
        page = smollm2.request("GET", "/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
        complaints = done.stderr.decode().splitlines() + done.stdout.decode().splitlines()
        assert complaints and all(re.fullmatch(r"vllm:\w+ metric names should not contain ':'", line) for line in complaints)
