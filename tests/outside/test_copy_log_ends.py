"""A copy whose log begins or ends oddly, and no position: commands in, records and exit codes out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from tests import batches
from tests.integration.shared_spark import close_shared_spark, shoal
from tests.two_brokers import (
    NOW_MS,
    History,
    TwoBrokers,
    answers,
    batches_of,
    compacted,
    content_of,
    lose_tail,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP = "weekly"


@pytest.fixture(scope="module", autouse=True)
def shared_spark() -> Iterator[None]:
    yield
    close_shared_spark()


def mirror_once(two: TwoBrokers, state: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the summary and the messages."""
    clusters = ["--from", two.source.bootstrap, "--to", two.destination.bootstrap]
    done = shoal(
        "mirror", *clusters, "--topics", "topic", "--group", GROUP, "--once", "--json", *options,
        state=state, timeout_s=120,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def fill(history: History) -> None:
    """Store batches of four records, of which the first always has the same key."""
    for base in range(0, 24, 4):
        records = [
            batches.Record(
                key=b"same" if delta == 0 else b"key %d" % (base + delta),
                value=b"value %d" % (base + delta),
                offset_delta=delta,
                timestamp_delta=delta,
            )
            for delta in range(4)
        ]
        history.store(
            batches.raw_batch(
                batches.payload(records),
                base_offset=base,
                last_offset_delta=3,
                records_count=4,
                base_timestamp=NOW_MS + base,
                max_timestamp=NOW_MS + base + 3,
            ),
            shown=True,
        )


def compact_the_copy(two: TwoBrokers) -> None:
    """Let the destination's cleaner keep the newest record of each key."""
    before = batches_of(two.destination.log("topic"))
    after = lose_tail(two.destination, "topic", 0)
    for batch in before:
        after.store(memoryview(compacted(batch, lambda offset: offset % 4 > 0 or offset == 20)))


@pytest.mark.parametrize("log_start", [0, 2])
def test_compacted_copy_whose_log_begins_inside_a_batch_continues_without_a_position(
    tmp_path: Path, log_start: int
) -> None:
    with TwoBrokers.started() as two:
        (history,) = two.topic("topic", 1, cleanup_policy="compact,delete")
        fill(history)
        assert mirror_once(two, tmp_path)[0] == 0
        compact_the_copy(two)
        two.destination.log("topic").delete_records(log_start)
        two.source.groups.delete(GROUP)
        history.plain(2)

        code, summary, messages = mirror_once(two, tmp_path)

        assert code == 0, messages
        assert summary["records"] == 2
        copy = two.destination.log("topic")
        assert copy.log_end_offset == 26
        assert content_of(copy, is_compacted=True)[-2:] == history.committed[-2:]


def test_destination_that_refuses_offsets_of_its_log_stops_the_partition(tmp_path: Path) -> None:
    def refused(response: FetchResponse) -> FetchResponse:
        parts = [
            replace(each, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, record_set=memoryview(b""))
            for each in response.partitions
        ]
        return replace(response, partitions=parts)

    with TwoBrokers.started() as two:
        (history,) = two.topic("topic", 1)
        history.plain(3, 2)
        assert mirror_once(two, tmp_path)[0] == 0
        two.source.groups.delete(GROUP)
        history.plain(1)
        answers(two.destination, ApiKey.FETCH, refused, times=1_000_000)

        code, summary, messages = mirror_once(two, tmp_path)

        assert code == 1, messages
        reason = summary["stopped"]["topic-0"]
        assert re.search(r"0.*5.*reports", reason)
        assert two.copied() == history.committed[:5]
