# SPDX-License-Identifier: Apache-2.0
"""schemathesis against /openapi.json of a running server: what CI does a little of, and the bar more."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent
CHECKS = "no_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
SERVER_OPTIONS = ("--alias", "tiny", "--max-output-tokens", "8")


def statuses(port):
    """Answers of the server so far, by status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        found = re.findall(r'^longwave_http_responses_total{.*code="(\d+)"} (\d+)$', page.read().decode(), re.M)
    return {int(code): int(n) for code, n in found}


def run(port, per_operation, *options, timeout=None):
    """(exit status, the report, answers by status). per_operation: requests made up for each operation."""
    before = statuses(port)
    with tempfile.TemporaryDirectory() as folder:  # it keeps files where it runs
        done = subprocess.run(
            [pathlib.Path(sys.executable).parent / "schemathesis", "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", CHECKS,
             "--max-examples", str(per_operation), "--continue-on-failure", "--mode", "all", "--suppress-health-check", "all",
             "--generation-database", "none", *options],
            env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(FOLDER)}, cwd=folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
    after = statuses(port)
    return done.returncode, done.stdout + done.stderr, {code: n - before.get(code, 0) for code, n in after.items() if n != before.get(code, 0)}
