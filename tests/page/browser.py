# SPDX-License-Identifier: Apache-2.0
"""What tests do with the page: ids of elements, waiting, keys, console, pictures."""
import os
import pathlib

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

PICTURES = os.environ.get("LONGWAVE_PICTURES")  # a folder; without it no pictures are kept


class Browser:
    def __init__(self, driver):
        self.driver = driver
        self.expected = set()  # statuses that the console may complain of
        self.resize(1280, 800)
        self.media("light")
        driver.get_log("browser")

    def open(self, port, wait="ready", path="/"):
        """A tab that has never been here."""
        self.driver.get(f"http://127.0.0.1:{port}{path}")
        self.driver.execute_script("chat.clear(); chat.message.value = ''; chat.files = []; sessionStorage.clear()")
        self.driver.refresh()
        self.until(lambda: wait in self.text("state"), f"'{wait}' as the state")

    def complaints(self):
        entries = self.driver.get_log("browser")
        return [entry for entry in entries if not (entry["source"] == "network" and any(
            f"status of {status} " in entry["message"] or str(status) in entry["message"] for status in self.expected))]

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def media(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def picture(self, name):
        if PICTURES:
            self.driver.save_screenshot(str(pathlib.Path(PICTURES) / f"{name}.png"))

    def too_wide(self):
        """[what, its content's width, its own] of what would scroll sideways."""
        return self.script("return [document.documentElement, ...document.querySelectorAll('body, header, main, #turns, #composer, #panel')]"
                           ".filter((part) => part.scrollWidth > part.clientWidth).map((part) => [part.id || part.tagName, part.scrollWidth, part.clientWidth])")

    def leave(self):
        """Before a server goes: the page would complain."""
        self.driver.get("about:blank")

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, element_id):
        return self.script("return document.getElementById(arguments[0]).textContent", element_id)

    def value(self, element_id):
        return self.find(f"#{element_id}").get_property("value")

    def is_shown(self, element_id):
        return self.find(f"#{element_id}").is_displayed()

    def click(self, element_id):
        self.find(f"#{element_id}").click()

    def choose(self, element_id, words):
        Select(self.find(f"#{element_id}")).select_by_visible_text(words)

    def write(self, element_id, words, enter=False):
        self.find(f"#{element_id}").send_keys(words + (Keys.ENTER if enter else ""))

    def press(self, key):
        self.driver.switch_to.active_element.send_keys(key)

    def until(self, test, what, seconds=300):
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: test(), f"no {what}")

    def ask(self, words):
        self.write("message", words, enter=True)

    def wait_answer(self):
        self.until(lambda: self.is_shown("send"), "end of the answer")

    def answer(self):
        return self.all(".turn.assistant")[-1]

    def facts(self):
        """Of the last answer: {name: words}."""
        return self.script("const last = [...document.querySelectorAll('.turn.assistant')].at(-1);"
                           "return Object.fromEntries([...last.querySelectorAll('.facts dt')].map((dt) => [dt.textContent, dt.nextSibling.textContent]))")
