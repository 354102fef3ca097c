"""The page of a certificate in a real browser: readable at any width, without code and requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.mirroring.cutover.files import write_page
from tests.browser import HOSTILE, Browser, assert_readable
from tests.mirroring.cutover.test_certificate import CERTIFICATE


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_page_is_readable_and_sends_no_request(
    browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    groups = [replace(CERTIFICATE.groups[0], group=name) for name in (HOSTILE, "app-" * 60)]
    certificate = replace(CERTIFICATE, groups=tuple(groups))
    write_page(str(tmp_path / "orders.json"), certificate)
    browser.prefer(scheme)
    assert_readable(browser, tmp_path / "orders.html", width)
    assert browser.script("return document.title") == f"Cut-over of {CERTIFICATE.at}"
    assert HOSTILE in browser.text()
