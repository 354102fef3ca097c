"""A real browser, headless Chromium, and its observations of a page: requests, console messages, contrast."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

__all__ = ["HOSTILE", "READABLE", "Browser", "assert_readable", "started_browser"]

#: The command's names on different systems.
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Without these Chromium also sends requests to its maker's hosts, and the tests collect all requests.
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
)

#: A text that would take a page over, if the page did not escape it.
HOSTILE = "</td><script>document.title='taken'</script><img src=https://example.org/x>"

#: The contrast that WCAG 2 (AA) requires of text.
READABLE = 4.5

#: The contrast of an element's text with its background (WCAG 2), and the elements with the least.
_CONTRASTS = """
function channels(colour) {
  const found = colour.match(/[\\d.]+/g).map(Number);
  return { rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1 };
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, alpha } = channels(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
  }
  return [255, 255, 255];
}
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const box = element.getBoundingClientRect();
  if (!own || !box.width || !box.height || element.closest("noscript, script")) continue;
  const style = getComputedStyle(element);
  const isSvg = element instanceof SVGElement;
  const one = luminance(channels(isSvg ? style.fill : style.color).rgb) + 0.05;
  const other = luminance(ground(element)) + 0.05;
  found.push([Math.max(one, other) / Math.min(one, other), element.textContent.trim().slice(0, 60)]);
}
return found;
"""


class Browser:
    """A window of the browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Load a page, and drop earlier console messages and requests."""
        self.driver.get("about:blank")
        self.complaints()
        self.requests()
        self.driver.get(url)

    def script(self, code: str, *arguments: Any) -> Any:
        """Run the body of a function in the page; return its result."""
        return self.driver.execute_script(code, *arguments)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element."""
        return str(self.script("return document.querySelector(arguments[0]).innerText", selector))

    def click(self, selector: str) -> None:
        self.script("document.querySelector(arguments[0]).click()", selector)

    def wait_for(self, condition: Callable[[Browser], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            assert time.monotonic() < deadline, f"it does not happen; the page says {self.text()[:2000]}"
            time.sleep(0.05)

    def wait_for_text(self, text: str, selector: str = "body") -> None:
        self.wait_for(lambda browser: text in browser.text(selector))

    def prefer(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``, as the system's setting does."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    def resize(self, width: int, height: int = 900) -> None:
        """Resize the window to this many CSS pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the console since the last call."""
        return [
            each["message"]
            for each in self.driver.get_log("browser")
            if each["level"] in ("SEVERE", "WARNING")
        ]

    def requests(self) -> list[str]:
        """Return the addresses of all requests since the last call, without those inside the page itself."""
        events = [json.loads(each["message"])["message"] for each in self.driver.get_log("performance")]
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("data:", "about:"))]

    def contrasts(self) -> list[tuple[float, str]]:
        """Return the contrast and the text of all texts, the least first."""
        return sorted((float(contrast), str(text)) for contrast, text in self.script(_CONTRASTS))


def assert_readable(browser: Browser, file: Path, width: int) -> None:
    """Load a page from a file: its text has contrast and fits the width, and the page sends no request."""
    browser.resize(width)
    browser.open(file.as_uri())
    assert browser.contrasts()[0][0] >= READABLE
    assert browser.script("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert browser.requests() == [file.as_uri()]


@contextmanager
def started_browser(profile: Path) -> Iterator[Browser]:
    """Start a browser; if there is none, skip the test, except in CI, where one is required."""
    chromium = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        reason = "no Chromium with its ChromeDriver: run scripts/install-chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    options = Options()
    options.binary_location = chromium
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
