"""The report of a comparison in a real browser: readable at any width, without code and requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.verify.page import report_html
from tests.browser import HOSTILE, Browser, assert_readable
from tests.two_brokers import TwoBrokers
from tests.verifying import Item, encode, lay_out, verified


def report(brokers: TwoBrokers) -> str:
    """Return the report about a copy that lacks a record and has another altered, of a hostile group."""
    brokers.topic()
    found = [Item(1_700_000_000_000 + number, b"key %d" % number, b"v" * 300) for number in range(40)]
    brokers.source.log("topic").store(encode(found))
    altered = found[20]._replace(value=b"another")
    lay_out(brokers, [encode([*found[:10], *found[11:20], altered, *found[21:]])])
    return report_html(verified(brokers, group=HOSTILE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_report_is_readable_and_sends_no_request(
    browser: Browser, brokers: TwoBrokers, tmp_path: Path, scheme: str, width: int
) -> None:
    page = tmp_path / "report.html"
    page.write_text(report(brokers), encoding="utf-8")
    browser.prefer(scheme)
    assert_readable(browser, page, width)
    text = browser.text()
    assert re.search(r"offsets.*10.*1", text)
    assert re.search(r"offsets.*20", text)
    assert HOSTILE in text
    assert browser.script("return document.title") != "taken"
