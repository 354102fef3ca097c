"""The mirrors of a trial: `shoal mirror`, or `shoal mirror-maker`."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.cluster import java_properties
from rig.shoal import SHOAL
from tests.hasty import hasty

from .arena import Arena, Side
from .setup import Program, Setup

__all__ = ["Mover", "Started"]

#: Of a mirror-maker in its group. If a member is dead, the group soon removes it (KIP-735 raised the
#: default to 45 s); if it only waits for its CPU, it stays.
_SESSION_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Started:
    """The program and the arguments of a mirror.

    Attributes:
        arguments: Arguments of the program.
        program: Arguments of Python that select it.
    """

    arguments: Sequence[str]
    program: Sequence[str] = SHOAL


@dataclass(frozen=True, slots=True)
class Mover:
    """A mirror of a trial.

    Attributes:
        setup: The properties of the trial's world.
        arena: The clusters, and how to connect to them.
        directory: Directory for files, and for checkpoints.
    """

    setup: Setup
    arena: Arena
    directory: Path

    def started(self, *, once: bool, goes_on: bool = False) -> Started:
        """Return what to start.

        Args:
            once: End after everything is copied; `shoal mirror-maker` never does.
            goes_on: Continue in a topic that was deleted and recreated.
        """
        if self.setup.program is Program.MAKER:
            return Started(self._maker())
        return Started(self._mirror(once=once, goes_on=goes_on), self._hasty())

    def _mirror(self, *, once: bool, goes_on: bool) -> list[str]:
        setup = self.setup
        return [
            *["mirror", "--json", "--verbose", *self._both()],
            *["--fetch-buffer-bytes", str(setup.fetch_buffer_bytes)],
            *["--checkpoint", str(self.directory / "checkpoint")],
            *(["--rebatch", setup.rebatch] if setup.rebatch else []),
            *(["--start", "latest"] if setup.starts_latest else []),
            *(["--continue-after", "source-reset"] if goes_on else []),
            *(["--once"] if once else []),
            *(["--refresh", "1"] if setup.finds_topics and not once else []),
            *self._follow_groups(),
        ]

    def verify(self) -> list[str]:
        """Return the arguments of a comparison of all that was mirrored."""
        return ["verify", *self._both()]

    def _both(self) -> list[str]:
        """Return the options of both clusters, of the topics and of the group."""
        setup = self.setup
        timeout = {"request.timeout.ms": setup.request_timeout_ms}
        source = {**timeout, "isolation.level": setup.isolation, **self.arena.keys[Side.SOURCE]}
        destination = {**timeout, **self.arena.keys[Side.DESTINATION]}
        # An expression may match a topic that does not exist yet; a name may not.
        topics = rf"{setup.topic}(-new-\d+)?" if setup.finds_topics else setup.topic
        return [
            *["--from", self.arena.before(Side.SOURCE), "--from-config", self._file("source", source)],
            *["--to", self.arena.before(Side.DESTINATION)],
            *["--to-config", self._file("destination", destination)],
            *["--topics", topics, "--group", setup.topic],
        ]

    def _hasty(self) -> Sequence[str]:
        setup = self.setup
        interval_s = setup.commit_interval_ms / 1000
        return hasty(places_look_s=setup.looks_s, commit_interval_s=interval_s, groups_interval_s=1)

    def _follow_groups(self) -> Sequence[str]:
        names = "|".join(re.escape(each.name) for each in self.setup.groups)
        return ["--groups", names] if names else []

    def _maker(self) -> list[str]:
        setup = self.setup
        dice = random.Random(f"{setup.topic}/maker")
        timeout = {"request.timeout.ms": setup.request_timeout_ms}
        consumer = {
            **timeout,
            "bootstrap.servers": self.arena.before(Side.SOURCE),
            "group.id": setup.topic,
            "auto.offset.reset": "earliest",
            "isolation.level": setup.isolation,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "metadata.max.age.ms": 1_000,
        }
        producer = {
            **timeout,
            "bootstrap.servers": self.arena.before(Side.DESTINATION),
            "compression.type": dice.choice(["none", "gzip", "lz4", "zstd"]),
            "batch.size": dice.choice([500, 16_384]),
            "max.in.flight.requests.per.connection": dice.choice([1, 5]),
        }
        return [
            *["mirror-maker", "--json", "--verbose"],
            *["--consumer.config", self._file("consumer", consumer)],
            *["--producer.config", self._file("producer", producer)],
            *["--include", setup.topic, "--num.streams", str(dice.randint(1, 2))],
            *["--offset.commit.interval.ms", str(setup.commit_interval_ms)],
            *["--checkpoint", str(self.directory / "checkpoint")],
            *(["--use.raw.bytes"] if setup.raw else []),
            *(["--delivery", "at-least-once"] if setup.at_least_once else []),
        ]

    def _file(self, name: str, properties: Mapping[str, object]) -> str:
        file = self.directory / f"{name}.properties"
        file.write_text(java_properties(properties), encoding="utf-8")
        file.chmod(0o600)
        return str(file)
