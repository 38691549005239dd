#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: make_dashboard.py > longwave.json. The dashboard for Grafana 10 and later, from the tables below."""
import json

WHO = 'job="$job", instance=~"$instance"'
WIDTH = 24  # of Grafana's grid


def rate(name, labels=""):
    return f"rate({name}{{{WHO}{', ' + labels if labels else ''}}}[$__rate_interval])"


def gauge(name, labels=""):
    return f"{name}{{{WHO}{', ' + labels if labels else ''}}}"


def quantile(q, name, by=""):
    return f"histogram_quantile({q}, sum by ({by + ', ' if by else ''}le) ({rate(name + '_bucket')}))"


def quantiles(name, *several):
    return [(f"p{round(q * 100)}", quantile(q, name)) for q in several]


def ratio(above, below):
    return f"sum({rate(above)}) / sum({rate(below)})"


# The alert LongwaveErrors asks the same.
FAILED = (f"""sum(increase(longwave_generation_requests_total{{{WHO}, outcome="failure"}}[30m]))"""
          f""" / sum(increase(longwave_generation_requests_total{{{WHO}, outcome=~"done|failure"}}[30m]))""")
# (title, kind, unit, width, what it tells, [(legend, expression), ...])
ROWS = [
    ("Service level", [
        ("Up", "stat", "none", 3, "Servers that answer Prometheus.", [("", f"sum(up{{{WHO}}})")]),
        ("First token, p95", "stat", "s", 5, "From arrival to the first token; an alert fires above 30 s.",
         [("", quantile(0.95, "vllm:time_to_first_token_seconds"))]),
        ("Between tokens, p95", "stat", "s", 4, "Pauses that a reader sees; max_stall_ms bounds what prefill adds to them.",
         [("", quantile(0.95, "vllm:inter_token_latency_seconds"))]),
        ("Whole answer, p95", "stat", "s", 4, "From arrival to the last token.", [("", quantile(0.95, "vllm:e2e_request_latency_seconds"))]),
        ("Errors of its own", "stat", "percentunit", 4,
         "Of the requests of the last half hour, streamed or not, those that failed by its fault; an alert fires above 1 %.", [("", FAILED)]),
        ("Requests", "stat", "reqps", 4, "Finished choices.", [("", f"sum({rate('vllm:request_success_total')})")]),
        ("First token", "timeseries", "s", 8, "If it grows: queue time is load, prefill time is prompts or a cache that misses.",
         quantiles("vllm:time_to_first_token_seconds", 0.5, 0.95, 0.99)),
        ("Between tokens", "timeseries", "s", 8, "If it grows with the batch: lower max_batch; with prompts: lower max_stall_ms.",
         quantiles("vllm:inter_token_latency_seconds", 0.5, 0.95, 0.99)),
        ("Whole answer", "timeseries", "s", 8, "Mostly the length of the answers.", quantiles("vllm:e2e_request_latency_seconds", 0.5, 0.95, 0.99)),
    ]),
    ("Throughput and queue", [
        ("Tokens written", "timeseries", "cps", 8, "By server.", [("{{instance}}", f"sum by (instance) ({rate('vllm:generation_tokens_total')})")]),
        ("Prompt tokens", "timeseries", "cps", 8, "Those found in the prefix cache cost nothing.",
         [("read or found", f"sum({rate('vllm:prompt_tokens_total')})"), ("found in the cache", f"sum({rate('vllm:prefix_cache_hits_total')})")]),
        ("Sequences", "timeseries", "none", 8, "More than a few that wait, for long: another box.",
         [("running", f"sum({gauge('vllm:num_requests_running')})"), ("waiting", f"sum({gauge('vllm:num_requests_waiting')})"),
          ("open requests", f"sum({gauge('longwave_generations_open')})")]),
        ("Where the time to the first token goes, p95", "timeseries", "s", 8, "Waiting for the engine, and reading the prompt.",
         [("queue", quantile(0.95, "vllm:request_queue_time_seconds")), ("prefill", quantile(0.95, "vllm:request_prefill_time_seconds")),
          ("decode", quantile(0.95, "vllm:request_decode_time_seconds"))]),
        ("Lengths", "timeseries", "none", 8, "Tokens of prompts and answers.",
         [(f"{what} p{round(q * 100)}", quantile(q, name)) for what, name in
          (("prompt", "vllm:request_prompt_tokens"), ("answer", "vllm:request_generation_tokens")) for q in (0.5, 0.95)]),
        ("How requests end", "timeseries", "reqps", 8,
         "failure: the server's own. bad_request: what clients did wrong. refused: load. cancelled: they left; client_gone among them lost patience.",
         [("{{outcome}}", f"sum by (outcome) ({rate('longwave_generation_requests_total')})"),
          ("cut by max_tokens", "sum(" + rate("vllm:request_success_total", 'finished_reason="length"') + ")"),
          ("{{reason}}", "sum by (reason) (" + rate("longwave_requests_aborted_total", 'reason=~"client_gone|shutdown"') + ")")]),
    ]),
    ("Keys and values", [
        ("KV memory in use", "timeseries", "percentunit", 8, "Without what only the prefix cache holds; near 100 % sequences give way.",
         [("{{instance}}", gauge("vllm:kv_cache_usage_perc"))]),
        ("Prefix cache, tokens found", "timeseries", "percentunit", 8, "longwave.cache in an answer tells where its prompt left what was cached.",
         [("found", ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"))]),
        ("Preemptions", "timeseries", "cps", 8, "Sequences that gave up their pages; an alert fires above one a minute.",
         [("{{instance}}", f"sum by (instance) ({rate('vllm:num_preemptions_total')})")]),
        ("Pages", "timeseries", "none", 8, "By pool and place; streaming heads hold few.",
         [("{{pool}}, {{place}}", f"sum by (pool, place) ({gauge('longwave_kv_pages')})"),
          ("of the prefix cache", f"sum({gauge('longwave_prefix_cache_pages')})")]),
        ("Tokens that fit", "timeseries", "none", 8, "What the memory could hold in all, and what is taken.",
         [("limit", f"sum({gauge('longwave_kv_tokens_limit')})"), ("taken", f"sum({gauge('longwave_kv_tokens')})")]),
        ("Evicted and swapped", "timeseries", "none", 8, "Pages a second that the cache gave up; bytes a second that preemption moved.",
         [("evicted pages", f"sum({rate('longwave_prefix_cache_evicted_pages_total')})"),
          ("bytes out", f"sum({rate('longwave_swap_out_bytes_total')})"), ("bytes in", f"sum({rate('longwave_swap_in_bytes_total')})")]),
    ]),
    ("Attention", [
        ("Keys attended", "timeseries", "percentunit", 6, "Of those that decoded rows could have seen; 100 % is dense.",
         [("attended", ratio("longwave_attention_keys_seen_total", "longwave_attention_keys_total"))]),
        ("Bytes read", "timeseries", "percentunit", 6, "Of what dense attention would have read, key bounds included.",
         [("read", ratio("longwave_attention_read_bytes_total", "longwave_attention_context_bytes_total"))]),
        ("Missing mass", "timeseries", "percentunit", 6, "Share of attention that answers left out: estimated, and as --audit found it.",
         [("estimated p50", quantile(0.5, "longwave_attention_missing_mass")), ("estimated p95", quantile(0.95, "longwave_attention_missing_mass")),
          ("audited p95", quantile(0.95, "longwave_attention_audited_missing_mass"))]),
        ("Divergence, audited", "timeseries", "none", 6, "Nats between an answer's tokens and those of dense attention, with --audit.",
         [("p50", quantile(0.5, "longwave_attention_audited_kl_nats")), ("p95", quantile(0.95, "longwave_attention_audited_kl_nats"))]),
        ("Tokens seen by a query", "timeseries", "none", 12, "Mean of decoded rows, and what there was to see.",
         [("seen", ratio("longwave_attention_keys_seen_total", "longwave_attention_queries_total")),
          ("context", ratio("longwave_attention_keys_total", "longwave_attention_queries_total"))]),
        ("Selections", "timeseries", "none", 12, "Lists made anew for each query; fewer is faster, refresh says how often.",
         [("by query", ratio("longwave_attention_selections_total", "longwave_attention_queries_total"))]),
    ]),
    ("Engine", [
        ("At work", "timeseries", "percentunit", 8, "Share of the time, by phase; the rest is idle.",
         [("{{instance}} {{phase}}", f"sum by (instance, phase) ({rate('longwave_step_seconds_total')})")]),
        ("Rows of a step", "timeseries", "none", 8, "Prompt tokens of a pass, and answers that are written at once.",
         [("{{phase}}", f"sum by (phase) ({rate('longwave_step_rows_total')}) / sum by (phase) ({rate('longwave_steps_total')})")]),
        ("Time of a step", "timeseries", "s", 8, "Mean.",
         [("{{phase}}", f"sum by (phase) ({rate('longwave_step_seconds_total')}) / sum by (phase) ({rate('longwave_steps_total')})")]),
    ]),
    ("Memory and process", [
        ("Memory that computes", "timeseries", "bytes", 8, "Of the GPU, or of the host without one: weights, buffers, keys and values.",
         [("{{instance}} {{use}}, {{place}}", gauge("longwave_memory_bytes")), ("{{instance}} there is", gauge("longwave_memory_size_bytes"))]),
        ("Resident memory", "timeseries", "bytes", 4, "Of the process; a mapped model file counts.", [("{{instance}}", gauge("process_resident_memory_bytes"))]),
        ("Processor", "timeseries", "none", 4, "Cores in use.", [("{{instance}}", rate("process_cpu_seconds_total"))]),
        ("Descriptors", "timeseries", "percentunit", 4, "Of those allowed; each connection is one.",
         [("{{instance}}", f"{gauge('process_open_fds')} / {gauge('process_max_fds')}")]),
        ("Since the last step", "timeseries", "s", 4, "With open requests it should stay below a second.", [("{{instance}}", gauge("longwave_engine_idle_seconds"))]),
        ("Servers", "table", "s", 24, "Version, what computes, since when.",
         [("", f"max by (instance, model_name, version, device) ({gauge('longwave_build_info')}) * on (instance) group_left () "
               f"max by (instance) (time() - {gauge('process_start_time_seconds')})")]),
    ]),
    ("Errors", [
        ("Answers by status", "timeseries", "reqps", 8, "429 is refused for load or a key's limit, 499 aborted, 503 loading or draining, 504 out of time.",
         [("{{code}}", f"sum by (code) ({rate('longwave_http_responses_total')})")]),
        ("Error codes", "timeseries", "reqps", 8, "As clients get them; docs/api.md explains each.",
         [("{{reason}}", f"sum by (reason) ({rate('longwave_requests_rejected_total')}) > 0")]),
        ("What should never move", "timeseries", "none", 8, "In the last hour: non-finite logits, failed requests, lost lines of the log.",
         [(name, f"sum(increase({metric}{{{WHO}}}[1h]))") for name, metric in
          (("non-finite logits", "vllm:corrupted_requests_total"), ("failed in the engine", "longwave_requests_failed_total"),
           ("log lines lost", "longwave_log_lines_lost_total"))]),
    ]),
    ("Keys", [
        ("Requests by key", "timeseries", "reqps", 8, "Prometheus needs a key with scope=monitor to see these.",
         [("{{key}}", f"sum by (key) ({rate('longwave_key_requests_total')})")]),
        ("Over their limit", "timeseries", "reqps", 8, "429 rate_limit_exceeded.", [("{{key}}", f"sum by (key) ({rate('longwave_key_limited_total')})")]),
        ("Tokens by key", "timeseries", "cps", 8, "Prompts, cached or not, and answers.",
         [("{{key}} prompt", f"sum by (key) ({rate('longwave_key_prompt_tokens_total')})"),
          ("{{key}} answer", f"sum by (key) ({rate('longwave_key_generation_tokens_total')})")]),
    ]),
]
HEIGHTS = {"stat": 4, "timeseries": 8, "table": 6}
SOURCE = {"type": "prometheus", "uid": "$datasource"}
# Above the threshold the number is red: the same that the alert rules have.
THRESHOLDS = {"First token, p95": 30, "Errors of its own": 0.01}


def options_of(kind):
    if kind == "stat":
        return {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if kind == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}


def target(i, kind, legend, expression):
    made = {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto", "editorMode": "code"}
    return {**made, "instant": True, "format": "table"} if kind == "table" else {**made, "range": True}


def panel(number, x, y, row):
    title, kind, unit, width, description, targets = row
    steps = [{"color": "green" if title in THRESHOLDS else "text", "value": None}]
    if title in THRESHOLDS:
        steps.append({"color": "red", "value": THRESHOLDS[title]})
    defaults = {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if unit == "percentunit":
        defaults["min"] = 0
    if kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False}
    made = {"id": number, "type": kind, "title": title, "description": description, "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHTS[kind]}, "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": options_of(kind), "targets": [target(i, kind, *each) for i, each in enumerate(targets)]}
    if kind == "table":
        names = {"Value": "running for"}
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}]
    return made


def panels():
    """Each row of the dashboard, and its panels from left to right."""
    made, y = [], 0
    for title, rows in ROWS:
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}, "panels": []})
        x, y = 0, y + 1
        for row in rows:
            if x + row[3] > WIDTH:
                x, y = 0, y + height
            height = HEIGHTS[row[1]]
            made.append(panel(len(made) + 1, x, y, row))
            x += row[3]
        y += height
    return made


def variable(name, label, query, several):
    made = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "definition": query,
            "refresh": 2, "sort": 1, "multi": several, "includeAll": several}
    return {**made, "allValue": ".*", "current": {"text": "All", "value": "$__all"}} if several else made


DASHBOARD = {
    "uid": "longwave", "title": "longwave", "tags": ["longwave"], "schemaVersion": 38, "version": 1, "editable": True, "graphTooltip": 1,
    "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
    "templating": {"list": [
        {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus", "refresh": 1},
        variable("job", "Job", "label_values(longwave_engine_steps_total, job)", False),
        variable("instance", "Server", 'label_values(longwave_engine_steps_total{job="$job"}, instance)', True)]},
    "annotations": {"list": [{
        "name": "Starts", "enable": True, "iconColor": "blue", "datasource": SOURCE, "titleFormat": "{{instance}} started",
        "expr": f"changes({gauge('process_start_time_seconds')}[$__rate_interval]) > 0"}]},
    "panels": panels(),
}
print(json.dumps(DASHBOARD, indent=1))
