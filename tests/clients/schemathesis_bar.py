# SPDX-License-Identifier: Apache-2.0
"""The bar of tests/bars/schemathesis: rounds with other seeds until there are enough requests."""
import random
import sys
import tempfile

import longwave_server
import schemathesis_run

REQUESTS = 10_000

with tempfile.TemporaryDirectory() as folder:
    model = longwave_server.make_tiny_model(f"{folder}/tiny.gguf", "context=512")
    server = longwave_server.Server(model, *schemathesis_run.SERVER_OPTIONS, "--session-dir", folder)
    total, failed, seeds = {}, False, []
    try:
        while sum(total.values()) < REQUESTS and not failed:
            seeds.append(random.randrange(1 << 30))
            status, report, answers = schemathesis_run.run(server.port, 450, "--phases", "coverage,fuzzing", "--seed", str(seeds[-1]))
            for code, n in answers.items():
                total[code] = total.get(code, 0) + n
            failed = status != 0 or any(code >= 500 and code != 504 for code in answers)
            if failed:
                print(report, file=sys.stderr)
    finally:
        failed |= server.stop() != 0
print(f"{sum(total.values())} requests (bar {REQUESTS}), by status {dict(sorted(total.items()))}, seeds {seeds}: "
      f"{'something undocumented or broken' if failed else 'all documented'}")
sys.exit(failed)
