"""
Steers a running mirror: the topics that are paused, and its limit, by options and by an operator's commands.

A command is a name, and arguments by their names. The control server passes the steering on to the tasks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...errors import ConfigError, ShoalError
from ...nearest import did_you_mean
from ...topic_partition import TopicPartition
from ..model.incidents import POLICIES, IncidentKind
from ..model.partition import PartitionState
from ..model.progress import line
from ..model.steering import SteeringStatus, check_expression, parse_limit, rate_text
from ..model.text import first_few
from ..model.topics import is_legal_name
from ..monitoring.door import CommandAnswer
from .schedule import Running

__all__ = ["COMMANDS", "Steering"]


@dataclass(frozen=True, slots=True)
class _Command:
    """
    A command.

    Attributes:
        usage: Its arguments, for people.
        arguments: Their names.
        meaning: Its effect.
        needs_all: Whether no argument may be left out.

    """

    usage: str
    arguments: tuple[str, ...]
    meaning: str
    needs_all: bool = True


#: In the order of the help.
COMMANDS: Mapping[str, _Command] = {
    "status": _Command("", (), "print the progress, and how the mirror is steered"),
    "pause": _Command("TOPICS", ("topics",), "stop fetching topics, also those that are found later"),
    "resume": _Command(
        "[TOPICS]", ("topics",), "end one pause, named as it was set, or all", needs_all=False
    ),
    "limit": _Command("BYTES|none", ("bytes",), "limit the bytes a second of the mirror, or end its limit"),
    "retry": _Command("", (), "try all stopped partitions again, as SIGUSR1 does"),
    "continue": _Command(
        "TOPIC[-PARTITION] KIND", ("topic", "kind"), "accept the incident that stopped partitions, this once"
    ),
    "stop": _Command("", (), "end the mirror, as SIGTERM does"),
}


class Steering:
    """Steers the first tasks by the options, and then carries out commands. For any thread."""

    def __init__(
        self,
        mirror: Running,
        *,
        stop: Callable[[], object],
        retry: Callable[[], object],
        create_lost: Callable[[str], object],
    ) -> None:
        """
        Steer the first tasks by the options.

        Args:
            stop: Ends the mirror.
            retry: Tries all stopped partitions again.
            create_lost: Creates the copy of a source topic if it is gone.

        """
        self._mirror = mirror
        self._metrics = mirror.metrics
        self._stop = stop
        self._retry = retry
        self._create_lost = create_lost
        self._lock = threading.Lock()  # held during a command that steers, and a look
        expressions = tuple(dict.fromkeys(mirror.options.pause))
        self._set(paused_expressions=expressions, limit=mirror.options.limit)
        if known := self.status.sentences:
            mirror.notify(f"steering: {', '.join(known)}")

    @property
    def status(self) -> SteeringStatus:
        """The steering as of the last look, or of the last command."""
        return self._metrics.steering

    def look(self) -> None:
        """Pause new topics that an expression selects."""
        with self._lock:
            self._set()

    def _topics_of(self, *expressions: str) -> frozenset[str]:
        names = self._mirror.schedule.names
        return frozenset[str]().union(*(topics_of(each, names) for each in expressions))

    def _set(self, **changes: Any) -> None:
        """Steer the tasks as before, but for these attributes of the status."""
        status = replace(self.status, **changes)
        paused = self._topics_of(*status.paused_expressions)
        self._mirror.control.steer(paused, status.limit)
        self._metrics.steering = replace(status, paused=paused)

    # Commands

    def carry_out(self, name: str, arguments: Mapping[str, str]) -> CommandAnswer:
        """
        Carry out a command.

        Raises:
            ConfigError: There is no such command, or its arguments cannot be used.

        """
        _check_arguments(name, arguments)
        match name:
            case "status":
                return self._status()
            case "retry":
                self._check_lasts("retry", "Run it again")
                self._retry()
                return CommandAnswer("trying the stopped partitions again")
            case "stop":
                self._stop()
                return CommandAnswer("stopping: finishing and committing the batches in flight")
            case "pause":
                done = self._pause(check_expression("pause", arguments["topics"]))
            case "resume":
                done = self._resume(arguments.get("topics"))
            case "limit":
                done = self._set_limit(arguments["bytes"])
            case _:
                done = self._continue(arguments["topic"], arguments["kind"])
        self._mirror.notify(f"by the control socket: {done}")
        return CommandAnswer(done, {"steering": self.status.to_json_object()})

    def _status(self) -> CommandAnswer:
        progress, status = self._metrics.progress(), self.status
        lines = [
            line(progress),
            *[f"{each.sentence}: {each.reason}" for each in progress.clusters_down.values()],
            *status.sentences,
        ]
        return CommandAnswer("\n".join(lines), {**asdict(progress), "steering": status.to_json_object()})

    def _pause(self, expression: str) -> str:
        with self._lock:
            others = (each for each in self.status.paused_expressions if each != expression)
            self._set(paused_expressions=(*others, expression))
        count = len(self._topics_of(expression))
        topics = f"{count:,} topic{'' if count == 1 else 's'}"
        return f"paused {expression} ({topics}, and those that are found later)"

    def _resume(self, expression: str | None) -> str:
        """End one pause, or all."""
        with self._lock:
            before = self.status.paused_expressions
            resumed = [each for each in before if expression in (None, each)]
            if expression is not None and not resumed:
                paused = ", ".join(before) or "no topics"
                raise ConfigError(f"resume: '{expression}' is not paused. Paused are: {paused}")
            self._set(paused_expressions=tuple(each for each in before if each not in resumed))
        return f"resumed {', '.join(resumed)}" if resumed else "no topic was paused"

    def _set_limit(self, text: str) -> str:
        limit = None if text == "none" else parse_limit("limit", text)
        with self._lock:
            self._set(limit=limit)
        return "the mirror has no limit" if limit is None else f"limited the mirror to {rate_text(limit)}"

    def _check_lasts(self, name: str, remedy: str) -> None:
        if self._mirror.options.once:
            raise ConfigError(f"{name}: a mirror with --once ends with its stopped partitions. {remedy}")

    def _continue(self, name: str, kind_name: str) -> str:
        """
        Let stopped partitions continue after the incident that stands now.

        The option ``--continue-after`` holds for all topics and all later incidents. This is for one topic,
        and once: as soon as a partition is aligned again, or has stopped again, nothing is accepted any more.
        """
        self._check_lasts("continue", f"Run it again with --continue-after {kind_name}")
        kinds = {each.value: each for each in POLICIES}
        if kind_name not in kinds:
            raise ConfigError(f"continue: {kind_name!r} is not one of {', '.join(kinds)}")
        kind = kinds[kind_name]
        stopped = _stopped_by(kind, name, self._metrics.partitions())
        if kind is IncidentKind.DESTINATION_LOSS:
            topic = stopped[0].topic
            try:
                self._create_lost(topic)
            except ShoalError as error:
                raise ConfigError(
                    f"continue: the copy of {topic} cannot be created again: {error}"
                ) from error
        self._mirror.schedule.try_again(stopped, kind)
        self._mirror.control.recall(stopped)
        return f"{first_few(stopped)} may continue after {kind.value}, this once"


def _check_arguments(name: str, arguments: Mapping[str, str]) -> None:
    command = COMMANDS.get(name)
    if command is None:
        near = did_you_mean(name, COMMANDS)
        raise ConfigError(f"there is no command {name!r}{near}. Use one of {', '.join(COMMANDS)}")
    given = set(arguments)
    if given - set(command.arguments) or (command.needs_all and given != set(command.arguments)):
        usage, names = f"{name} {command.usage}".strip(), ", ".join(command.arguments) or "none"
        raise ConfigError(
            f"{name}: the arguments are {', '.join(sorted(given)) or 'none'}. Use '{usage}' ({names})"
        )


def _stopped_by(
    kind: IncidentKind, name: str, known: Mapping[TopicPartition, PartitionState]
) -> list[TopicPartition]:
    """Return the partitions of a topic, or the one such as ``orders-3``, that such an incident stops."""
    named = [row for each, row in known.items() if each.topic == name]
    named = named or [row for each, row in known.items() if str(each) == name]
    if not named:
        raise ConfigError(f"continue: the mirror has no topic and no partition {name!r}")
    waiting = sorted(row.name for row in named if row.stopped_by is kind and not row.is_tried_again)
    if not waiting:
        causes = {row.stopped_by.value if row.stopped_by else str(row.reason) for row in named if row.stopped}
        by = f" by {kind.value}, but by {', '.join(sorted(causes))}" if causes else ""
        tried = ". Wait for those that are tried again" if any(row.is_tried_again for row in named) else ""
        raise ConfigError(f"continue: {name!r} is not stopped{by}. No partition continues{tried}")
    return waiting


def topics_of(expression: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics of a name, or of a regular expression that has to match whole names."""
    if is_legal_name(expression):
        return frozenset({expression}.intersection(topics))
    return frozenset(filter(re.compile(expression).fullmatch, topics))
