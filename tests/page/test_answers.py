# SPDX-License-Identifier: Apache-2.0
"""The page against made-up answers: failures at a chosen moment, text that is hostile or cut anywhere, metrics with known values."""
import json

import pytest

from stub_server import FINAL, USAGE, StubServer, delta


@pytest.fixture
def stub(browser, smollm2):
    made = StubServer(smollm2)
    yield made
    browser.leave()
    made.stop()


def test_every_fact_of_an_answer(browser, stub):
    progress = {"choices": [], "longwave": {"progress": {"prompt": 0, "total": 101000, "cached": 1000, "processed": 51000, "ms": 1.5}}}
    stub.set_frames(delta(role="assistant", content=""), progress, delta(reasoning_content="Let me "), delta(reasoning_content="<b>think</b>"),
                    delta(content="Done."), FINAL, USAGE, b"[DONE]")
    browser.open(stub.port)
    browser.click("settings-toggle")
    browser.write("system", "Be brief.")
    browser.ask("Go")
    browser.wait_answer()
    assert stub.asked[0]["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}]
    assert stub.asked[0]["stream"] and stub.asked[0]["longwave"] == {"progress": True}
    reasoning = browser.find(".reasoning")
    assert not reasoning.get_property("open") and reasoning.get_property("textContent") == "ReasoningLet me <b>think</b>"
    assert browser.find(".body .text").text == "Done."
    facts = browser.facts()
    assert facts.pop("First token").endswith("as seen here")
    assert facts == {
        "Prompt": "101,000 tokens, 1,000 of them cached", "Cache": "known up to character 17 of message 2: others went on differently",
        "Answer": "50 tokens, 20 of them reasoning", "Queue": "1 ms", "Prefill": "2.5 s, 40,000 tokens/s", "Decoding": "1 s, 50 tokens/s",
        "Attention": "lserve-4k with roles half: 4,096 of 101,000 tokens attended", "Read": "5 MiB; dense: 100 MiB",
        "Missing mass": "1.23 %, estimated", "Audited": "1 % missing, KL 0.002 nats", "Preemptions": "2"}


def test_text_is_text(browser, stub):
    """Nothing that a model or a user writes becomes an element of its own making."""
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script> **<i>bold</i>** `<u>code</u>`\n\n```<b>\n<script>alert(3)</script>\n```\n# <h1>"
    stub.set_frames(*(delta(content=character) for character in hostile), FINAL, USAGE, b"[DONE]")
    browser.open(stub.port)
    browser.ask("<img src=x onerror=alert(4)>")
    browser.wait_answer()
    assert browser.find(".turn.user .body").text == "<img src=x onerror=alert(4)>"
    assert not browser.all("#turns img, #turns script, #turns i, #turns u, #turns b, #turns h1")
    assert browser.find("#turns strong").text == "<i>bold</i>" and browser.find("#turns .text code").text == "<u>code</u>"
    assert browser.find("#turns pre").text == "<script>alert(3)</script>" and browser.find("#turns figcaption").text.startswith("<b>")


TEXTS = [
    "plain\nlines\n\nand a gap\n",
    "before\n```python\nx = 1\n\ny = `2`\n```\nafter",
    "```\nopen to the end",
    "``` \n``\n```js\n```\n`a` **b** *c* ** d\n   ```\nx",
    "  ```\n```` four\n````\n\n\nlast ```",
    "````md\n```\nx\n```\n````\ny\n```",
    "```js title=x\n```\n```rest of a line",
    "".join(f"line {i}\n" * (1 + i % 3) + "\n" * (i % 4) for i in range(60)) + "```\n" + "code\n\n" * 60,
    "`",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_an_answer_looks_the_same_however_it_was_cut(browser, stub, text):
    browser.open(stub.port)
    shapes = browser.script("""
        const shape = (pieces) => {
          const root = document.createElement("div"), answer = new AnswerText(root);
          pieces.forEach((piece) => answer.append(piece));
          answer.finish();
          root.querySelectorAll("button").forEach((button) => button.remove());
          root.normalize();
          return root.outerHTML;
        };
        const text = arguments[0], shapes = [shape([text]), shape([...text])];
        for (let i = 1; i < text.length; i += 1 + (text.length >> 5)) shapes.push(shape([text.slice(0, i), text.slice(i)]));
        return shapes;""", text)
    assert len(set(shapes)) == 1, shapes[:2]
    assert "<img" not in shapes[0]


def test_code_and_text_come_apart(browser, stub):
    browser.open(stub.port)
    blocks = browser.script("""
        const root = document.createElement("div"), answer = new AnswerText(root);
        answer.append(arguments[0]);
        answer.finish();
        return [...root.children].map((block) => [block.className, (block.querySelector("pre") ?? block).textContent]);""", TEXTS[1])
    assert blocks == [["text", "before"], ["code", "x = 1\n\ny = `2`"], ["text", "after"]]


SHAPES = """
    const root = document.createElement("div"), answer = new AnswerText(root);
    answer.append(arguments[0]);
    answer.finish();
    return [...root.children].map((block) => [block.className, block.querySelector("figcaption")?.firstChild.textContent ?? null,
                                              (block.querySelector("pre") ?? block).textContent]);"""


@pytest.mark.parametrize("text, blocks", [
    ("```print(1)", [["text", None, "```print(1)"]]),
    ("a\n```js", [["text", None, "a\n```js"]]),
    ("```js\nx", [["code", "js", "x"]]),
    ("```js\nx\n```", [["code", "js", "x"]]),
    ("```\n```\nb", [["code", "code", ""], ["text", None, "b"]]),
    ("```js", [["text", None, "```js"]]),
    ("````md\n```js\nx\n```\n````\nb", [["code", "md", "```js\nx\n```"], ["text", None, "b"]]),
    ("```c file=a.c\nx\n```", [["code", "c file=a.c", "x"]]),
])
def test_nothing_of_a_fence_is_lost(browser, stub, text, blocks):
    browser.open(stub.port)
    assert browser.script(SHAPES, text) == blocks


@pytest.mark.parametrize("opening, tag", [("", ".text"), ("```\n", "code")])
def test_what_is_added_touches_the_last_chunk_alone(browser, stub, opening, tag):
    """So a frame costs the same however long the answer is."""
    browser.open(stub.port)
    lines = [f"line {i}" for i in range(1000)]
    told = browser.script("""
        const [opening, tag, lines] = arguments, root = document.createElement("div"), answer = new AnswerText(root);
        const sizes = new Set(), observer = new MutationObserver(() => {});
        answer.append(opening + lines.join("\\n"));
        const before = [...root.querySelectorAll(".chunk")];
        observer.observe(root, { childList: true, characterData: true, subtree: true });
        answer.append(" and more\\nlast");
        const last = before.at(-1), parent = last.parentNode;
        const isLate = (node) => last.contains(node) || !before.some((chunk) => chunk.contains(node));
        const touched = observer.takeRecords().map((record) => isLate(record.target) || record.target === parent);
        return [before.length, touched.length > 0 && touched.every(Boolean), Math.max(...before.map((chunk) => chunk.textContent.split("\\n").length)),
                root.querySelector(tag).textContent];""", opening, tag, lines)
    assert told == [25, True, 41, "\n".join(lines) + " and more\nlast"]


def test_failures_before_the_answer(browser, stub):
    browser.open(stub.port)
    browser.expected |= {500, 502, 503}
    for status, message in ((500, "logits are not finite"), (503, "the server is shutting down")):
        stub.set_error("/v1/chat/completions", status, message)
        browser.find("#message").clear()
        browser.ask("Hello")
        browser.until(lambda message=message: message in browser.text("notice"), "error")
        assert browser.value("message") == "Hello" and not browser.all(".turn")
        browser.until(lambda: browser.text("state") == "ready", "state")
    stub.answers["/v1/chat/completions"] = (502, {"Content-Type": "text/html"}, b"<h1>Bad Gateway</h1>")
    browser.ask("")
    browser.until(lambda: "<h1>Bad Gateway</h1>" in browser.text("notice"), "error")
    browser.find("#notice button").click()
    assert not browser.is_shown("notice")


def test_failures_within_the_answer(browser, stub):
    browser.open(stub.port)
    stub.set_frames(delta(content="Half of"), {"error": {"message": "the device has failed", "type": "x", "param": None, "code": None}}, b"[DONE]")
    browser.ask("Hello")
    browser.until(lambda: "the device has failed" in browser.text("notice"), "error")
    assert browser.find(".body .text").text == "Half of" and browser.find(".ending").text == "the device has failed"
    stub.set_frames(delta(content="No more"))
    browser.all(".below button")[-1].click()
    browser.until(lambda: "before the answer was whole" in browser.text("notice"), "error")
    assert browser.find(".body .text").text == "No more"


def test_a_server_that_loads(browser, stub):
    models = stub.answers["/v1/models"]
    browser.expected.add(503)
    stub.set_error("/v1/models", 503, "the model is still loading", Retry_After="1")
    browser.open(stub.port, wait="the model is still loading")
    assert not browser.find("#send").is_enabled() and not browser.is_shown("key-dialog")
    browser.picture("loading-1280")
    stub.answers["/v1/models"] = models
    browser.until(lambda: browser.text("state") == "ready", "state")
    assert browser.find("#send").is_enabled()


def test_text_files_go_with_the_message(browser, stub, tmp_path):
    stub.set_frames(delta(content="Read."), FINAL, USAGE, b"[DONE]")
    browser.open(stub.port)
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(f"text of {name} ä", encoding="utf-8")
        browser.find("#add-file").send_keys(str(tmp_path / name))
        browser.until(lambda name=name: name in browser.text("files"), "file")
    browser.all("#files button")[1].click()
    assert "b.txt" not in browser.text("files")
    browser.ask("What is in them?")
    browser.wait_answer()
    assert stub.asked[0]["messages"][0]["content"] == "What is in them?\n\na.txt:\n\ntext of a.txt ä\n\nc.txt:\n\ntext of c.txt ä"
    assert not browser.is_shown("files")


METRICS = """# HELP x y
x_total{model_name="a\\"}b",engine="0"} %d
y{model_name="a",engine="0",phase="decode"} %g
h_bucket{model_name="a",engine="0",le="0.1"} %d
h_bucket{model_name="a",engine="0",le="1"} %d
h_bucket{model_name="a",engine="0",le="+Inf"} %d
h_count{model_name="a",engine="0"} %d
"""


def test_rates_and_quantiles(browser, stub):
    """By hand: 10 of 20 below 0.1, the other half evenly up to 1 but for one."""
    pages = [(0, METRICS % (100, 0.5, 5, 5, 5, 5)), (10, METRICS % (150, 0.25, 15, 24, 25, 25)), (12, METRICS % (7, 0, 15, 24, 25, 25))]
    browser.open(stub.port)
    told = browser.script("""
        const history = new MetricsHistory(), told = [];
        for (const [at, text] of arguments[0]) {
          history.add(at, parseMetrics(text));
          told.push([history.rate("x_total", 60), history.value('y{phase="decode"}'), history.quantile(0.25, "h", 60),
                     history.quantile(0.725, "h", 60), history.quantile(0.99, "h", 60), history.rate("x_total", 1), history.quantile(0.5, "h", 3)]);
        }
        return told;""", pages)
    assert told[0] == [None, 0.5, None, None, None, None, None]
    assert told[1][:2] == [5, 0.25] and told[1][2] == pytest.approx(0.05) and told[1][3] == pytest.approx(0.1 + 0.9 * 4.5 / 9)
    assert told[1][4] == 1 and told[1][5] is None
    assert told[2][0] == pytest.approx(7 / 12) and told[2][6] is None  # the counter began anew; nothing came


def test_numbers_are_readable(browser, stub):
    browser.open(stub.port)
    told = browser.script("return [0, 0.00123, 0.5, 12.345, 999.9, 1234, 1234567].map(formatShort)")
    assert told == ["0", "0.00123", "0.5", "12.3", "1000", "1,230", "1.23 M"]
    assert browser.script("return [0.0042, 3.14159, 125].map(formatSeconds)") == ["4.2 ms", "3.14 s", "2 min 5 s"]
    assert browser.script("return [1, 1536, 5 * 2 ** 30].map(formatBytes)") == ["1 B", "1.5 KiB", "5 GiB"]
    assert browser.script("return [0.3, 1, 3, 60].map(roundUp)") == [0.5, 1, 5, 100]
