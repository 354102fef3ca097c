"""The groups of a running mirror follow in a thread of their own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model import offset_map
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.shown import exposition
from shoal.mirroring.sync import follower
from shoal.mirroring.sync.follower import GroupFollower, pause_s
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from tests.mirroring.sync.conftest import Groups
from tests.mirroring.sync.test_groups import mixed
from tests.world.waiting import wait_until


def has_committed(groups: Groups, offset: int) -> bool:
    committed = groups.committed("destination", "g")
    return committed is not None and committed.offset == offset


#: A round begins so soon after the one before.
OFTEN = Timing(shortest_refresh_s=0.05, groups_interval_s=0.05, last_round_patience_s=0.5)


class Following:
    """A follower, and what it reports."""

    def __init__(self, groups: Groups, timing: Timing = OFTEN, **options: Any) -> None:
        self.metrics = Metrics()
        self.warnings: list[str] = []
        given = groups.two.options("topic", **{"groups": ".*", **options})
        selection = given.group_selection
        assert selection is not None
        self.follower = GroupFollower(
            replace(given, timing=timing),
            selection,
            groups.two.settings.group,
            lambda: groups.topics,
            self.metrics,
            self.warnings.append,
        )
        self.follower.begin()

    def round_count(self) -> Callable[[], bool]:
        """Return a function that is true once a round has ended after this call."""
        before = self.metrics.groups
        return lambda: self.metrics.groups is not before


@pytest.fixture
def following(groups: Groups) -> Iterator[Following]:
    mixed(groups)
    started = Following(groups)
    yield started
    started.follower.close()


def test_follower_moves_offsets_while_the_mirror_runs(groups: Groups, following: Following) -> None:
    for offset in (4, 2):
        groups.commit("source", "g", offset)
        wait_until(partial(has_committed, groups, offset))
    assert following.warnings == []


@pytest.mark.parametrize(
    ("round_cpu_s", "expected_s"),
    [
        pytest.param(0.0, 10.0, id="free"),
        pytest.param(0.3, 10.0, id="just within the interval"),
        pytest.param(0.6, 20.0, id="3 % of a core"),
        pytest.param(60.0, 30.0, id="no longer than three intervals"),
    ],
)
def test_round_that_costs_cpu_delays_the_next(round_cpu_s: float, expected_s: float) -> None:
    assert pause_s(10.0, round_cpu_s) == pytest.approx(expected_s)


def test_follower_translates_once_more_at_the_end(groups: Groups) -> None:
    mixed(groups)
    following = Following(groups, once=True)
    groups.commit("source", "g", 4)
    time_before = time.time()
    following.follower.finish()
    assert groups.committed("destination", "g") is not None
    status = following.metrics.groups
    assert status is not None
    assert status.at is not None
    assert status.at >= time_before
    assert (status.groups, status.offsets["exact"], status.actions) == (1, 1, {"committed": 1})


def test_follower_that_is_closed_translates_nothing_more(groups: Groups) -> None:
    mixed(groups)
    following = Following(groups, once=True)
    groups.commit("source", "g", 4)
    following.follower.close()
    following.follower.finish()
    assert groups.committed("destination", "g") is None


def test_follower_survives_a_failed_round_and_names_it(groups: Groups, following: Following) -> None:
    fault = groups.two.source.faults.add(
        ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None
    )
    wait_until(lambda: bool(following.warnings))
    assert "GROUP_AUTHORIZATION_FAILED" in following.warnings[0]
    assert following.metrics.groups is not None
    assert following.metrics.groups.failure
    groups.two.source.faults.remove(fault)
    groups.commit("source", "g", 4)
    wait_until(lambda: groups.committed("destination", "g") is not None)
    wait_until(lambda: following.metrics.groups is not None and not following.metrics.groups.failure)


def test_follower_warns_once_of_a_refused_group(groups: Groups, following: Following) -> None:
    groups.two.destination.faults.add(
        ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None
    )
    groups.commit("source", "g", 4)
    wait_until(lambda: bool(following.warnings))
    for _ in range(2):
        wait_until(following.round_count())
    assert len(following.warnings) == 1
    assert all(each in following.warnings[0] for each in ("'g'", "Grant READ"))


def test_follower_warns_of_a_coordinator_that_moves_only_at_the_end(
    groups: Groups, following: Following
) -> None:
    groups.commit("source", "g", 4)
    fault = groups.two.destination.faults.add(
        ApiKey.OFFSET_FETCH, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None
    )
    wait_until(lambda: fault.hits > 2)
    assert following.warnings == []
    following.follower.finish()
    assert [each for each in following.warnings if "'g'" in each]


def test_follower_warns_of_a_broker_that_lists_no_groups_for_some_time(
    groups: Groups, following: Following
) -> None:
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    fault = groups.two.source.faults.add(ApiKey.LIST_GROUPS, error=error, times=None)
    wait_until(lambda: fault.hits > 2)
    assert following.warnings == []
    following.follower.close()
    impatient = Following(groups, replace(OFTEN, unlisted_s=0.0))
    wait_until(lambda: bool(impatient.warnings))
    impatient.follower.close()
    (sentence,) = impatient.warnings
    assert re.search(r"broker.*1", sentence)
    assert "may be missing: " in sentence


def test_follower_counts_no_more_than_a_part_while_the_mirror_runs(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last round is exact again."""
    monkeypatch.setattr(follower, "MOST_COUNTED", 2)
    monkeypatch.setattr(offset_map, "MOST_EDGES", 0)  # as after more gaps than a map has milestones
    mixed(groups)
    groups.commit("source", "g", 14)
    following = Following(groups)
    wait_until(lambda: groups.committed("destination", "g") is not None)
    status = following.metrics.groups
    wait_until(lambda: following.metrics.groups is not None and bool(following.metrics.groups.offsets))
    status = following.metrics.groups
    assert status is not None
    assert status.offsets["at least"] == 1
    following.follower.finish()
    status = following.metrics.groups
    assert status is not None
    assert status.offsets == {"exact": 1, "ahead": 0, "at least": 0}


def test_metrics_show_the_groups(groups: Groups) -> None:
    mixed(groups)
    following = Following(groups, once=True)
    groups.commit("source", "g", 4)
    following.follower.finish()
    text = exposition(following.metrics, list).decode()
    assert "shoal_consumer_groups 1" in text
    assert "shoal_consumer_groups_untranslated 0" in text
    assert 'shoal_consumer_group_offsets{exactness="exact"} 1' in text
    assert 'shoal_consumer_group_actions{action="committed"} 1' in text
    assert "shoal_consumer_groups_timestamp_seconds 1" in text
    progress = following.metrics.progress().to_json_object()
    assert progress["consumer_groups"]["groups"] == 1
    assert "shoal_consumer_group" not in exposition(Metrics(), list).decode()
