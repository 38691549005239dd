#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when the manifests are not what Kubernetes takes: its own kinds by its schemas, those of the Gateway API and its
inference extension by their structure; and when they do not belong together."""
import pathlib
import sys

import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes"
# (kind, apiVersion): required members of its spec, as types; a list holds one example of its items.
REFERENCE = {"group": str, "kind": str, "name": str}
CUSTOM = {
    ("InferencePool", "inference.networking.k8s.io/v1"): {
        "selector": {"matchLabels": dict}, "targetPorts": [{"number": int}],
        "endpointPickerRef": {"name": str, "kind": str, "port": {"number": int}, "failureMode": ("FailOpen", "FailClose")}},
    ("HTTPRoute", "gateway.networking.k8s.io/v1"): {
        "parentRefs": [REFERENCE],
        "rules": [{"matches": [{"path": {"type": ("PathPrefix", "Exact"), "value": str}}], "backendRefs": [REFERENCE],
                   "timeouts": {"request": str}}]},
}


def misfits(found, wanted, where):
    """Unknown, missing and mistyped members."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [f"{where} is no object"]
        return ([f"{where}.{name} is unknown" for name in found.keys() - wanted.keys()]
                + [m for name in wanted for m in (misfits(found[name], wanted[name], f"{where}.{name}") if name in found
                                                  else [f"{where}.{name} is missing"])])
    if isinstance(wanted, list):
        if not isinstance(found, list) or not found:
            return [f"{where} is no list"]
        return [m for i, item in enumerate(found) for m in misfits(item, wanted[0], f"{where}[{i}]")]
    fits = found in wanted if isinstance(wanted, tuple) else isinstance(found, wanted)
    return [] if fits else [f"{where} is {found!r}"]


def offences_of(document):
    key = (document.get("kind"), document.get("apiVersion"))
    if key in CUSTOM:
        return misfits(document.get("spec"), CUSTOM[key], key[0])
    try:
        kubernetes_validate.validate(document, "1.37", strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{key}: {error}"]
    return []


def self_test(documents):
    """Each kind has to be refused with a member that it does not know."""
    for document in documents:
        broken = yaml.safe_load(yaml.safe_dump(document))
        broken.setdefault("spec" if "spec" in broken else "metadata", {})["nonsense"] = 1
        if not offences_of(broken):
            sys.exit(f"check_kubernetes: a broken {document['kind']} passes")


documents = [d for path in sorted(FOLDER.glob("*.yaml")) for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
self_test(documents)
offences = [o for document in documents for o in offences_of(document)]
by_kind = {d["kind"]: d for d in documents}
pod = by_kind["Deployment"]["spec"]["template"]
labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
for kind, selector in (("Service", by_kind["Service"]["spec"]["selector"]),
                       ("Deployment", by_kind["Deployment"]["spec"]["selector"]["matchLabels"]),
                       ("PodDisruptionBudget", by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
                       ("InferencePool", by_kind["InferencePool"]["spec"]["selector"]["matchLabels"])):
    if selector.items() > labels.items() or not selector:
        offences.append(f"{kind} selects other pods than those of the deployment")
ports = {port["containerPort"] for port in container["ports"]}
if not {p["number"] for p in by_kind["InferencePool"]["spec"]["targetPorts"]} <= ports:
    offences.append("the pool's port is none of the container's")
for probe, path in (("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
    if container[probe]["httpGet"]["path"] != path:
        offences.append(f"{probe} asks {container[probe]['httpGet']['path']}")
for offence in offences:
    print(offence)
print(f"check_kubernetes: {len(documents)} objects, {len(offences)} offences")
sys.exit(bool(offences))
