"""A mirror is started with its setup's options; otherwise it would keep another promise."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal import RawProducer
from shoal.cli import make_parser
from shoal.cli.mirror import parse as parse_mirror
from shoal.cli.mirror_maker import parse as parse_maker
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.window import Start
from shoal.mirrormaker.options import MirrorMakerOptions
from shoal_broker import Broker
from tests.campaigns.clusters.movers import Mover
from tests.campaigns.clusters.plan import draw
from tests.campaigns.clusters.setup import Program, Setup
from tests.campaigns.kinds import Kind


def setup_with(**wanted: object) -> Setup:
    """Return the first setup of a mirror with these properties."""
    for seed in itertools.count():
        for kind in (Kind.CLUSTERS, Kind.CONSUMERS):
            setup = draw(seed, kind).setup
            if all(getattr(setup, name) == value for name, value in wanted.items()):
                return setup
    raise AssertionError  # itertools.count() does not end


def started(setup: Setup, directory: Path, *, once: bool, goes_on: bool = False) -> MirrorOptions:
    mover = Mover(setup, "source:1", "destination:1", directory)
    return parse_mirror(make_parser().parse_args(mover.started([], once=once, goes_on=goes_on).arguments))


def started_maker(setup: Setup, directory: Path) -> MirrorMakerOptions:
    mover = Mover(setup, "source:1", "destination:1", directory)
    return parse_maker(make_parser().parse_args(mover.started([], once=False).arguments))


@pytest.mark.parametrize("latest", [True, False])
def test_later_topic_is_selected_by_expression(tmp_path: Path, latest: bool) -> None:
    setup = setup_with(finds_topics=True, starts_latest=latest)
    options = started(setup, tmp_path, once=False)
    assert not options.topics.names, "a name has to be there at the start"
    (expression,) = options.topics.expressions
    assert re.fullmatch(expression, setup.topic)
    assert re.fullmatch(expression, f"{setup.topic}-new-1")
    assert not re.fullmatch(expression, f"{setup.topic}0")
    assert options.start == started(setup, tmp_path, once=True).start
    assert options.start == Start.parse("start", "latest" if latest else "earliest")


@pytest.mark.parametrize("goes_on", [True, False])
def test_policy_for_a_recreated_topic_is_the_trial_s(tmp_path: Path, goes_on: bool) -> None:
    setup = setup_with(finds_topics=True)
    options = started(setup, tmp_path, once=True, goes_on=goes_on)
    assert options.continue_after == (frozenset({IncidentKind.SOURCE_RESET}) if goes_on else frozenset())
    assert options.once


def test_groups_of_moving_consumers_follow_by_their_names(tmp_path: Path) -> None:
    setup = draw(0, Kind.CONSUMERS).setup
    for once in (True, False):
        options = started(setup, tmp_path, once=once)
        selection = options.group_selection
        assert selection is not None
        assert all(selection.matches(each.name) for each in setup.groups)
        assert not selection.matches(setup.topic), "the mirror's own group"
        assert not selection.matches(f"{setup.groups[0].name}0")
    assert started(setup_with(program=Program.MIRROR, groups=()), tmp_path, once=True).group_selection is None


def test_mirror_maker_options_follow_the_setup(tmp_path: Path) -> None:
    setups = [draw(seed, Kind.CLUSTERS).setup for seed in range(200)]
    makers = [setup for setup in setups if setup.program is Program.MAKER]
    assert len(makers) > 10
    for setup in makers:
        options = started_maker(setup, tmp_path)
        assert options.include.fullmatch(setup.topic)
        assert options.membership.group == setup.topic
        wanted = Delivery.AT_LEAST_ONCE if setup.at_least_once else Delivery.EXACTLY_ONCE
        assert options.mirror.delivery is wanted
        assert (options.mirror.rebatch is None) is setup.raw
        assert options.mirror.timing.commit_interval_s == setup.commit_interval_ms / 1000


def test_task_is_a_program_that_copies(tmp_path: Path) -> None:
    setup = setup_with(program=Program.TASK)
    with Broker() as source, Broker() as destination:
        source.create_topic(setup.topic, 1)
        destination.create_topic(setup.topic, 1)
        with RawProducer({"bootstrap.servers": source.bootstrap}) as producer:
            producer.send(setup.topic, b"value").result(timeout=30)
        started = Mover(setup, source.bootstrap, destination.bootstrap, tmp_path).started([1], once=True)
        done = subprocess.run(
            [sys.executable, *started.program, *started.arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]
    assert destination.log(setup.topic).log_end_offset == 1
