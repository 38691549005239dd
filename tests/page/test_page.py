# SPDX-License-Identifier: Apache-2.0
"""The page in Debian's headless Chromium against real servers: a chat from the first message to a reload, keys, limits."""
import re
import subprocess
import time

import pytest
from selenium.webdriver.common.keys import Keys

import longwave_server


def test_chat_streams_and_tells_what_it_cost(browser, smollm2):
    browser.open(smollm2.port)
    browser.picture("empty-1280")
    assert browser.driver.title == "smollm2 · longwave" and browser.script("return document.activeElement.id") == "message"
    browser.click("settings-toggle")
    browser.write("max-tokens", "24")
    browser.write("temperature", "0")
    browser.ask("Count from one to twenty.")
    lengths = set()
    browser.until(lambda: lengths.add(len(browser.answer().text)) or browser.is_shown("send"), "end of the answer")
    assert len(lengths) >= 5, "it came at once"
    facts = browser.facts()
    assert facts["Attention"].startswith("dense: all ") and facts["Answer"] == "24 tokens"
    assert re.fullmatch(r"[\d.]+ m?s, as seen here", facts["First token"]) and "of them cached" in facts["Prompt"]
    assert "longest answer" in browser.answer().text  # why it ended
    browser.picture("answer-1280")

    # The next turn has the first one in its prompt, from the cache.
    browser.ask("And on?")
    browser.wait_answer()
    assert len(browser.all(".turn")) == 4
    prompt = re.fullmatch(r"([\d,]+) tokens, ([\d,]+) of them cached", browser.facts()["Prompt"])
    assert int(prompt[2]) > 40 and int(prompt[1]) > int(prompt[2])


def test_policies_switch(browser, smollm2):
    browser.open(smollm2.port)
    browser.click("settings-toggle")
    browser.write("max-tokens", "8")
    words = "Count the ships in the harbour, one after the other. " * 60
    browser.script("document.getElementById('message').value = arguments[0]", words)
    options = [option.text for option in browser.all("#policy option")]
    assert options[0] == "auto: dense" and {"dense", "lserve-4k", "hip-3k"} <= set(options)
    browser.choose("policy", "lserve-4k")
    browser.write("budget", "448")
    browser.ask("")
    browser.wait_answer()
    facts = browser.facts()
    seen = re.fullmatch(r"lserve-4k: (\d+) of ([\d,]+) tokens attended", facts["Attention"])
    assert 300 < int(seen[1]) <= 448 and float(facts["Missing mass"].split(" ")[0]) > 0
    browser.find(".facts summary").click()
    browser.picture("sparse-1280")
    browser.find("#budget").clear()
    browser.choose("policy", "dense")
    browser.all(".below button")[-1].click()  # answer again
    browser.wait_answer()
    assert len(browser.all(".turn")) == 2 and browser.facts()["Attention"].startswith("dense: all ")
    # What the server refuses is told, and the message is there to be sent again.
    browser.expected.add(400)
    browser.choose("policy", "lserve-4k")
    browser.write("budget", "1")
    browser.ask("Hello")
    browser.until(lambda: browser.is_shown("notice"), "error")
    assert "longwave.attention.budget" in browser.text("notice")
    browser.until(lambda: browser.value("message") == "Hello", "message")
    assert len(browser.all(".turn")) == 2
    browser.picture("refused-1280")


@pytest.mark.parametrize("way", ["button", "escape"])
def test_stop_ends_the_request_at_the_server(browser, smollm2, way):
    browser.open(smollm2.port)
    aborted = smollm2.metric("longwave_requests_aborted_total")
    browser.ask("Tell me everything about the sea, the wind and the ships, at length.")
    browser.until(lambda: len(browser.answer().text) > 20, "text")
    browser.picture("streaming-1280")
    if way == "button":
        browser.click("stop")
    else:
        browser.press(Keys.ESCAPE)
    browser.wait_answer()
    assert "Stopped." in browser.answer().text
    smollm2.wait_metric("longwave_requests_aborted_total", lambda n: n == aborted + 1)
    smollm2.wait_idle()
    # The half answer is part of the conversation.
    browser.click("settings-toggle")
    browser.write("max-tokens", "4")
    browser.ask("Go on")
    browser.wait_answer()
    assert len(browser.all(".turn")) == 4 and browser.facts()["Answer"] == "4 tokens"


def test_reload_keeps_the_conversation_and_the_settings(browser, smollm2):
    browser.open(smollm2.port)
    browser.click("settings-toggle")
    browser.write("max-tokens", "12")
    browser.choose("policy", "hip-3k")
    browser.choose("model", "second-name")
    browser.ask("Name a colour.")
    browser.wait_answer()
    before = [turn.text for turn in browser.all(".turn")], browser.facts()
    browser.driver.refresh()
    browser.until(lambda: browser.text("state") == "ready", "state")
    browser.until(lambda: browser.all(".turn")[-1].text == before[0][-1], "conversation")
    assert ([turn.text for turn in browser.all(".turn")], browser.facts()) == before
    assert (browser.value("max-tokens"), browser.value("model")) == ("12", "second-name") and "hip-3k" in browser.value("policy")
    browser.ask("Another one.")
    browser.wait_answer()
    assert len(browser.all(".turn")) == 4
    browser.click("new-chat")
    assert not browser.all(".turn") and browser.is_shown("empty")
    browser.driver.refresh()
    browser.until(lambda: browser.text("state") == "ready", "state")
    assert not browser.all(".turn")


def test_key_is_asked_for_and_limits_are_told(browser, tiny_path, tmp_path):
    (tmp_path / "keys").write_text("alice:ka requests=2\nwatch:kw scope=monitor\n", encoding="utf-8")
    server = longwave_server.Server(tiny_path, "--alias", "tiny", "--api-key-file", str(tmp_path / "keys"))
    try:
        browser.expected |= {401, 403, 429}
        browser.open(server.port, wait="key wanted")
        assert browser.is_shown("key-dialog") and "wants a key" in browser.text("key-why")
        browser.picture("key-1280")
        browser.write("key", "wrong", enter=True)
        browser.until(lambda: browser.is_shown("key-dialog") and "not know this key" in browser.text("key-why"), "second question")
        browser.find("#key").clear()
        browser.write("key", "kw", enter=True)
        browser.until(lambda: "only watch" in browser.text("state"), "state")
        assert not browser.find("#send").is_enabled()
        browser.until(lambda: "all requests" in browser.text("panel-note"), "charts")
        browser.click("key-open")
        browser.find("#key").clear()
        browser.write("key", "ka", enter=True)
        browser.until(lambda: browser.text("state") == "ready", "state")
        browser.click("settings-toggle")
        browser.write("max-tokens", "3")
        for n in (2, 4):
            browser.ask("the")
            browser.wait_answer()
            assert len(browser.all(".turn")) == n
        browser.ask("the last one")
        browser.until(lambda: browser.is_shown("notice"), "error")
        assert "requests" in browser.text("notice") and re.search(r"asks to wait \d+ s", browser.text("notice"))
        assert re.fullmatch(r"Send in \d+ s", browser.text("send")) and not browser.find("#send").is_enabled()
        assert browser.value("message") == "the last one" and len(browser.all(".turn")) == 4
        browser.picture("limited-1280")
        # In this tab only, and only until it is forgotten.
        browser.driver.refresh()
        browser.until(lambda: browser.text("state") == "ready", "state")
        assert browser.script("return [localStorage.length, document.cookie]") == [0, ""]
        browser.click("key-open")
        browser.click("key-forget")
        browser.until(lambda: browser.text("state") == "key wanted", "state")
        assert browser.script("return sessionStorage.getItem('longwave.key/')") is None
    finally:
        browser.leave()
        assert server.stop() == 0


def test_server_that_goes_and_comes_back(browser, tiny_path):
    server = longwave_server.Server(tiny_path, "--alias", "before")
    browser.open(server.port)
    assert server.stop() == 0
    browser.until(lambda: "does not answer" in browser.text("state"), "state")
    assert not browser.find("#send").is_enabled()
    port = server.port
    server = longwave_server.Server.attach(subprocess.Popen(
        [longwave_server.BINARY, "serve", "-m", str(tiny_path), "--port", str(port), "--alias", "after", "--log-level", "warn"]), port)
    try:
        browser.until(lambda: browser.text("state") == "ready" and browser.value("model") == "after", "state")
    finally:
        browser.leave()
        assert server.stop() == 0
    browser.driver.get_log("browser")  # refused connections are what this was about


def test_charts_follow_the_server(browser, smollm2):
    browser.open(smollm2.port)
    smollm2.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 30, "ignore_eos": True})

    def legends():
        return {chart.find_element("css selector", "svg").get_attribute("aria-label") for chart in browser.all(".chart")}

    browser.until(lambda: any(re.match(r"Between tokens: p50 [\d.]+ m?s, p95 [\d.]+ m?s$", text) for text in legends()), "p50")
    browser.until(lambda: any(re.match(r"Tokens written: now [\d.,]+/s$", text) for text in legends()), "tokens/s")
    assert len(legends()) == 9 and all(path.get_attribute("d") for path in browser.all(".chart:nth-child(4) path"))
    totals = browser.text("totals")
    answered = int(smollm2.metric("vllm:request_success_total"))
    assert f"Answers{answered}" in totals and "Preemptions0" in totals


def test_narrow_screens_and_the_dark(browser, smollm2):
    browser.resize(360, 740)
    browser.open(smollm2.port)
    assert browser.too_wide() == [] and not browser.is_shown("panel")
    assert browser.script("const state = document.getElementById('state'), range = document.createRange();"
                          "range.selectNodeContents(state); return range.getBoundingClientRect().width") > 20, "a dot without words"
    browser.click("settings-toggle")
    browser.write("max-tokens", "60")
    browser.ask("Write a Python function that adds two numbers, with a long comment. " + "word" * 60)
    browser.wait_answer()
    assert browser.too_wide() == []
    browser.picture("settings-360")
    browser.click("settings-toggle")
    browser.find(".facts summary").click()
    time.sleep(0.2)
    assert browser.too_wide() == []
    browser.picture("answer-360")
    browser.click("panel-toggle")
    assert browser.is_shown("panel") and not browser.is_shown("chat") and browser.too_wide() == []
    browser.picture("charts-360")
    browser.click("panel-toggle")
    light = browser.script("return getComputedStyle(document.body).backgroundColor")
    browser.media("dark")
    assert browser.script("return getComputedStyle(document.body).backgroundColor") != light
    browser.picture("dark-360")
    browser.resize(1280, 800)
    time.sleep(0.2)
    browser.picture("dark-1280")


def test_keyboard(browser, smollm2):
    browser.open(smollm2.port)
    browser.write("message", "two" + Keys.SHIFT + Keys.ENTER + Keys.NULL + "lines")
    assert browser.value("message") == "two\nlines" and not browser.all(".turn")
    browser.script("document.getElementById('turns').focus()")
    browser.press("/")
    assert browser.script("return document.activeElement.id") == "message" and browser.value("message") == "two\nlines"
    browser.click("key-open")
    browser.press(Keys.ESCAPE)
    assert not browser.is_shown("key-dialog")
    # Everything that can be used has a name, and can be reached with the tabulator.
    nameless = browser.script(
        "return [...document.querySelectorAll('button, input, select, textarea, [role=img], [role=log], aside, section')].filter((one) =>"
        " !(one.getAttribute('aria-label') || one.labels?.[0]?.textContent.trim() || one.textContent.trim())).map((one) => one.outerHTML)")
    assert nameless == []


def test_switched_off(browser, tiny_path):
    server = longwave_server.Server(tiny_path, "--page=off")
    try:
        browser.expected.add(404)
        browser.driver.get(f"http://127.0.0.1:{server.port}/")
        assert "unknown_url" in browser.find("body").text
    finally:
        assert server.stop() == 0
