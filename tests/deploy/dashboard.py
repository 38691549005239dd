# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard as tests read it: its expressions, what they ask for, and what a metrics page has."""
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "grafana"
PROMETHEUS_LABELS = {"job", "instance"}  # of the scrape, not of the page
FUNCTIONS = {"sum", "max", "min", "by", "on", "group_left", "rate", "increase", "changes", "time", "histogram_quantile"}


def load():
    return json.loads((FOLDER / "longwave.json").read_text(encoding="utf-8"))


def expressions(dashboard):
    """(where, expression) of every panel and annotation."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def fill_in(expression, window="5m"):
    """The variables as Grafana fills them in."""
    filled = expression.replace("$__rate_interval", window).replace("$job", "longwave").replace("$instance", ".*")
    assert "$" not in filled, expression
    return filled


def selectors(expression):
    """(metric, [(label, operator, value)]) of each selector."""
    for name, labels in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expression):
        yield name, re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', labels)


def bare_names(expression):
    """Names outside of braces, quotes and groupings: they must be functions, or metrics with a selector behind them."""
    rest = re.sub(r"\b(?:by|on|group_left)\s*\([^)]*\)", " ", re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", expression))
    return set(re.findall(r"[a-zA-Z_:][\w:]*", rest))


def grouped_by(expression):
    return {label.strip() for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression) for label in group.split(",")}


def legend_labels(dashboard):
    """(panel, label, expression) of each {{label}} in a legend."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                yield panel["title"], label, target["expr"]


def page_labels(page):
    """{metric: {label: values}} of a metrics page; a histogram's parts by themselves."""
    found = {}
    for line in page.splitlines():
        if sample := re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line):
            labels = found.setdefault(sample[1], {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2] or ""):
                labels.setdefault(label, set()).add(value)
    return found


def offences(dashboard, page):
    """Everything that the dashboard asks for and the page lacks."""
    known = page_labels(page)
    bad = []
    for where, expression in expressions(dashboard):
        asked = list(selectors(expression))
        for name, matchers in asked:
            labels = known.get(name)
            if labels is None and name != "up":
                bad.append(f"{where}: no metric {name}")
                continue
            for label, operator, value in matchers:
                if label in PROMETHEUS_LABELS:
                    continue
                if label not in labels:
                    bad.append(f"{where}: {name} has no label {label}")
                elif operator in ("=", "=~") and not set(value.split("|")) <= labels[label]:
                    bad.append(f"{where}: {name} has no {label}={value}")
        of_all = PROMETHEUS_LABELS.union(*(known.get(name, {}) for name, _ in asked))
        bad += [f"{where}: nothing has the label {label}" for label in grouped_by(expression) - of_all]
        bad += [f"{where}: {name} is neither a function nor a metric" for name in bare_names(expression) - FUNCTIONS - {name for name, _ in asked}]
    for title, label, expression in legend_labels(dashboard):
        kept = grouped_by(expression) if " by (" in expression else set().union(PROMETHEUS_LABELS, *(known.get(n, {}) for n, _ in selectors(expression)))
        if label not in kept:
            bad.append(f"{title}: the legend's {label} is grouped away")
    return bad
