# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest
from selenium import webdriver

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import longwave_server  # noqa: E402
from browser import Browser  # noqa: E402


@pytest.fixture(scope="session")
def driver():
    """Debian's Chromium; one for all tests, since it takes seconds to start."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    yield made
    made.quit()


@pytest.fixture
def browser(driver):
    """No error and no violation of the policy may be left in the console, but for answers that the test expects."""
    made = Browser(driver)
    yield made
    complaints = made.complaints()
    made.leave()
    assert complaints == []


@pytest.fixture(scope="session")
def smollm2():
    server = longwave_server.Server(longwave_server.MODEL, "--alias", "smollm2,second-name", "--ctx", "4096")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory):
    return longwave_server.make_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", "context=4096")
