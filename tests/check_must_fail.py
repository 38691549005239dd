#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_must_fail.py MUST_FAIL. Fails unless the test runner reports the failures that must_fail.c holds."""
import subprocess
import sys

result = subprocess.run([sys.argv[1], "--color=never"], capture_output=True, text=True, check=False)
wanted = "Tested: 4 | Passing: 2 | Failing: 2 | Crashing: 1"
if result.returncode == 0 or wanted not in result.stderr:
    sys.exit(f"the runner passed over failures: exit {result.returncode}\n{result.stderr}")
print("check_must_fail: the runner sees failures and crashes")
