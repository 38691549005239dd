# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import openai
import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch prices from the network
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import longwave_server  # noqa: E402


@pytest.fixture(scope="session")
def server():
    server = longwave_server.Server(longwave_server.MODEL, "--alias", "smollm2", "--ctx", "4096")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=300)
