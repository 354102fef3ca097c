"""Pages, and JSON by its schema, of real comparisons."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from shoal.cli import main
from shoal.verify import Extent, VerifyReport
from shoal.verify.page import report_html
from tests.world.batches import Content, encode
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS, History
from tests.world.verifying import cut, flip, lay_out, verified

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "verify-report.schema.json").read_text(encoding="utf-8"))


def items(count: int) -> list[Content]:
    return [
        Content(NOW_MS + number, b"key %d" % number, b"secret %d" % number, (("trace", b"%d" % number),))
        for number in range(count)
    ]


@pytest.fixture
def different(brokers: TwoBrokers, history: History) -> None:
    """Record 7 of 20 is missing, 12 is altered, and one is extra behind 15."""
    copied = items(20)
    copied[12] = copied[12]._replace(value=b"<b>another</b>")
    copied.insert(16, Content(NOW_MS, b"foreign", None))
    del copied[7]
    history.store(encode(items(20)))
    lay_out(brokers, cut(copied, 6, 6))


def problems(report: object) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(report)]


def as_json(report: VerifyReport) -> object:
    return json.loads(json.dumps(report.to_json_object()))


# JSON


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.usefixtures("different")
def test_report_with_differences_fits_its_schema(brokers: TwoBrokers) -> None:
    report = verified(brokers)
    assert report.exit_code == 1
    assert problems(as_json(report)) == []


def test_reports_of_all_outcomes_fit_the_schema(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2, 4)
    brokers.run()
    assert problems(as_json(verified(brokers))) == []
    flip(brokers.destination.log("topic"), 1, -1)
    damaged = verified(brokers)
    assert damaged.exit_code == 1
    assert problems(as_json(damaged)) == []
    assert problems(as_json(verified(brokers, "absent"))) == []
    brokers.topic("long")[0].plain(*[500] * 10)
    brokers.run(brokers.ranges("long"))
    sampled = verified(brokers, "long", extent=Extent(last_offsets=1_500))
    assert problems(as_json(sampled)) == []
    assert sampled.partitions[0].ranges


# Page


class Tags(HTMLParser):
    """Collects elements and text, and leaves the rules of the style out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(re.sub("<style>.*?</style>", "", page, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, text: str) -> None:
        self.words.append(text)


@pytest.mark.usefixtures("different")
def test_page_shows_outcome_and_offsets_without_code(brokers: TwoBrokers) -> None:
    page = report_html(verified(brokers))
    found = Tags(page)
    text = " ".join(found.words)
    assert not {"script", "iframe", "form"} & set(found.tags)
    offsets = r"topic-0: (\w+):(?: source offsets (\d+),?)?(?: destination offsets (\d+))?"
    assert re.findall(offsets, text) == [("missing", "7", ""), ("altered", "12", "11"), ("extra", "", "15")]
    assert "1 of 1 partitions" in text
    assert "http" not in page.replace("http-equiv", "")


def test_page_of_an_equal_copy_says_how_it_was_compared(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    text = " ".join(Tags(report_html(verified(brokers))).words)
    assert all(each in text for each in ("3 records", "aligned by", "origin"))


@pytest.mark.usefixtures("different")
def test_report_is_a_file_of_the_user_alone_that_hides_contents(brokers: TwoBrokers, tmp_path: Path) -> None:
    page = tmp_path / "orders.html"
    clusters = brokers.between
    assert main(["verify", *clusters, "--topics", "topic", "--report", str(page)]) == 1
    assert page.stat().st_mode & 0o777 == 0o600
    assert "secret" not in page.read_text()
