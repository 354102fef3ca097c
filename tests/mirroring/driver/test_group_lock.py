"""One mirror per group: holding it, taking it over, and losing it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError, Disconnected, GroupHeld
from shoal.mirroring.driver import group_lock as lock
from shoal.mirroring.driver.group_lock import GroupLock, MirrorIdentity
from shoal.protocol.apis import ApiKey
from shoal.state_directory import state_dir
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world.clocks import Time
from tests.world.clusters import config_of
from tests.world.waiting import wait_until

OFTEN = Timing(heartbeat_interval_s=0.02)


@pytest.fixture
def clock() -> Time:
    """The time of the broker, at which sessions end."""
    return Time()


@pytest.fixture
def broker(clock: Time) -> Iterator[Broker]:
    with Broker(clock=clock) as running:
        yield running


class Mirror:
    """A lock, and its leases."""

    def __init__(self, broker: Broker, name: str = "first", group: str = "group") -> None:
        self.renewed: list[tuple[MemberId, float]] = []
        self.lock = GroupLock(
            config_of("source", broker), group, name, lambda *renewed: self.renewed.append(renewed), OFTEN
        )

    def __enter__(self) -> Mirror:
        self.lock.acquire([], patience_s=20.0)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.lock.release()

    @property
    def membership(self) -> MemberId:
        return self.renewed[-1][0]


def test_heartbeats_renew_a_lease_shorter_than_the_session(broker: Broker) -> None:
    with Mirror(broker) as mirror:
        wait_until(lambda: len(mirror.renewed) > 3)
        assert len({membership for membership, _ in mirror.renewed}) == 1
        assert all(0 < lease_s <= lock.LEASE_S for _, lease_s in mirror.renewed)
        assert lock.LEASE_S * 1000 < lock.SESSION_TIMEOUT_MS
        assert mirror.lock.failure is None


def test_mirror_subscribes_to_later_topics(broker: Broker) -> None:
    """Else their committed offsets would expire, although the group is alive."""
    partition = TopicPartition("topic", 0)
    with Mirror(broker) as mirror:
        before = mirror.membership
        mirror.lock.extend([partition])
        wait_until(lambda: mirror.membership != before)
        assert mirror.lock.failure is None
        (member,) = broker.groups.read("group", lambda group: list(group.members.values()))
        (subscription,) = member.join.protocols.values()
        assert b"topic" in subscription
        mirror.lock.extend([TopicPartition("topic", 1)])  # no news
        renewed, membership = len(mirror.renewed), mirror.membership
        wait_until(lambda: len(mirror.renewed) > renewed + 3)
        assert mirror.membership == membership


def test_second_mirror_is_refused_with_the_holder_s_name(broker: Broker) -> None:
    with Mirror(broker) as first:
        second = Mirror(broker, "second")
        with pytest.raises(GroupHeld, match=rf"{os.getpid()}.*UTC") as refused:
            second.lock.acquire([], patience_s=5.0)
        second.lock.release()
        assert refused.value.group == "group"
        beats = len(first.renewed)
        wait_until(lambda: len(first.renewed) > beats + 1)
        assert first.lock.failure is None


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_member_rejoins_after_a_rebalance(broker: Broker, code: ErrorCode) -> None:
    with Mirror(broker) as mirror:
        fault = broker.faults.add(ApiKey.HEARTBEAT, error=code)
        assert broker.faults.wait_for(fault)
        beats = len(mirror.renewed)
        wait_until(lambda: len(mirror.renewed) > beats + 2)
        assert mirror.lock.failure is None


def test_group_taken_by_another_after_the_session_is_lost(broker: Broker, clock: Time) -> None:
    with Mirror(broker) as mirror:
        hold = broker.faults.add(ApiKey.HEARTBEAT, drop="before", times=None)
        assert broker.faults.wait_for(hold)  # so that the one before is over
        clock.now += lock.SESSION_TIMEOUT_MS / 1000
        broker.groups.expire()
        with Mirror(broker, "second") as second:
            broker.faults.remove(hold)
            wait_until(lambda: mirror.lock.failure is not None)
            assert "is held by" in str(mirror.lock.failure)
            renewed = len(mirror.renewed)
            beats = len(second.renewed)
            wait_until(lambda: len(second.renewed) > beats + 2)
            assert len(mirror.renewed) == renewed


def test_silent_brokers_are_given_up_after_the_patience(broker: Broker) -> None:
    mirror = Mirror(broker)
    broker.stop()
    with pytest.raises(Disconnected, match=r"source.*cluster"):
        mirror.lock.acquire([], patience_s=0.2)
    mirror.lock.release()


# The checkpoint directory


def test_mirror_keeps_its_name(tmp_path: Path) -> None:
    first = MirrorIdentity(tmp_path / "new" / "checkpoint")
    name = first.name
    assert len(name) == 32
    first.release()
    again = MirrorIdentity(tmp_path / "new" / "checkpoint")
    assert again.name == name
    again.release()
    other = MirrorIdentity(tmp_path / "other")
    assert other.name != name
    other.release()


def test_two_mirrors_cannot_share_a_directory(tmp_path: Path) -> None:
    identity = MirrorIdentity(tmp_path)
    code = (
        "import pathlib, sys, shoal.mirroring.driver.group_lock as lock; "
        "lock.MirrorIdentity(pathlib.Path(sys.argv[1]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
    )
    in_use = re.escape(f"'{tmp_path}': another shoal")
    assert re.search(in_use, other.stderr)
    with pytest.raises(ConfigError, match=in_use):
        MirrorIdentity(tmp_path)
    identity.release()
    MirrorIdentity(tmp_path).release()


def mode_of(directory: Path) -> int:
    return stat.S_IMODE(directory.stat().st_mode)


def test_created_parents_of_a_state_directory_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        MirrorIdentity(tmp_path / "shoal" / "mirrors" / "group", is_given=False).release()
    finally:
        os.umask(before)
    made = ("shoal", "shoal/mirrors", "shoal/mirrors/group")
    assert [mode_of(tmp_path / each) for each in made] == [0o700] * 3


def test_readable_default_state_directories_are_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    checkpoint = state_dir() / "mirrors" / "group"
    checkpoint.mkdir(parents=True)
    for each in (tmp_path / "state", state_dir(), checkpoint.parent, checkpoint):
        each.chmod(0o755)
    MirrorIdentity(checkpoint, is_given=False).release()
    assert [mode_of(each) for each in (state_dir(), checkpoint.parent, checkpoint)] == [0o700] * 3
    # That one is not shoal's.
    assert mode_of(tmp_path / "state") == 0o755


def test_mirror_id_that_is_a_link_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "mirror-id").symlink_to(other)
    with pytest.raises(ConfigError, match=r"symbolic.*Remove"):
        MirrorIdentity(checkpoint)
    assert not other.exists()


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o2777])
def test_readable_given_directory_is_kept_with_a_warning(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    identity = MirrorIdentity(tmp_path)
    assert mode_of(tmp_path) == mode
    assert identity.warning is not None
    assert all(each in identity.warning for each in (f"'{tmp_path}'", f"{mode:04o}", f"chmod 700 {tmp_path}"))
    identity.release()


def test_unusable_directory_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}/file")):
        MirrorIdentity(tmp_path / "file")
    with pytest.raises(ConfigError) as raised:
        MirrorIdentity(tmp_path / "file" / "mirror", is_given=False)
    assert all(each in str(raised.value) for each in (f"'{tmp_path}/file/mirror'", "XDG_STATE_HOME"))
    (tmp_path / "mirror-id").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="read"):
        MirrorIdentity(tmp_path)
