"""The page of an inspection in a real browser: readable at any width, without code and requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.inspect.page import page_html
from shoal.records import Codec
from shoal_broker import Broker
from tests.browser import Browser, assert_readable
from tests.inspect.topics import history, inspected
from tests.world.history import COMMIT


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page about topics with small and large batches, one of them with a long name."""
    names = "orders", "a-topic-with-a-long-name." * 8
    with Broker() as broker:
        for name in names:
            history(broker, name).plain(3, 50, 3).plain(400, codec=Codec.LZ4).transaction(2, ends=COMMIT)
        file = tmp_path / "batches.html"
        file.write_text(page_html(inspected(broker, *names)), encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_page_is_readable_and_sends_no_request(browser: Browser, page: Path, scheme: str, width: int) -> None:
    browser.prefer(scheme)
    assert_readable(browser, page, width)
    assert browser.script("return document.querySelectorAll('meter').length") >= 2
    assert re.search(r"Batch.*sizes", browser.text())
