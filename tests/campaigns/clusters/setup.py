"""The properties of a mirror and its topic before the first step of a trial between real clusters."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from rig.consumers import GroupProtocol
from rig.load import CODECS, Codec
from rig.read import Isolation

from ..catalogue import Family
from .arena import DEFAULT_EXPIRATION_MS, Side

__all__ = ["Age", "GroupPlan", "Program", "Setup", "StayPlan", "draw_setup"]

#: For trials in which brokers forget producers during the copy. Slightly longer than a broker's restart.
_SHORT_EXPIRATION_MS = 3_000

#: Shorter than the longest stall, so that some requests time out.
QUICK_REQUEST_TIMEOUT_MS = 4_000


class Program(Enum):
    """The program that mirrors."""

    MIRROR = "shoal mirror"
    MAKER = "shoal mirror-maker"


class Age(Enum):
    """Age of the records, which determines whether the destination's brokers forget their producer."""

    FRESH = "fresh"
    OLD = "30 days old"
    """The broker forgets their producer at each check, many times a second."""
    MIXED = "30 days old and fresh in turn"
    EXPIRING = "fresh, producers forgotten after 3 s"


@dataclass(frozen=True, slots=True)
class StayPlan:
    """A stay of a group's consumer at one cluster.

    Attributes:
        most: Stop after this number of records.
        applies: Begin after `shoal groups --apply`, and not after the mirror's own translation. The way back
            to the source always needs the command.
    """

    most: int
    applies: bool


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group whose consumer begins at the source, and changes the cluster before each other stay.

    Attributes:
        name: The group's name.
        protocols: Its protocol at each side.
        stays: The stays while the mirror runs; one more at the destination reads to the end.
    """

    name: str
    protocols: tuple[GroupProtocol, GroupProtocol]
    stays: tuple[StayPlan, ...]

    def protocol(self, side: Side) -> GroupProtocol:
        return self.protocols[0 if side is Side.SOURCE else 1]


@dataclass(frozen=True, slots=True)
class Setup:
    """The properties of a world before its first step.

    Attributes:
        topic: The topic, and the mirror's group; it determines the contents, too.
        rounds: Number of batches of each partition before the first step; the later ones have a third.
        largest_batch: Records in the largest batches.
        codecs: Codecs of the batches, in turn.
        delay_s: Delay of each Produce request, so that there are moments.
        request_timeout_ms: The mirror's ``request.timeout.ms``, as the next four are its options.
        isolation: The ``isolation.level`` of the mirror and of the comparison.
        looks_s: The time between two looks at the partitions' work, after which some may move.
        raw: Of ``mirror-maker``: ``--use.raw.bytes``.
        at_least_once: Of ``mirror-maker``: ``--delivery at-least-once``.
        finds_topics: The mirror looks for topics and partitions each second, and matches later topics, too.
        starts_latest: The mirror has ``--start latest``, and was started once before the first step.
        continues: Whether it continues in a topic that was created again; otherwise it stops until the end.
        groups: The groups whose consumers change clusters.
        lasts_s: The seconds of each step of a long trial, in which producers write all the time. They have
            no plain producer: one that tries again when its broker was killed writes twice.
    """

    topic: str
    program: Program
    age: Age
    partitions: int
    rounds: int
    largest_batch: int
    codecs: tuple[Codec, ...]
    delay_s: float
    request_timeout_ms: int
    fetch_buffer_bytes: int
    commit_interval_ms: int
    rebatch: str | None
    isolation: Isolation
    looks_s: float
    raw: bool
    at_least_once: bool
    finds_topics: bool
    starts_latest: bool
    continues: bool
    groups: tuple[GroupPlan, ...] = ()
    lasts_s: tuple[int, ...] = ()

    @property
    def expiration_ms(self) -> int:
        """The destination's ``producer.id.expiration.ms``."""
        return _SHORT_EXPIRATION_MS if self.age is Age.EXPIRING else DEFAULT_EXPIRATION_MS

    def __str__(self) -> str:
        said = {
            f"looks each {self.looks_s:g} s": self.program is Program.MIRROR,
            "read_uncommitted": self.isolation == "read_uncommitted",
            f"joined below {self.rebatch}": self.rebatch,
            "batches as they are": self.raw,
            "at least once": self.at_least_once,
            "--start latest": self.starts_latest,
            "--continue-after source-reset": self.continues,
            f"groups with {', '.join(str(len(each.stays)) for each in self.groups)} stays": self.groups,
            f"steps of {', '.join(map(str, self.lasts_s))} s": self.lasts_s,
        }
        return ", ".join(
            [self.program.value, self.age.value, *(text for text, holds in said.items() if holds)]
        )


def draw_setup(dice: random.Random, topic: str, program: Program, family: Family | None) -> Setup:
    """Draw the properties of a world.

    Args:
        family: The subject of the trial.
    """
    is_maker, has_groups = program is Program.MAKER, family is Family.GROUPS
    return Setup(
        topic=topic,
        program=program,
        age=dice.choice([Age.FRESH, Age.FRESH, Age.OLD, Age.OLD, Age.MIXED, Age.EXPIRING]),
        partitions=dice.randint(3, 6),
        rounds=dice.randint(30, 80),
        largest_batch=dice.choice([3, 12, 40]),
        codecs=tuple(dice.sample(CODECS, dice.randint(1, 3))),
        delay_s=dice.choice([0.005, 0.01, 0.02]),
        request_timeout_ms=dice.choice([30_000, QUICK_REQUEST_TIMEOUT_MS]),
        fetch_buffer_bytes=dice.choice([1_048_576, 16_777_216]),
        commit_interval_ms=dice.choice([1, 50, 500, 5_000]),
        rebatch=dice.choice(["500", "4k", "4k:zstd"]) if not is_maker and dice.random() < 0.15 else None,
        # Consumers of the copy would read aborted records, too, and those of the source would not.
        isolation="read_uncommitted" if not has_groups and dice.random() < 0.15 else "read_committed",
        looks_s=dice.choice([0.2, 1.0, 3.0, 15.0]),
        raw=is_maker and dice.random() < 0.5,
        at_least_once=is_maker and dice.random() < 0.3,
        finds_topics=family is Family.TOPICS,
        starts_latest=family is Family.TOPICS and dice.random() < 0.4,
        continues=family is Family.TOPICS and dice.random() < 0.6,
        groups=_draw_groups(dice, topic) if has_groups else (),
    )


def _draw_groups(dice: random.Random, topic: str) -> tuple[GroupPlan, ...]:
    protocols: list[GroupProtocol] = ["classic", "consumer"]
    return tuple(
        GroupPlan(
            f"{topic}-reader-{number}",
            (dice.choice(protocols), dice.choice(protocols)),
            tuple(
                StayPlan(dice.choice([1, dice.randint(1, 60), dice.randint(60, 600)]), dice.random() < 0.4)
                for _ in range(dice.choice([1, 2, 2, 3, 4]))
            ),
        )
        for number in range(dice.randint(3, 5))
    )
