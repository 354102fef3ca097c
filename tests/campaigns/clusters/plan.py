"""A trial between real clusters as a seed plans it: the world, and what happens in each step."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TypeAlias

from ..catalogue import Family, Plan
from ..kinds import Kind
from . import broker_events, group_events, network_events, process_events, runs, topic_events  # noqa: F401
from .events import CLUSTERS
from .setup import Program, Setup, draw_setup
from .world import ClustersWorld

__all__ = ["ClustersPlan", "draw"]

ClustersPlan: TypeAlias = Plan[Setup, ClustersWorld, None]

_PROGRAMS = {Program.MIRROR: 9, Program.MAKER: 1}

#: The subjects of trials of ``shoal mirror``, and how often each comes. Faults belong to each.
_FAMILIES: dict[Family | None, int] = {None: 8, Family.TOPICS: 3}

#: How often the events of a subject come beside the many faults.
_SUBJECT = 8


def draw(seed: int, kind: Kind, without: Collection[str] = ()) -> ClustersPlan:
    """Plan the trial of a seed."""
    dice = random.Random(f"{seed}/{kind.name}")
    program, family = Program.MIRROR, Family.GROUPS if kind is Kind.CONSUMERS else None
    if kind is Kind.CLUSTERS:
        program = dice.choices(list(_PROGRAMS), list(_PROGRAMS.values()))[0]
        if program is Program.MIRROR:
            family = dice.choices(list(_FAMILIES), list(_FAMILIES.values()))[0]
    setup = draw_setup(dice, f"chaos-{seed}", program, family)
    families = {Family.FAULTS: 1, Family.SPARK: 1}
    if family:
        families[family] = _SUBJECT
    return Plan(
        kind, seed, setup, family, CLUSTERS.draw_steps(dice, families, (1, 3), least=1, without=without)
    )
