"""How long the broker keeps committed offsets."""

from __future__ import annotations

import pytest

from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from shoal_broker.coordination.groups import Groups
from tests.broker.wire import Wire


@pytest.fixture
def group(unique: str) -> str:
    return f"group-{unique}"


@pytest.mark.parametrize(("version", "retention_time_ms"), [(2, -1), (2, 3_600_000), (4, 3_600_000), (8, -1)])
def test_retention_time_of_a_commit_is_kept(
    broker: Broker, wire: Wire, group: str, topic: str, version: int, retention_time_ms: int
) -> None:
    before = now_ms()
    assert wire.commit(group, topic, 5, retention_time_ms=retention_time_ms, version=version) == 0
    expires_at = broker.groups.read(group, lambda found: found.offsets[topic, 0].expires_at_ms)
    if retention_time_ms == -1:
        assert expires_at == -1
    else:
        assert before <= expires_at - retention_time_ms <= now_ms()


# Without the wire: waits of days

WEEK_MS = 7 * 24 * 3_600_000


def test_committed_offsets_expire_after_retention() -> None:
    groups = Groups()
    now = now_ms()
    old = now - WEEK_MS - 1
    groups.commit("group", {("old", 0): CommittedOffset(1, -1, "", old)})
    groups.commit("group", {("new", 0): CommittedOffset(1, -1, "", now)})
    groups.commit("other", {("old", 0): CommittedOffset(1, -1, "", old)})
    groups.forget_old_offsets(WEEK_MS)
    assert groups.read_all(lambda found: (found.group_id, list(found.offsets))) == [("group", [("new", 0)])]


def test_offset_committed_with_a_retention_time_expires_by_it() -> None:
    groups = Groups()
    now = now_ms()
    old = now - WEEK_MS - 1
    groups.commit("group", {("over", 0): CommittedOffset(1, -1, "", now, now - 1)})
    groups.commit("group", {("kept", 0): CommittedOffset(1, -1, "", old, now + 3_600_000)})
    groups.forget_old_offsets(WEEK_MS)
    assert groups.read_all(lambda found: list(found.offsets)) == [[("kept", 0)]]
