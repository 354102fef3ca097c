"""``shoal groups`` as a user runs it, between embedded brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from shoal.cli import main
from shoal.client.committed_offsets import Committed
from shoal.error_codes import ErrorCode
from shoal.mirroring.sync.one_round import translate_offsets
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.snapshots import Texts
from tests.world.batches import LOG_APPEND_TIME
from tests.world.clusters import TwoBrokers
from tests.world.faults import answers_without_later_commits
from tests.world.history import COMMIT
from tests.world.offsets import commit, committed

ORDERS = TopicPartition("orders", 0)
GROUP = "shoal.source.destination"


@pytest.fixture
def two() -> Iterator[TwoBrokers]:
    """A mirror of 8 records, of which a transaction has two."""
    with TwoBrokers.started() as started:
        two = started.with_settings(group=GROUP)
        two.topic("orders")[0].plain(3).transaction(2, ends=COMMIT).plain(3)
        two.run(two.ranges("orders"))
        yield two


def command(two: TwoBrokers, *more: str) -> list[str]:
    return ["groups", *two.between, "--topics", "orders", "--groups", ".*", *more]


def test_groups_prints_a_table_and_writes_nothing(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(two.source, "app", 7, "orders")
    assert main(command(two)) == 0
    out, err = capsys.readouterr()
    texts(out.splitlines())
    assert err == ""
    assert committed(two.destination, "app", "orders") is None


def test_groups_with_apply_commits(two: TwoBrokers, capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    commit(two.source, "app", 7, "orders", metadata="mine")
    assert main(command(two, "--apply", "--prove")) == 0
    assert committed(two.destination, "app", "orders") == Committed(
        6, "translated-by-shoal/1 source 7 6 exact mine"
    )
    offsets = two.destination.groups.read("app", lambda group: list(group.offsets.values()))
    assert [each.expires_at_ms for each in offsets] == [-1]  # the broker's retention holds for consumers
    texts(capsys.readouterr().out)
    assert main(command(two, "--apply")) == 0
    assert "1 unchanged" in capsys.readouterr().out


def test_translation_reports_each_group_before_it_is_proved_or_committed(two: TwoBrokers) -> None:
    for group in ("app", "bill"):
        commit(two.source, group, 7, "orders")
    mirror = two.options("orders", groups=".*")
    told: list[tuple[str, int, int]] = []
    translate_offsets(
        mirror, apply=True, prove=True, on_progress=lambda work, done, of: told.append((work, done, of))
    )
    assert told == [("proving", 0, 2), ("proving", 1, 2), ("committing", 0, 2), ("committing", 1, 2)]


def test_groups_with_apply_after_a_coordinator_moved_moves_no_offset_back(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(two.source, "app", 3, "orders")
    commit(two.destination, "app", 5, "orders", metadata="theirs")
    for broker in (two.source, two.destination):
        answers_without_later_commits(broker)
    assert main(command(two, "--apply")) == 0
    assert "1 further there" in capsys.readouterr().out
    assert committed(two.destination, "app", "orders") == Committed(5, "theirs")


def test_groups_as_json_is_one_object(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    commit(two.source, "app", 7, "orders")
    assert main(command(two, "--json", "--prove")) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found.pop("elapsed_s") >= 0
    detail = found["groups"][0]["offsets"][0]["proof"].pop("detail")
    assert all(each in detail for each in ("7", "6"))
    assert found == {
        "type": "groups",
        "direction": "forward",
        "groups": [
            {
                "name": "app",
                "type": "classic",
                "state": "Empty",
                "problem": "",
                "has_failed": False,
                "may_pass": False,
                "is_left_out": False,
                "offsets": [
                    {
                        "group": "app",
                        "partition": "orders-0",
                        "counterpart": "orders-0",
                        "committed": 7,
                        "lag": 2,
                        "translated": 6,
                        "exactness": "exact",
                        "present": None,
                        "action": "to be committed",
                        "detail": "",
                        "proof": {"is_same": True},
                        "begins_late": False,
                        "may_pass": False,
                        "mark": [two.source.cluster_id, 7, 6, "exact", ""],
                    }
                ],
            }
        ],
        "counts": {"to be committed": 1, "exact": 1},
        "warnings": [],
        "may_list_more": False,
        "applied": False,
        "exit_code": 0,
    }


def test_groups_in_reverse_reads_the_destination(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    commit(two.destination, "app", 6, "orders")
    assert main(command(two, "--reverse", "--prove")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[1].strip() == "destination partition"
    assert "at the source" in lines[0]
    assert "same record" in lines[1]


def test_groups_with_a_refused_commit_exits_1(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(two.source, "app", 7, "orders")
    two.destination.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    assert main(command(two, "--apply")) == 1
    texts(capsys.readouterr().out)


def test_groups_with_a_group_that_cannot_be_read_exits_1(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    commit(two.source, "app", 7, "orders")
    two.source.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert main(command(two, "--apply")) == 1
    texts(capsys.readouterr().err)
    assert main(command(two, "--apply")) == 0
    commit(two.source, "other", 7, "orders")
    two.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert main(command(two, "--apply")) == 1
    texts(capsys.readouterr().err)


@pytest.mark.parametrize("side", ["source", "destination"])
def test_groups_of_a_coordinator_that_still_loads_are_listed_again(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], side: str
) -> None:
    commit(two.source, "app", 7, "orders")
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fault = getattr(two, side).faults.add(ApiKey.LIST_GROUPS, error=loading)
    assert main(command(two, "--apply")) == 0
    assert fault.hits == 1
    assert "may be missing" not in capsys.readouterr().err


def test_groups_with_another_record_at_the_destination_exits_1(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(two.source, "app", 1, "orders")
    log = two.destination.log("orders")
    log.delete_records(2)
    assert main(command(two, "--prove")) == 1
    assert "DIFFERENT" in capsys.readouterr().out


@pytest.mark.parametrize("keeps", [False, True])
def test_groups_proves_an_offset_with_create_times_and_with_append_times(
    capsys: pytest.CaptureFixture[str], keeps: bool
) -> None:
    with TwoBrokers.started() as started:
        two = started.with_settings(group=GROUP, keep_append_time=keeps)
        two.topic("orders")[0].plain(3, flags=LOG_APPEND_TIME)
        two.run(two.ranges("orders"))
        commit(two.source, "app", 1, "orders")
        assert main(command(two, "--prove")) == 0
        assert "same record" in capsys.readouterr().out


def test_groups_of_no_topic_exits_2(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command(two)
    arguments[arguments.index("orders")] = "(invoices.*)"
    assert main(arguments) == 2
    assert "matches no topic" in capsys.readouterr().err


def test_groups_with_an_invalid_expression_exits_2(
    two: TwoBrokers, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main([*command(two), "--groups", "*"]) == 2
    texts(capsys.readouterr().err)


def test_groups_that_match_nothing_says_so(two: TwoBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(two)) == 0
    out, err = capsys.readouterr()
    assert out == "groups: 0, offsets: 0\n"
    assert all(each in err for each in ("warning", "at the source", "'.*'"))
