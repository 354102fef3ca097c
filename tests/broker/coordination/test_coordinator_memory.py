"""The memory of groups, transactional ids and connections has bounds under any clients."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal_broker import Broker
from shoal_broker.api_error import ApiError
from shoal_broker.clock import now_ms
from shoal_broker.config import BrokerConfig
from shoal_broker.coordination import transactions as transactions_module
from shoal_broker.coordination.group import CommittedOffset
from shoal_broker.coordination.groups import Groups
from shoal_broker.coordination.joining import Join, MemberIdRequired, Sync
from shoal_broker.coordination.producer_ids import ProducerIds
from shoal_broker.coordination.transactions import Transactions, TransactionState
from shoal_broker.serving.connection_quotas import ConnectionQuotas
from shoal_broker.storage.journal import Journal
from shoal_broker.topics import Topics
from tests.broker.wire import Wire

MEGABYTE = 1_000_000


@contextmanager
def refused_with(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as refused:
        yield
    assert refused.value.code is code


def groups_of(most_bytes: int) -> Groups:
    return Groups(BrokerConfig({"shoal.groups.max.bytes": str(most_bytes)}))


def a_join(group: str, metadata: bytes = b"", **fields: Any) -> Join:
    given: dict[str, Any] = {
        "group_id": group,
        "member_id": "",
        "instance_id": None,
        "protocol_type": "consumer",
        "protocols": {"range": metadata},
        "session_timeout_ms": 1_800_000,
        "rebalance_timeout_ms": 1_800_000,
        "client_id": "client",
        "client_host": "127.0.0.1",
        "version": 1,
    }
    return Join(**{**given, **fields})


def metadata_bytes(groups: Groups) -> int:
    """Return the bytes of metadata that members of all groups have."""
    found = groups.read_all(
        lambda group: sum(
            len(each) for member in group.members.values() for each in member.protocols.values()
        )
    )
    return sum(found)


# Groups


def test_default_bound_of_all_groups_is_64_mib() -> None:
    groups = Groups(BrokerConfig({}))
    metadata = bytes(7_500_000)
    for number in range(8):
        groups.join(a_join(f"g{number}", metadata))
    for number in range(8, 40):
        with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
            groups.join(a_join(f"g{number}", metadata))
    assert metadata_bytes(groups) == 8 * len(metadata)
    # A refused member leaves nothing, and a small one has room.
    assert len(groups.read_all(lambda group: group.group_id)) == 8
    groups.join(a_join("small", b"m"))


def test_memory_of_a_refused_member_is_freed_at_once() -> None:
    groups = groups_of(MEGABYTE)

    def join() -> None:
        with suppress(ApiError):
            groups.join(a_join("group", bytes(5 * MEGABYTE)))

    gc.disable()
    try:
        assert measured_bytes(join) < MEGABYTE
    finally:
        gc.enable()


def test_groups_without_bound_keep_all_members() -> None:
    groups = groups_of(-1)
    for number in range(3):
        groups.join(a_join(f"g{number}", bytes(40 * MEGABYTE)))
        groups.expire()
    assert metadata_bytes(groups) == 120 * MEGABYTE


def test_leaving_member_frees_its_memory() -> None:
    groups = groups_of(MEGABYTE)
    joined = groups.join(a_join("first", bytes(900_000)))
    with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
        groups.join(a_join("second", bytes(900_000)))
    groups.leave("first", joined.member_id, None)
    groups.expire()
    groups.join(a_join("second", bytes(900_000)))


def test_member_that_rejoins_counts_once_and_a_refused_rejoin_changes_nothing() -> None:
    groups = groups_of(MEGABYTE)
    member_id = groups.join(a_join("group", bytes(400_000))).member_id
    for number in range(5):
        groups.join(a_join("group", bytes([number]) * 600_000, member_id=member_id))
    with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
        groups.join(a_join("group", bytes(1_100_000), member_id=member_id))
    assert metadata_bytes(groups) == 600_000


def test_replaced_static_member_counts_once() -> None:
    groups = groups_of(MEGABYTE)
    for number in range(5):
        groups.join(a_join("group", bytes([number]) * 600_000, instance_id="one"))
    with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
        groups.join(a_join("group", bytes(1_100_000), instance_id="one"))
    assert metadata_bytes(groups) == 600_000


def test_unused_member_ids_count() -> None:
    groups = groups_of(MEGABYTE)
    with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
        for number in range(100):
            with pytest.raises(MemberIdRequired):
                groups.join(a_join(f"g{number}", client_id="c" * 30_000, version=5))


def test_assignments_count() -> None:
    groups = groups_of(MEGABYTE)
    joined = groups.join(a_join("group"))

    def sync(assignment: bytes) -> bytes:
        given = {joined.member_id: assignment}
        return groups.sync(
            Sync("group", joined.member_id, None, joined.generation, None, None, given)
        ).assignment

    with refused_with(ErrorCode.GROUP_MAX_SIZE_REACHED):
        sync(bytes(2 * MEGABYTE))
    assert sync(b"mine") == b"mine"


@pytest.mark.parametrize("producer_id", [None, 5])
def test_committed_offsets_count_and_overwriting_needs_no_room(producer_id: int | None) -> None:
    groups = groups_of(MEGABYTE)
    position = CommittedOffset(1, -1, "m" * 4096, now_ms())
    kept = 0
    with refused_with(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        for kept in range(1000):
            groups.commit("group", {("topic", kept): position}, producer_id)
    assert 150 < kept < 250
    groups.commit("group", {("topic", 0): position._replace(offset=2)}, producer_id)
    with refused_with(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        groups.commit("other", {("topic", number): position for number in (0, 1, 2)}, producer_id)
    assert groups.read_all(lambda group: group.group_id) == ["group"]
    groups.forget_topic("topic")
    groups.commit("other", {("topic", 0): position}, producer_id)


def test_committed_offsets_of_a_journal_count(tmp_path: Path) -> None:
    config = BrokerConfig({"shoal.groups.max.bytes": str(MEGABYTE)})
    position = CommittedOffset(1, -1, "m" * 4096, now_ms())
    Groups(config, Journal(tmp_path)).commit("group", {("topic", number): position for number in range(150)})
    again = Groups(config, Journal(tmp_path))
    with refused_with(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        again.commit("other", {("topic", number): position for number in range(150)})


def test_full_memory_is_returned_as_error_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"shoal.groups.max.bytes": "100000"}
    with Broker(config=config) as broker, Wire(broker.bootstrap) as wire:
        for number in range(3):
            answer = wire.join(f"g{number}", version=3, protocols={"range": bytes(200_000)})
            assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert wire.join("small", version=3).error_code == ErrorCode.NONE
    assert caplog.text.count("shoal.groups.max.bytes is 100000") == 1


def measured_bytes(make: Callable[[], object]) -> int:
    """Return how much memory something keeps that is made."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        after, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return after - before


def test_counted_bytes_of_members_and_offsets_match_their_memory() -> None:
    groups = Groups(BrokerConfig({}))

    def fill() -> None:
        for number in range(2000):
            name = f"group {number}"
            groups.join(a_join(name, bytes(50), client_id=f"client {number}"))
            groups.commit(
                name, {(f"topic {number}", number): CommittedOffset(number, -1, f"m{number}", now_ms())}
            )

    taken_bytes = measured_bytes(fill)
    assert 0.6 < taken_bytes / groups.kept_bytes < 1.1


# Transactional ids


def transactions_of(most_bytes: int, journal: Journal | None = None) -> Transactions:
    config = BrokerConfig({"shoal.transactional.ids.max.bytes": str(most_bytes)})
    return Transactions(config, Topics(config), Groups(config), ProducerIds(), journal)


def known_ids(transactions: Transactions) -> list[str]:
    return transactions.read_all(lambda each: each.transactional_id)


def test_transactional_ids_beyond_the_bound_expire_least_recently_used_first() -> None:
    transactions = transactions_of(100_000)
    first = transactions.init("first", 1000, -1, -1)
    used = transactions.init("used", 1000, -1, -1)
    for number in range(1000):
        transactions.init(f"id {number}", 1000, -1, -1)
        used = transactions.init("used", 1000, -1, -1)
    assert 50 < len(known_ids(transactions)) < 200
    transactions.add_offsets("used", *used, "group")
    with refused_with(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        transactions.add_offsets("first", *first, "group")


def test_open_transaction_is_not_expired_for_another() -> None:
    transactions = transactions_of(10_000)
    with refused_with(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        for number in range(100):
            identity = transactions.init(f"id {number}", 1000, -1, -1)
            transactions.add_offsets(f"id {number}", *identity, "group")
    opened = len(known_ids(transactions)) - 1
    assert opened > 5
    transactions.end("id 0", *(1000, 0), committed=True)
    transactions.init("another", 1000, -1, -1)
    assert "id 0" not in known_ids(transactions)


@pytest.mark.parametrize("what", ["groups", "partitions"])
def test_partitions_of_an_open_transaction_count(what: str) -> None:
    transactions = transactions_of(100_000)
    identity = transactions.init("id", 1000, -1, -1)
    number = 0
    with refused_with(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        for number in range(10_000):
            if what == "groups":
                transactions.add_offsets("id", *identity, f"group {number}")
            else:
                transactions.add_partitions("id", *identity, [("topic", number)])
    assert 100 < number < 2000
    transactions.end("id", *identity, committed=False)
    transactions.add_offsets("id", *identity, "group")


def test_transactional_ids_unused_for_a_week_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = transactions_of(-1, Journal(tmp_path))
    transactions.init("old", 1000, -1, -1)
    identity = transactions.init("open", 1000, -1, -1)
    transactions.add_offsets("open", *identity, "group")
    week_ms = 7 * 24 * 3_600_000
    later_ms = now_ms() + week_ms + 1000
    transactions.forget_unused()
    assert known_ids(transactions) == ["old", "open"]
    monkeypatch.setattr(transactions_module, "now_ms", lambda: later_ms)
    transactions.init("new", 1000, -1, -1)
    transactions.forget_unused()
    assert known_ids(transactions) == ["open", "new"]
    assert known_ids(transactions_of(-1, Journal(tmp_path))) == ["open", "new"]


def test_transactional_id_of_an_older_journal_ages_from_the_start(tmp_path: Path) -> None:
    fact = {
        "producer_id": 1000,
        "epoch": 0,
        "previous_epoch": -1,
        "timeout_s": 1.0,
        "state": TransactionState.EMPTY.value,
        "partitions": [],
        "groups": [],
        "started_at_ms": -1,
    }
    Journal(tmp_path).put("transaction", "id", value=fact)
    transactions = transactions_of(-1, Journal(tmp_path))
    transactions.forget_unused()
    assert known_ids(transactions) == ["id"]


def test_counted_bytes_of_transactional_ids_match_their_memory() -> None:
    transactions = transactions_of(-1)

    def fill() -> None:
        for number in range(2000):
            name = f"id {number}"
            identity = transactions.init(name, 1000, -1, -1)
            transactions.add_partitions(name, *identity, [(f"topic {number}", at) for at in range(300, 303)])
            transactions.add_offsets(name, *identity, f"group {number}")

    taken_bytes = measured_bytes(fill)
    assert 0.6 < taken_bytes / transactions.kept_bytes < 1.1


# Connections


def test_default_limit_serves_500_connections() -> None:
    quotas = ConnectionQuotas(BrokerConfig({}))
    served = [quotas.enter("127.0.0.1") for _ in range(501)]
    assert served == [True] * 500 + [False]
