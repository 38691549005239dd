# SPDX-License-Identifier: Apache-2.0
"""What the page keeps: messages that were stopped or failed, answers that are asked for again, reloads at any time, keys, storage that is
denied, full or of another shape; and where it sends what it has."""
import json
import threading

import pytest

import longwave_server
from stub_server import FINAL, USAGE, StubServer, delta


@pytest.fixture
def stub(browser, smollm2):
    made = StubServer(smollm2)
    yield made
    browser.script("chat.save = () => true")  # no question before it goes
    browser.leave()
    made.stop()


def answered(browser, stub, question="Hello", *pieces):
    stub.set_frames(*(pieces or [delta(content="First.")]), FINAL, USAGE, b"[DONE]")
    browser.ask(question)
    browser.wait_answer()


def buttons(browser):
    return {button.text: button for button in browser.all(".below button") if button.is_displayed()}


def reload(browser):
    browser.driver.refresh()
    browser.until(lambda: browser.text("state") == "ready", "state")


def conversation(browser):
    return [turn.find_element("css selector", ".body").text.split("\n") for turn in browser.all(".turn")]


def test_a_message_that_was_stopped_before_its_answer_is_there_again(browser, stub):
    browser.open(stub.port)
    for text, wanted in (("", "Hello"), ("a draft", "Hello\n\na draft")):
        stub.set_frames(threading.Event())
        browser.find("#message").clear()
        browser.ask("Hello")
        browser.until(lambda: browser.is_shown("stop"), "stop")
        browser.write("message", text)
        browser.click("stop")
        browser.wait_answer()
        assert browser.value("message") == wanted and not browser.all(".turn")
        reload(browser)
        assert browser.value("message") == wanted and not browser.all(".turn")


def test_a_message_that_failed_does_not_push_a_draft_out(browser, stub):
    browser.open(stub.port)
    go_on = threading.Event()
    stub.set_frames(go_on, {"error": {"message": "no luck", "type": "x", "param": None, "code": None}}, b"[DONE]")
    browser.ask("Hello")
    browser.write("message", "a draft")
    go_on.set()
    browser.until(lambda: "no luck" in browser.text("notice"), "error")
    assert browser.value("message") == "Hello\n\na draft" and not browser.all(".turn")


def test_an_answer_outlives_another_one_that_did_not_come(browser, stub):
    browser.open(stub.port)
    answered(browser, stub)
    facts = browser.facts()
    stub.set_frames(threading.Event())
    buttons(browser)["Answer again"].click()
    browser.until(lambda: browser.is_shown("stop"), "stop")
    browser.click("stop")
    browser.wait_answer()
    assert conversation(browser) == [["Hello"], ["First."]] and browser.facts() == facts and browser.value("message") == ""
    browser.expected.add(500)
    stub.set_error("/v1/chat/completions", 500, "no luck")
    buttons(browser)["Answer again"].click()
    browser.until(lambda: "no luck" in browser.text("notice"), "error")
    reload(browser)
    assert conversation(browser) == [["Hello"], ["First."]] and browser.facts() == facts


def test_of_three_answers_the_one_before_the_last_that_came_is_kept(browser, stub):
    browser.open(stub.port)
    answered(browser, stub)
    broken = {"error": {"message": "no luck", "type": "x", "param": None, "code": None}}, b"[DONE]"
    stub.set_frames(delta(content="Half"), *broken)
    buttons(browser)["Answer again"].click()
    browser.until(lambda: "no luck" in browser.text("notice"), "error")
    stub.set_frames(threading.Event())
    buttons(browser)["Answer again"].click()
    browser.until(lambda: browser.is_shown("stop"), "stop")
    browser.click("stop")
    browser.wait_answer()
    reload(browser)
    assert conversation(browser) == [["Hello"], ["Half", "no luck"]]
    buttons(browser)["Other answer"].click()
    assert conversation(browser) == [["Hello"], ["First."]]


def test_an_answer_can_be_had_back_from_the_one_that_took_its_place(browser, stub):
    browser.open(stub.port)
    answered(browser, stub)
    assert "Other answer" not in buttons(browser)
    stub.set_frames(delta(content="Half"), {"error": {"message": "no luck", "type": "x", "param": None, "code": None}}, b"[DONE]")
    buttons(browser)["Answer again"].click()
    browser.until(lambda: "no luck" in browser.text("notice"), "error")
    half = [["Hello"], ["Half", "no luck"]]
    assert conversation(browser) == half
    reload(browser)
    assert conversation(browser) == half
    buttons(browser)["Other answer"].click()
    assert conversation(browser) == [["Hello"], ["First."]]
    reload(browser)
    buttons(browser)["Other answer"].click()
    assert conversation(browser) == half
    buttons(browser)["Other answer"].click()
    answered(browser, stub, "And on?")
    assert [message["content"] for message in stub.asked[-1]["messages"]] == ["Hello", "First.", "And on?"]


def test_a_reload_while_an_answer_streams_loses_nothing(browser, stub):
    browser.open(stub.port)
    stub.set_frames(delta(reasoning_content="Hm."), delta(content="Half of"), threading.Event())
    browser.ask("Hello")
    browser.until(lambda: browser.all(".text") and browser.answer().text, "text")
    reload(browser)
    left = [["Hello"], ["Reasoning", "Half of", "Cut off: the page was left."]]
    assert conversation(browser) == left and stub.left.wait(30)
    # The answer that stands is the one before, while nothing has come of another one.
    stub.set_frames(threading.Event())
    buttons(browser)["Answer again"].click()
    browser.until(lambda: browser.is_shown("stop"), "stop")
    reload(browser)
    assert conversation(browser) == left
    # Nor has anything come here: the message is to be sent again, and a draft is still one.
    stub.set_frames(threading.Event())
    browser.ask("And on?")
    browser.write("message", "a draft")
    reload(browser)
    assert conversation(browser) == left and browser.value("message") == "And on?\n\na draft"


def test_files_of_a_message_outlive_a_reload(browser, stub, tmp_path):
    browser.open(stub.port)
    (tmp_path / "a.txt").write_text("ä", encoding="utf-8")
    browser.find("#add-file").send_keys(str(tmp_path / "a.txt"))
    browser.until(lambda: "a.txt" in browser.text("files"), "file")
    reload(browser)
    assert "a.txt" in browser.text("files")
    answered(browser, stub, "Read it.")
    assert stub.asked[-1]["messages"][0]["content"] == "Read it.\n\na.txt:\n\nä"


@pytest.mark.parametrize("path", ["/box/one/", "/box/one"])
def test_behind_a_prefix_everything_goes_below_it(browser, smollm2, path):
    stub = StubServer(smollm2, prefix="/box/one")
    try:
        browser.open(stub.port, path=path)
        browser.click("key-open")
        browser.write("key", "secret", enter=True)
        browser.until(lambda: browser.text("state") == "ready", "state")
        answered(browser, stub)
        assert conversation(browser)[1] == ["First."]
        browser.until(lambda: "all requests" in browser.text("panel-note"), "charts")
        asked = dict(zip(stub.paths, stub.keys))
        assert asked.pop("/favicon.ico", None) is None
        assert set(asked) - {"/box/one/", "/box/one"} == {f"/box/one/{name}" for name in ("metrics", "v1/models", "v1/chat/completions")}
        assert asked["/box/one/v1/chat/completions"] == "Bearer secret"
        # Another server of the same origin has neither the key nor the conversation.
        stub.prefix = "/box/two"
        browser.driver.get(f"http://127.0.0.1:{stub.port}/box/two/")
        browser.until(lambda: browser.text("state") == "ready", "state")
        assert not browser.all(".turn") and stub.keys[-1] is None
    finally:
        browser.leave()
        stub.stop()


@pytest.mark.parametrize("status", [403, 404])
def test_metrics_that_are_kept_from_the_page(browser, stub, status):
    """As deploy/haproxy does without a key: it is told once, and asked again with a key."""
    browser.expected.add(status)
    metrics = stub.answers["/metrics"]
    stub.set_error("/metrics", status, "no")
    browser.open(stub.port)
    browser.until(lambda: browser.text("panel-note").startswith("No charts here"), "note")
    assert not browser.is_shown("charts") and not browser.is_shown("totals")
    browser.picture(f"no-charts-{status}")
    answered(browser, stub)
    assert not browser.script("return panel.isAsking || panel.timer") and browser.script("return document.hidden") is False
    stub.answers["/metrics"] = metrics
    browser.click("key-open")
    browser.write("key", "k", enter=True)
    browser.until(lambda: "all requests" in browser.text("panel-note") and browser.is_shown("charts"), "charts")


def test_keys_of_any_letters_reach_the_server(browser, tiny_path, tmp_path):
    key = "schlüssel-鍵"
    (tmp_path / "keys").write_text(f"alice:{key}\n", encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--alias", "tiny", "--api-key-file", str(tmp_path / "keys"))
    try:
        browser.expected |= {401}
        browser.open(server.port, wait="key wanted")
        browser.script("document.getElementById('key').value = 'a\\u0007b'; document.getElementById('key-form').requestSubmit()")
        assert "control character" in browser.text("key-why") and browser.is_shown("key-dialog")
        browser.script("document.getElementById('key').value = arguments[0]; document.getElementById('key-form').requestSubmit()", key)
        browser.until(lambda: browser.text("state") == "ready", "state")
    finally:
        browser.leave()
        assert server.stop() == 0


DENIED = "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
FULL = "Storage.prototype.setItem = () => { throw new DOMException('no', 'QuotaExceededError'); };"


@pytest.mark.parametrize("way", [DENIED, FULL])
def test_storage_that_takes_nothing(browser, smollm2, way):
    stub = StubServer(smollm2)
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": way})["identifier"]
    try:
        browser.driver.get(f"http://127.0.0.1:{stub.port}/")
        browser.until(lambda: browser.text("state") == "ready", "state")
        browser.click("key-open")
        browser.write("key", "secret", enter=True)
        answered(browser, stub)
        assert conversation(browser) == [["Hello"], ["First."]] and stub.keys[-1] == "Bearer secret"
        # A reload would lose it, so that is asked before.
        asks = "const event = new Event('beforeunload', { cancelable: true }); window.dispatchEvent(event); return event.defaultPrevented"
        assert browser.script(asks) is True
        browser.click("new-chat")
        assert browser.script(asks) is False
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
        browser.leave()
        stub.stop()


STRANGE_TURNS = [
    {"a": 1}, 7, "x", [7], [None], [{"role": "user", "content": "of an older page"}], [{"role": "user", "text": "x", "files": [{"name": 1}]}],
    [{"role": "assistant"}], [{"role": "assistant", "content": "x", "facts": {"usage": 1}}], [{"role": "assistant", "content": "x", "earlier": 7}],
    [{"role": "assistant", "content": "x", "reasoning": []}], [{"role": "system", "content": "x"}]]


def test_stored_nonsense_does_no_harm(browser, stub):
    browser.open(stub.port)
    stored = [("turns", "{"), ("policy", '"nonsense"'), ("model", '"other"'), ("settings", "["), ("settings", "7"), ("key", "7"), ("draft", "{"),
              ("draft", '{"role": "user"}'), *(("turns", json.dumps(turns)) for turns in STRANGE_TURNS)]
    for name, value in stored:
        browser.script("chat.save = () => true; sessionStorage.setItem(arguments[0], arguments[1])", f"longwave.{name}/", value)
        reload(browser)
        assert browser.value("policy") == "{}" and browser.value("model") == "smollm2" and not browser.all(".turn"), (name, value)
    answered(browser, stub)
    assert conversation(browser) == [["Hello"], ["First."]]


def test_a_stream_that_failed_is_not_listened_to_any_longer(browser, stub):
    browser.open(stub.port)
    for frame in ({"error": {"message": "no luck", "type": "x", "param": None, "code": None}}, b"<html>"):
        stub.left.clear()
        stub.set_frames(delta(content="Half"), frame, threading.Event())
        browser.ask("Hello")
        browser.until(lambda: browser.is_shown("notice"), "error")
        assert stub.left.wait(30), "the connection stays"
        browser.find("#notice button").click()
