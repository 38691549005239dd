#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a frame of a stream costs the page at / in Chromium, by the length of the answer so far: script and layout of one more word, and of
one more line, in text and in code. With ~/.cache/longwave/page/bin/python; LONGWAVE_BINARY and LONGWAVE_TEST_MODEL as for tests/page."""
import pathlib
import sys
import tempfile

from selenium import webdriver

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "e2e"), str(TESTS / "page")]
import longwave_server  # noqa: E402

MEASURE = """
    const [opening, length, more] = arguments;
    const line = "The quick brown fox jumps over the lazy dog, and then it looks back at what it has done.\\n";
    chat.clear();
    const view = new AnswerView();
    chat.append(view);
    view.setWriting(true);
    view.addContent(opening + line.repeat(length / line.length));
    const lay = () => { chat.list.scrollTop = chat.list.scrollHeight; };
    lay();
    const costs = [];
    for (let i = 0; i < 41; i++) {
      const begun = performance.now();
      view.addContent(more);
      lay();
      costs.push(performance.now() - begun);
    }
    return costs.sort((a, b) => a - b)[20];"""


def main():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    with tempfile.TemporaryDirectory() as folder:
        server = longwave_server.Server(longwave_server.make_tiny_model(pathlib.Path(folder) / "tiny.gguf"))
        try:
            driver.set_window_size(1280, 800)
            driver.get(f"http://127.0.0.1:{server.port}/")
            for what, opening in (("text", ""), ("code", "```c\n")):
                for length in (1000, 30000, 100000, 300000, 1000000):
                    costs = [driver.execute_script(MEASURE, opening, length, more) for more in (" word", " word\n")]
                    print(f"{what} of {length} characters: a word {costs[0]:.1f} ms, a line {costs[1]:.1f} ms (median of 41)", flush=True)
        finally:
            driver.quit()
            server.stop()


main()
