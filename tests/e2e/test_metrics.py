# SPDX-License-Identifier: Apache-2.0
"""The metrics page: names that others look for, values that add up, and what Prometheus' own check says of it."""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

import pytest

import longwave_server

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "deploy"))
import dashboard  # noqa: E402

RULES = TESTS.parent / "deploy" / "prometheus"
COMPLETIONS = "/v1/completions"
EXPECTED = """
gauge vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:cache_config_info
gauge vllm:lora_requests_info longwave_kv_pages longwave_kv_bytes longwave_engine_idle_seconds longwave_prefix_cache_pages
counter vllm:num_preemptions_total vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:prompt_tokens_total
counter vllm:generation_tokens_total vllm:request_success_total vllm:corrupted_requests_total longwave_step_seconds_total
counter longwave_prefix_cache_evicted_pages_total longwave_attention_queries_total longwave_attention_selections_total
gauge longwave_memory_bytes longwave_memory_size_bytes longwave_build_info process_resident_memory_bytes process_open_fds
gauge process_max_fds process_start_time_seconds longwave_heap_bytes
counter process_cpu_seconds_total longwave_generation_requests_total longwave_requests_aborted_total longwave_requests_rejected_total longwave_http_responses_total
counter longwave_attention_stage_refreshes_total
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
    samples = [line for line in page.splitlines() if not line.startswith(("#", "process_"))]
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
    rules = (RULES / "longwave_rules.yml").read_text(encoding="utf-8")
    asked = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:vllm:|longwave_)\w+", rules)}
    assert len(asked) >= 8 and asked <= names, asked - names
    labels = {(label, value) for label, found in re.findall(r'(reason|outcome)=~?"([^"]+)"', rules) for value in found.split("|")}
    assert len(labels) >= 3 and all(f'{label}="{value}"}}' in page for label, value in labels), labels


def test_a_client_s_mistake_is_no_failure_and_health_checks_are_no_requests(smollm2):
    def outcomes():
        page = smollm2.request("GET", "/metrics")[2].decode()
        return {word: int(n) for word, n in re.findall(r'longwave_generation_requests_total\{.*outcome="(\w+)"\} (\d+)', page)}

    before = outcomes()
    for fields, status in (({"max_tokens": 2}, 200), ({"max_tokens": 2, "stream": True}, 200), ({"grammar": "root ::= a"}, 400),
                           ({"grammar": "root ::= a", "stream": True}, 400), ({"max_tokens": -1}, 400), ({"timeout_s": 0.001, "max_tokens": 500, "ignore_eos": True}, 504)):
        assert smollm2.request("POST", COMPLETIONS, {"prompt": "A", **fields})[0] == status
    assert smollm2.status("/readyz") == 200 and smollm2.status("/v1/models") == 200
    wanted = {**before, "done": before["done"] + 2, "bad_request": before["bad_request"] + 3, "timeout": before["timeout"] + 1}
    smollm2.wait_metric("longwave_generation_requests_total", lambda n: n == sum(wanted.values()))
    assert outcomes() == wanted and set(wanted) == {"done", "bad_request", "refused", "timeout", "cancelled", "failure"}


def test_the_process_tells_of_itself(smollm2):
    began, now = smollm2.metric("process_start_time_seconds"), time.time()
    assert now - 3600 < began <= now
    cpu = smollm2.metric("process_cpu_seconds_total")
    smollm2.post(COMPLETIONS, {"prompt": "A", "max_tokens": 20, "ignore_eos": True})
    assert smollm2.metric("process_cpu_seconds_total") > cpu
    size = longwave_server.MODEL.stat().st_size
    page = smollm2.request("GET", "/metrics")[2].decode()
    assert f'use="weights",place="host"}} {size}\n' in page
    machine = smollm2.metric("longwave_memory_size_bytes")
    assert 1 << 20 < smollm2.metric("process_resident_memory_bytes") < machine
    fds = smollm2.metric("process_open_fds")
    connections = [socket.create_connection(("127.0.0.1", smollm2.port)) for _ in range(20)]
    smollm2.wait_metric("process_open_fds", lambda n: n == fds + len(connections))
    for connection in connections:
        connection.close()
    assert fds < smollm2.metric("process_max_fds")


# ---- the dashboard ----

@pytest.fixture(scope="module")
def used_page(tiny_path, tmp_path_factory):
    """The metrics of a server with keys that has answered, refused and failed."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice:ka\nprometheus:km scope=monitor\n", encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--api-key-file", str(keys))
    try:
        asked = server.request("POST", COMPLETIONS, {"prompt": "the", "max_tokens": 4}, {"Authorization": "Bearer ka"})
        assert asked[0] == 200
        yield server.request("GET", "/metrics", headers={"Authorization": "Bearer km"})[2].decode()
    finally:
        assert server.stop() == 0


def test_dashboard_asks_for_what_there_is(used_page):
    board = dashboard.load()
    assert len(list(dashboard.expressions(board))) > 60 and dashboard.offences(board, used_page) == []


@pytest.mark.parametrize("old, new", [
    ("vllm:num_requests_running", "vllm:num_requests_runing"), ("by (outcome)", "by (outcomes)"), ("outcome=~", "why=~"),
    ("{{pool}}", "{{kind}}"), ("histogram_quantile(", "quantile_of_histogram("), ("increase(", "increment(")])
def test_dashboard_check_finds_mistakes(used_page, old, new):
    text = json.dumps(dashboard.load())
    assert old in text and dashboard.offences(json.loads(text.replace(old, new)), used_page) != []


def test_dashboard_is_what_its_script_makes_and_no_panels_overlap():
    made = subprocess.run([sys.executable, dashboard.FOLDER / "make_dashboard.py"], capture_output=True, text=True, check=True).stdout
    assert json.loads(made) == dashboard.load() and made == (dashboard.FOLDER / "longwave.json").read_text(encoding="utf-8")
    cells = []
    for panel in dashboard.load()["panels"]:
        place = panel["gridPos"]
        cells += [(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23
    ids = [panel["id"] for panel in dashboard.load()["panels"]]
    assert len(set(ids)) == len(ids)


def test_dashboard_page_and_alert_rules_mean_the_same():
    rules = (RULES / "longwave_rules.yml").read_text(encoding="utf-8")
    for title, pattern in (("First token, p95", r"time_to_first_token_seconds_bucket.*> (\S+)"), ("Errors of its own", r"done\|failure.*> (\S+)")):
        panel = next(panel for panel in dashboard.load()["panels"] if panel["title"] == title)
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"] == float(re.search(pattern, rules)[1])
    # One counter has it for all three: each request once, streamed or not.
    asked = re.search(r"LongwaveErrors.*?expr: >-\n(.*?) > 0.01\n", rules, re.S)[1]
    shown = panel["targets"][0]["expr"].replace('job="$job", instance=~"$instance", ', "").replace("sum(", "sum without (outcome) (")
    assert shown.split() == asked.split() and "longwave_generation_requests_total" in asked
    page = (TESTS.parent / "server" / "page" / "panel.js").read_text(encoding="utf-8")
    assert re.search(r'"Errors of the server", /\^longwave_generation_requests_total\\\{outcome="failure"\\\}/', page)
    assert "requests_aborted_total" not in page and "requests_rejected_total" not in page


if shutil.which("promtool"):  # tests/bars/metrics installs it

    def test_promtool_takes_every_expression_of_the_dashboard(tmp_path):
        rules = [{"record": f"panel:{i}", "expr": dashboard.fill_in(expression)} for i, (_, expression) in enumerate(dashboard.expressions(dashboard.load()))]
        path = tmp_path / "rules.yml"
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")  # JSON is YAML
        done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stderr

    def test_promtool_s_tests_of_the_alert_rules():
        done = subprocess.run(["promtool", "test", "rules", "longwave_rules_test.yml"], cwd=RULES, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_promtool_finds_only_the_colons(smollm2):
        page = smollm2.request("GET", "/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
        complaints = done.stderr.decode().splitlines() + done.stdout.decode().splitlines()
        assert complaints and all(re.fullmatch(r"vllm:\w+ metric names should not contain ':'", line) for line in complaints)
