"""The page of an inspection: it loads nothing from other places, and shows names as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from shoal.inspect.page import page_html
from shoal_broker import Broker
from tests.inspect.topics import history, inspected


def test_page_has_the_charts_the_tables_and_no_request(broker: Broker) -> None:
    history(broker).plain(3, 50, 3)
    page = page_html(inspected(broker))
    for heading in ("Batch sizes", "Batches", "Writers", "Logs"):
        assert f"<h2>{heading}</h2>" in page
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert re.findall(r"(?:src|href|url\()=?[\"']?https?:", page) == []
    HTMLParser().feed(page)
    sizes = page[page.index("<h2>Batch sizes</h2>") : page.index("<h2>Batches</h2>")]
    assert re.findall(r'<meter max="100" value="([\d.]+)"', sizes) == ["33.3", "33.3", "0.0", "0.0", "33.3"]


def test_page_of_nothing_is_a_page(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    assert "All 0 batches" in page_html(inspected(broker, "orders", "absent"))
