"""A mirror is started with its plan's options; otherwise it would keep another promise."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from shoal.cli import make_parser
from shoal.cli.mirror import parse as parse_mirror
from shoal.cli.mirror_maker import parse as parse_maker
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.options import MirrorOptions, Start
from shoal.mirrormaker.options import MirrorMakerOptions
from tests.campaigns.clusters.movers import Mover
from tests.campaigns.clusters.plan import Change, Kind, Plan, draw


def plan_with(kind: Kind, change: Change | None = None, *, latest: bool = False) -> Plan:
    """Return the first plan of a kind, with a change of topics if one is named."""
    for number in itertools.count():
        plan = draw(0, number, kind)
        found = plan.topic_change
        if change is None or (found is not None and (found.change, found.latest) == (change, latest)):
            return plan
    raise AssertionError  # itertools.count() does not end


def started(plan: Plan, directory: Path, *, once: bool, goes_on: bool = False) -> MirrorOptions:
    mover = Mover(plan, "source:1", "destination:1", directory)
    return parse_mirror(make_parser().parse_args(mover.started([], once=once, goes_on=goes_on).arguments))


def started_maker(plan: Plan, directory: Path) -> MirrorMakerOptions:
    mover = Mover(plan, "source:1", "destination:1", directory)
    return parse_maker(make_parser().parse_args(mover.started([], once=False).arguments))


@pytest.mark.parametrize("latest", [True, False])
def test_later_topic_is_selected_by_expression(tmp_path: Path, latest: bool) -> None:
    plan = plan_with(Kind.TOPICS, Change.TOPIC, latest=latest)
    options = started(plan, tmp_path, once=False)
    assert not options.topics.names, "a name has to be there at the start"
    (expression,) = options.topics.expressions
    assert re.fullmatch(expression, plan.topic)
    assert re.fullmatch(expression, plan.new_topic)
    assert not re.fullmatch(expression, f"{plan.topic}0")
    assert options.start == started(plan, tmp_path, once=True).start
    assert options.start == Start.parse("start", "latest" if latest else "earliest")


@pytest.mark.parametrize("goes_on", [True, False])
def test_policy_for_a_recreated_topic_is_the_trial_s(tmp_path: Path, goes_on: bool) -> None:
    plan = plan_with(Kind.TOPICS, Change.RECREATED)
    options = started(plan, tmp_path, once=True, goes_on=goes_on)
    assert options.copy.continue_on == (frozenset({IncidentKind.SOURCE_RESET}) if goes_on else frozenset())
    assert options.once


def test_groups_of_moving_consumers_follow_by_their_names(tmp_path: Path) -> None:
    plan = draw(0, 0, Kind.CONSUMERS)
    for once in (True, False):
        options = started(plan, tmp_path, once=once)
        selection = options.group_selection
        assert selection is not None
        assert all(selection.matches(each.name) for each in plan.groups)
        assert not selection.matches(plan.topic), "the mirror's own group"
        assert not selection.matches(f"{plan.groups[0].name}0")
        assert options.groups_interval_s == 1
    assert started(plan_with(Kind.PRODUCT), tmp_path, once=True).group_selection is None


def test_mirror_maker_options_follow_the_plan(tmp_path: Path) -> None:
    for plan in (draw(0, number, Kind.MAKER) for number in range(20)):
        options = started_maker(plan, tmp_path)
        assert options.include.fullmatch(plan.topic)
        assert options.membership.group == plan.topic
        wanted = Delivery.AT_LEAST_ONCE if plan.at_least_once else Delivery.EXACTLY_ONCE
        assert options.mirror.copy.delivery is wanted
        assert (options.mirror.copy.rebatch is None) is plan.raw
        assert options.mirror.copy.commit_interval_ms == plan.commit_interval_ms
