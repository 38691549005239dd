# SPDX-License-Identifier: Apache-2.0
import openai
import pytest

import longwave_server


@pytest.fixture(scope="session")
def smollm2():
    """The real small model, greedy answers have meaning."""
    server = longwave_server.Server(longwave_server.MODEL, "--alias", "smollm2,second-name")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory):
    return longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", "context=4096")


@pytest.fixture(scope="session")
def tiny(tiny_path):
    """Random weights: fast, no meaning."""
    server = longwave_server.Server(tiny_path, "--alias", "tiny")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def client(smollm2):
    return openai.OpenAI(base_url=smollm2.url, api_key="none", max_retries=0, timeout=300)
