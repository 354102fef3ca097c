"""The range of a mirror, as users write it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import Until, parse_duration

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("now", Until()),
        ("NOW", Until()),
        ("0", Until(offset=0)),
        (5000, Until(offset=5000)),
        ("99999999999", Until(offset=99_999_999_999)),
        ("offset:99999999999999", Until(offset=99_999_999_999_999)),
        ("100000000000", Until(100_000_000_000)),
        (str(AT_MS), Until(AT_MS)),
        ("2026-01-31T12:00:00Z", Until(AT_MS)),
        ("2026-01-31T12:00:00", Until(AT_MS)),
        (AT, Until(AT_MS)),
    ],
)
def test_until_is_now_a_time_or_an_offset(text: Any, until: Until) -> None:
    assert Until.parse("--until", text) == until
    assert Until.parse("--until", str(until)) == until


@pytest.mark.parametrize("text", ["", "latest", "-1", "offset:", "offset:-3", "2026-31-01", "1e9", "9" * 30])
def test_text_that_is_no_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--until"):
        Until.parse("--until", text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1_800), ("24H", 86_400), ("7d", 604_800)])
def test_duration_has_a_unit(text: str, seconds: int) -> None:
    duration = parse_duration("--last", text)
    assert duration == timedelta(seconds=seconds)
    assert parse_duration("--last", duration) is duration


@pytest.mark.parametrize("text", ["", "24", "0h", "-1h", "1w", "1.5h", "9999999d", "9" * 30 + "s"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--last"):
        parse_duration("--last", text)


def options(**given: Any) -> MirrorOptions:
    clusters: dict[str, Any] = {"source": "127.0.0.1:1", "destination": "127.0.0.1:2"}
    return MirrorOptions(**clusters, topics=TopicSelection("orders"), **given)


def test_until_ends_the_mirror_as_once_does() -> None:
    made = options(until="now")
    assert (made.once, made.until, options().once) == (True, Until(), False)


def test_last_begins_so_long_ago_and_ends_now() -> None:
    before_ms = int(time.time() * 1000)
    made = options(last="1h")
    assert (made.once, made.until) == (True, Until())
    assert 0 <= made.start.timestamp_ms - (before_ms - 3_600_000) < 60_000


@pytest.mark.parametrize(
    "given",
    [
        {"last": "1h", "until": "now"},
        {"last": "1h", "start": AT},
        {"start": AT, "until": AT},
        {"start": "2026-02-01", "until": "2026-01-31"},
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--last|--until"):
        options(**given)


@pytest.mark.parametrize(
    ("until", "is_known"),
    [
        (Until(), True),
        (Until(AT_MS), True),
        (Until(AT_MS + 1), False),
        (Until(offset=7), False),
        (Until(offset=5), True),
    ],
)
def test_end_is_known_if_the_logs_have_everything_before_it(until: Until, is_known: bool) -> None:
    assert until.is_known(AT_MS / 1000, [5, 9]) is is_known


def test_earliest_and_latest_are_before_each_end() -> None:
    for each in ("earliest", "latest"):
        assert options(start=each, until=AT).until == Until(AT_MS)
