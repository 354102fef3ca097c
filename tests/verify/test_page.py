"""Pages, and JSON by its schema, of real comparisons."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shoal.cli import main
from shoal.verify import Extent, VerifyReport
from shoal.verify.page import report_html
from tests.two_brokers import NOW_MS, History, TwoBrokers
from tests.verifying import Item, cut, encode, flip, lay_out, verified

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "verify-report.schema.json").read_text(encoding="utf-8"))


def items(count: int) -> list[Item]:
    return [
        Item(NOW_MS + number, b"key %d" % number, b"secret %d" % number, (("trace", b"%d" % number),))
        for number in range(count)
    ]


@pytest.fixture
def different(brokers: TwoBrokers, history: History) -> None:
    """Record 7 of 20 is missing, 12 is altered, and one is extra behind 15."""
    copied = items(20)
    copied[12] = copied[12]._replace(value=b"<b>another</b>")
    copied.insert(16, Item(NOW_MS, b"foreign", None))
    del copied[7]
    history.store(encode(items(20)))
    lay_out(brokers, cut(copied, 6, 6))


def with_windows(brokers: TwoBrokers, **options: Any) -> VerifyReport:
    return verified(brokers, windows=True, **options)


def problems(report: object) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(report)]


def as_json(report: VerifyReport) -> object:
    return json.loads(json.dumps(report.to_json_object()))


# JSON


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.usefixtures("different")
@pytest.mark.parametrize("show_values", [False, True])
def test_report_with_differences_fits_its_schema(brokers: TwoBrokers, show_values: bool) -> None:
    report = with_windows(brokers, show_values=show_values)
    assert report.exit_code == 1
    assert problems(as_json(report)) == []


def test_reports_of_all_outcomes_fit_the_schema(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2, 4)
    brokers.run()
    assert problems(as_json(verified(brokers))) == []
    flip(brokers.destination.log("topic"), 1, -1)
    damaged = with_windows(brokers)
    assert damaged.exit_code == 1
    assert problems(as_json(damaged)) == []
    assert problems(as_json(verified(brokers, "absent"))) == []
    brokers.topic("long")[0].plain(*[500] * 10)
    brokers.run(brokers.ranges("long"))
    sampled = verified(brokers, "long", extent=Extent(last_offsets=1_500))
    assert problems(as_json(sampled)) == []
    assert sampled.partitions[0].ranges


def test_schema_refuses_a_report_without_an_outcome(brokers: TwoBrokers, history: History) -> None:
    history.plain(1)
    report = verified(brokers).to_json_object()
    del report["outcome"]
    (error,) = Draft202012Validator(SCHEMA).iter_errors(report)
    assert (error.validator, "'outcome'" in error.message) == ("required", True)


# Windows and page


@pytest.mark.usefixtures("different")
def test_window_has_the_records_around_each_difference(brokers: TwoBrokers) -> None:
    (partition,) = with_windows(brokers, show_values=True).partitions
    missing = partition.windows[0]
    assert [each.offset for each in missing.source] == [4, 5, 6, 7, 8, 9, 10]
    assert [each.offset for each in missing.source if each.differs] == [7]
    assert [each.offset for each in missing.destination] == [4, 5, 6, 7, 8, 9]
    altered = partition.windows[1]
    values = [
        each.value.text
        for side in (altered.source, altered.destination)
        for each in side
        if each.differs and each.value
    ]
    assert values == ["secret 12", "<b>another</b>"]


@pytest.mark.usefixtures("different")
def test_hidden_contents_are_sizes_and_hashes_that_agree(brokers: TwoBrokers) -> None:
    report = with_windows(brokers)
    window = report.partitions[0].windows[0]
    text = json.dumps(report.to_json_object())
    assert "secret" not in text
    assert "key 6" not in text
    here, there = ({each.offset: each for each in side} for side in (window.source, window.destination))
    assert here[6].value == there[6].value
    assert here[7].value != there[7].value
    assert here[6].value is not None
    assert (here[6].value.bytes, here[6].value.text) == (8, None)
    again = with_windows(brokers).partitions[0].windows[0]
    assert again.source[2].value != window.source[2].value


def test_window_of_a_damaged_batch_names_the_damage(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2, 4)
    brokers.run()
    flip(brokers.destination.log("topic"), 1, -1)
    (window,) = with_windows(brokers).partitions[0].windows
    assert [each.problem is not None for each in window.destination if each.differs] == [True]


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
def test_page_shows_outcome_offsets_and_records_without_code(brokers: TwoBrokers) -> None:
    page = report_html(with_windows(brokers, show_values=True))
    found = Tags(page)
    text = " ".join(found.words)
    assert not {"script", "b", "iframe", "form"} & set(found.tags)
    offsets = r"topic-0: (\w+):(?: source offsets (\d+),?)?(?: destination offsets (\d+))?"
    assert re.findall(offsets, text) == [("missing", "7", ""), ("altered", "12", "11"), ("extra", "", "15")]
    assert "<b>another</b>" in text
    assert "1 of 1 partitions" in text
    assert "http" not in page.replace("http-equiv", "")


def test_page_of_an_equal_copy_says_how_it_was_compared(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    text = " ".join(Tags(report_html(verified(brokers))).words)
    assert all(each in text for each in ("3 records in 1 batches", "aligned by origin"))


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--report", "{dir}"], "not a file"), (["--show-values"], "--show-values needs --report")],
)
def test_page_that_cannot_be_written_is_one_sentence_and_exit_code_2(
    brokers: TwoBrokers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    clusters = ["--from", brokers.source.bootstrap, "--to", brokers.destination.bootstrap]
    command = ["verify", *clusters, "--topics", "topic", *(each.format(dir=tmp_path) for each in options)]
    assert main(command) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert words in err


@pytest.mark.usefixtures("different")
def test_report_is_a_file_of_the_user_alone_that_hides_contents(brokers: TwoBrokers, tmp_path: Path) -> None:
    page = tmp_path / "orders.html"
    clusters = ["--from", brokers.source.bootstrap, "--to", brokers.destination.bootstrap]
    assert main(["verify", *clusters, "--topics", "topic", "--report", str(page)]) == 1
    assert page.stat().st_mode & 0o777 == 0o600
    assert "secret" not in page.read_text()
