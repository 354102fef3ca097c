"""A trial between real clusters as a seed plans it: the world, and what happens in each step."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

from rig.load import CODECS

from ..catalogue import Family, Plan, Step
from ..kinds import Kind
from . import broker_events, group_events, network_events, process_events, runs, topic_events  # noqa: F401
from .events import CLUSTERS
from .setup import Age, Program, Setup, draw_setup
from .world import ClustersWorld

__all__ = ["ClustersPlan", "draw", "draw_soak"]

ClustersPlan: TypeAlias = Plan[Setup, ClustersWorld, None]

_PROGRAMS = {Program.MIRROR: 9, Program.MAKER: 1}

#: The subjects of trials of ``shoal mirror``, and how often each comes. Faults belong to each.
_FAMILIES: dict[Family | None, int] = {None: 8, Family.TOPICS: 3}

#: How often the events of a subject come beside the many faults.
_SUBJECT = 8

#: The first part of a soak is steps of five minutes, with up to three events each. In the other part one
#: mirror runs, so that its memory can be judged, and something happens to brokers every 100 seconds.
_FIRST_PART = 1 / 3
_STEP_S = 300
_INTERVAL_S = 100


def draw(seed: int, kind: Kind, without: Collection[str] = ()) -> ClustersPlan:
    """Plan the trial of a seed."""
    dice = random.Random(f"{seed}/{kind.name}")
    program, family = Program.MIRROR, Family.GROUPS if kind is Kind.CONSUMERS else None
    if kind is Kind.CLUSTERS:
        program = dice.choices(list(_PROGRAMS), list(_PROGRAMS.values()))[0]
        if program is Program.MIRROR:
            family = dice.choices(list(_FAMILIES), list(_FAMILIES.values()))[0]
    setup = draw_setup(dice, f"chaos-{seed}", program, family)
    families = {Family.FAULTS: 1, Family.NETWORK: 1, Family.SPARK: 1}
    if family:
        families[family] = _SUBJECT
    if family is Family.TOPICS:
        families[Family.RECREATED] = _SUBJECT
    return Plan(
        kind, seed, setup, family, CLUSTERS.draw_steps(dice, families, (1, 3), least=1, without=without)
    )


def draw_soak(seed: int, minutes: float, without: Collection[str] = ()) -> ClustersPlan:
    """Plan an hour between locked clusters, or as many minutes.

    Events of requests do not come there, which are encrypted. No topic is created again: `shoal verify` would
    call the copy different.
    """
    dice = random.Random(f"{seed}/soak")
    first_s = int(minutes * 60 * _FIRST_PART)
    last_s, count = int(minutes * 60) - first_s, max(1, first_s // _STEP_S)
    setup = replace(
        draw_setup(dice, f"soak-{seed}", Program.MIRROR, Family.TOPICS),
        age=Age.FRESH,
        codecs=CODECS,
        largest_batch=12,
        request_timeout_ms=30_000,
        commit_interval_ms=5_000,
        isolation="read_committed",
        rebatch=None,
        looks_s=15.0,
        starts_latest=False,
        lasts_s=(*[first_s // count] * count, last_s),
    )
    first = {Family.FAULTS: 1, Family.SPARK: 1, Family.TOPICS: 2}
    steps = CLUSTERS.draw_steps(dice, first, (count, count), least=1, without=without)
    last = CLUSTERS.draw_steps(dice, {Family.FAULTS: 1}, (last_s // _INTERVAL_S,) * 2, 1, without)
    events = tuple(event for step in last for event in step.events[:1])
    following = CLUSTERS.ways["following"]
    steps = tuple(Step(each, following) for each in (*(step.events for step in steps), events))
    return Plan(Kind.SOAK, seed, setup, None, steps)
