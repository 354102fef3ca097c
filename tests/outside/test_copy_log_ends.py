"""A copy whose log is not the one that its broker reports: commands in, records and exit codes out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from tests.integration.shared_spark import shoal
from tests.two_brokers import (
    TwoBrokers,
    answers,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

GROUP = "weekly"


def mirror_once(two: TwoBrokers, state: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the summary and the messages."""
    clusters = ["--from", two.source.bootstrap, "--to", two.destination.bootstrap]
    done = shoal(
        "mirror", *clusters, "--topics", "topic", "--group", GROUP, "--once", "--json", *options,
        state=state, timeout_s=120,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


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
        history.plain(1)
        answers(two.destination, ApiKey.FETCH, refused, times=1_000_000)

        code, summary, messages = mirror_once(two, tmp_path)

        assert code == 1, messages
        reason = summary["stopped"]["topic-0"]
        assert re.search(r"0.*5.*reports", reason)
        assert two.copied() == history.committed[:5]
