"""Sources that answer Fetch without records: commands in, records, exit codes, counts and messages out."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rig.shoal import Shoal
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world.clusters import TwoBrokers
from tests.world.faults import answers, without_records
from tests.world.history import History
from tests.world.logs import may_compact
from tests.world.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

#: The longest wait for one fetch. The mirror waits ten times as long before it has an incident.
TIMEOUT_MS = 1_000

#: More empty answers than prove anything.
SEVERAL = 10
FOR_EVER = 1_000_000


def options_of(two: TwoBrokers, state: Path, timeout_ms: int) -> list[str]:
    config = state / "source.properties"
    config.write_text(f"request.timeout.ms={timeout_ms}\n", encoding="utf-8")
    return [*two.between, "--from-config", str(config), "--topics", "topic.*", "--group", "group"]


def mirror_once(
    two: TwoBrokers, state: Path, *options: str, timeout_ms: int = TIMEOUT_MS
) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the summary and the messages."""
    clusters = options_of(two, state, timeout_ms)
    done = shoal("mirror", *clusters, "--once", "--json", *options, state=state, timeout_s=120)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def quick_fetches_bring_nothing(broker: Broker) -> None:
    """Let the broker send records only if a fetch may wait for the whole timeout."""
    answers(
        broker, ApiKey.FETCH, without_records, FOR_EVER, to=lambda request: request.max_wait_ms < TIMEOUT_MS
    )


@contextmanager
def silent_source(directory: Path) -> Iterator[tuple[TwoBrokers, History, Callable[[], None]]]:
    """Mirror three records, and let the source send none of four more; yield what ends this, too."""
    with TwoBrokers.started() as two:
        (history,) = two.topic()
        history.plain(3)
        assert mirror_once(two, directory)[0] == 0
        history.plain(2, 2)
        faultless = two.source.apis
        answers(two.source, ApiKey.FETCH, without_records, FOR_EVER)

        def end_silence() -> None:
            two.source.apis = faultless

        yield two, history, end_silence


def test_source_that_sends_no_records_ends_once_as_an_incident_and_skips_nothing(tmp_path: Path) -> None:
    with silent_source(tmp_path) as (two, history, end_silence):
        code, summary, messages = mirror_once(two, tmp_path)

        assert code == 1, messages
        assert [(each["kind"], each["continued"]) for each in summary["incidents"]] == [("source-gap", False)]
        reason = summary["stopped"]["topic-0"]
        assert re.search(r"offset.*3", reason)
        assert re.search(r"reaches.*7", reason)
        assert "--continue-after source-retention" in reason
        assert two.copied() == history.committed[:3]

        end_silence()
        assert mirror_once(two, tmp_path)[0] == 0
        two.assert_exact(history)


def test_offsets_that_the_source_does_not_send_are_skipped_and_counted_by_option(tmp_path: Path) -> None:
    with silent_source(tmp_path) as (two, history, end_silence):
        report = tmp_path / "report.html"

        code, summary, messages = mirror_once(
            two, tmp_path, "--continue-after", "source-retention", "--report", str(report)
        )

        assert code == 4, messages
        (incident,) = summary["incidents"]
        assert (incident["kind"], incident["lost"], incident["continued"]) == ("source-gap", 4, True)
        assert summary["decisions"] == {"skipped: gap": 4}
        assert re.search(r"topic-0 continued .*\(4 ", messages)
        assert "skipped: gap" in report.read_text(encoding="utf-8")
        assert two.copied() == history.committed[:3]

        end_silence()
        history.plain(1)
        code, summary, messages = mirror_once(two, tmp_path)
        assert (code, summary["incidents"]) == (0, []), messages
        assert two.copied() == [*history.committed[:3], *history.committed[7:]]


def test_records_that_the_source_does_not_send_are_not_needed_at_a_start(tmp_path: Path) -> None:
    """The position leads to those that were written behind it: no record of the source is read."""
    with TwoBrokers.started() as two:
        two = two.with_settings(group="group")
        (history,) = two.topic()
        history.plain(3)
        assert mirror_once(two, tmp_path)[0] == 0
        position = two.position()
        history.plain(2, 2)
        assert mirror_once(two, tmp_path)[0] == 0
        two.commit(position)  # as after a crash before the commit
        answers(two.source, ApiKey.FETCH, without_records, FOR_EVER)

        code, summary, messages = mirror_once(two, tmp_path)

        assert (code, summary["incidents"]) == (0, []), messages
        two.assert_exact(history)


@pytest.mark.parametrize("may_ask", [True, False])
def test_gap_at_the_end_of_a_compacted_log_is_counted(tmp_path: Path, may_ask: bool) -> None:
    def refuse(response: Any) -> Any:
        for each in response.results:
            each.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    with TwoBrokers.started() as two:
        (history,) = two.topic()
        may_compact(two.source)
        history.plain(3).gap_at_the_end(4)
        if not may_ask:
            answers(two.source, ApiKey.DESCRIBE_CONFIGS, refuse, FOR_EVER)

        code, summary, messages = mirror_once(two, tmp_path)

        assert (code, summary["incidents"], summary["up_to_date"]) == (0, [], True), messages
        assert summary["decisions"] == {"copied": 1, "skipped: gap": 4}
        history.plain(2)
        assert mirror_once(two, tmp_path)[0] == 0
        two.assert_exact(history)


@pytest.mark.parametrize("options", [[], ["--continue-after", "source-retention"]])
@pytest.mark.parametrize("is_compacted", [True, False])
def test_source_that_needs_longer_for_its_records_is_not_skipped(
    tmp_path: Path, options: list[str], is_compacted: bool
) -> None:
    with TwoBrokers.started() as two:
        (history,) = two.topic()
        if is_compacted:
            may_compact(two.source)
        history.plain(2, 2)
        quick_fetches_bring_nothing(two.source)

        code, summary, messages = mirror_once(two, tmp_path, *options)

        assert code == 1, messages
        assert [(each["kind"], each["continued"]) for each in summary["incidents"]] == [("source-gap", False)]
        assert "longer wait" in summary["stopped"]["topic-0"]
        assert summary["decisions"] == {}


def test_running_mirror_waits_at_a_gap_until_the_next_record(tmp_path: Path) -> None:
    with TwoBrokers.started() as two:
        (history,) = two.topic()
        history.plain(3).gap_at_the_end(4)
        with Shoal("mirror", "--json", *options_of(two, tmp_path, TIMEOUT_MS), state=tmp_path) as mirror:
            said = mirror.wait_for(lambda line: "is not compact" in json.dumps(line.get("waiting", "")))
            assert "offset 7" in json.dumps(said["waiting"])
            history.plain(2)
            wait_until(lambda: two.copied() == history.committed, 60)
            mirror.send_signal(signal.SIGTERM)
            summary = mirror.wait()
        assert mirror.exit_code == 0, mirror.stderr
        assert summary["decisions"] == {"copied": 2}
