"""The commands of an operator to a running mirror: one line each, as ``pause orders.*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from ...errors import ConfigError
from ...nearest import did_you_mean
from ..model.steering_options import check_expression, parse_limit
from ..model.steering_status import rate_text
from ..monitoring.metrics import Metrics
from .control_socket import Answer
from .steering import Steering

__all__ = ["COMMANDS", "Reactions", "SteeringCommands"]

_Words: TypeAlias = "Sequence[str]"


@dataclass(frozen=True, slots=True)
class _Command:
    """A command's arguments, the most of them, and its meaning."""

    arguments: str
    least: int
    most: int
    meaning: str


#: In the order of the help.
COMMANDS: Mapping[str, _Command] = {
    "status": _Command("", 0, 0, "print the progress, and how the mirror is steered"),
    "pause": _Command("TOPICS", 1, 1, "stop fetching topics, also those that are found later"),
    "resume": _Command("[TOPICS]", 0, 1, "end one pause, named as it was set, or all"),
    "limit": _Command("BYTES|none", 1, 1, "limit the bytes a second of the mirror, or end its limit"),
    "retry": _Command("", 0, 0, "try all stopped partitions again, as SIGUSR1 does"),
    "continue": _Command(
        "TOPIC[-PARTITION] KIND", 2, 2, "accept the incident that stopped partitions, this once"
    ),
    "stop": _Command("", 0, 0, "end the mirror, as SIGTERM does"),
    "?": _Command("", 0, 0, "print this list"),
}


@dataclass(frozen=True, slots=True)
class Reactions:
    """
    The effects of commands besides steering.

    Attributes:
        stop: Ends the mirror.
        retry: Tries all stopped partitions again; None for ``--once``.
        notify: Prints a sentence about a change.
        continue_after: Lets stopped partitions continue, by their name and the kind of their incident, and
            returns a sentence about it; None for ``--once``.

    """

    stop: Callable[[], object]
    retry: Callable[[], object] | None
    notify: Callable[[str], object]
    continue_after: Callable[[str, str], str] | None = None


class SteeringCommands:
    """Carries out commands, in any thread."""

    def __init__(self, steering: Steering, metrics: Metrics, reactions: Reactions) -> None:
        """Prepare to carry out commands."""
        self._steering = steering
        self._metrics = metrics
        self._reactions = reactions
        self._do: Mapping[str, Callable[[_Words], Answer]] = {
            "status": self._status,
            "pause": self._pause,
            "resume": self._resume,
            "limit": self._limit,
            "retry": self._retry,
            "continue": self._continue,
            "stop": self._stop,
            "?": self._help,
        }

    def carry_out(self, line: str) -> Answer:
        """
        Carry out the command of a line.

        Raises:
            ConfigError: There is no such command, or its arguments cannot be used.

        """
        name, *words = line.split() or ["?"]
        command = COMMANDS.get(name)
        if command is None:
            near = did_you_mean(name, COMMANDS)
            raise ConfigError(f"there is no command {name!r}{near}. Use ? for a list")
        if not command.least <= len(words) <= command.most:
            usage = f"{name} {command.arguments}".strip()
            raise ConfigError(f"{name}: {len(words)} arguments are given. Use '{usage}'")
        return self._do[name](words)

    # Commands that print

    def _help(self, words: _Words) -> Answer:
        rows = [(f"{name} {each.arguments}".strip(), each.meaning) for name, each in COMMANDS.items()]
        return Answer(_columns(rows), {"commands": [name for name, _ in rows]})

    def _status(self, words: _Words) -> Answer:
        progress, status = self._metrics.progress(), self._steering.status
        states = ", ".join(f"{count:,} {state}" for state, count in progress.states.items() if count)
        lines = [
            f"phase: {progress.phase}",
            f"partitions: {progress.partitions:,} ({states})",
            f"records: {progress.records:,}, {progress.records_per_s:,.0f}/s",
            f"bytes: {progress.bytes_out:,}, {progress.bytes_per_s:,.0f}/s",
            f"lag: {'' if progress.lag_is_known else 'at least '}{progress.lag_records:,} records",
            *[f"{each.sentence}: {each.reason}" for each in progress.clusters_down.values()],
            *status.sentences,
        ]
        return Answer(
            "\n".join(lines),
            {
                "phase": progress.phase,
                "partitions": progress.partitions,
                "states": dict(progress.states),
                "records": progress.records,
                "records_per_s": progress.records_per_s,
                "bytes_out": progress.bytes_out,
                "bytes_per_s": progress.bytes_per_s,
                "lag_records": progress.lag_records,
                "lag_s": progress.lag_s,
                "clusters_down": {name: asdict(each) for name, each in progress.clusters_down.items()},
                "steering": status.to_json_object(),
            },
        )

    # Commands that change something

    def _changed(self, sentence: str) -> Answer:
        self._reactions.notify(f"by the control socket: {sentence}")
        return Answer(sentence, {"steering": self._steering.status.to_json_object()})

    def _pause(self, words: _Words) -> Answer:
        expression = check_expression("pause", words[0])
        return self._changed(f"paused {_selection(expression, self._steering.pause(expression))}")

    def _resume(self, words: _Words) -> Answer:
        resumed = self._steering.resume(words[0] if words else None)
        return self._changed(f"resumed {', '.join(resumed)}" if resumed else "no topic was paused")

    def _limit(self, words: _Words) -> Answer:
        bytes_per_s = None if words[0] == "none" else parse_limit("limit", words[0])
        self._steering.limit(bytes_per_s)
        if bytes_per_s is None:
            return self._changed("the mirror has no limit")
        return self._changed(f"limited the mirror to {rate_text(bytes_per_s)}")

    def _retry(self, words: _Words) -> Answer:
        if self._reactions.retry is None:
            raise ConfigError("retry: a mirror with --once ends with its stopped partitions. Run it again")
        self._reactions.retry()
        return Answer("trying the stopped partitions again")

    def _continue(self, words: _Words) -> Answer:
        if self._reactions.continue_after is None:
            raise ConfigError(
                "continue: a mirror with --once ends with its stopped partitions. Run it again with "
                f"--continue-after {words[1]}"
            )
        return self._changed(self._reactions.continue_after(*words))

    def _stop(self, words: _Words) -> Answer:
        self._reactions.stop()
        return Answer("stopping: finishing and committing the batches in flight")


def _selection(expression: str, topics: frozenset[str]) -> str:
    count = f"{len(topics):,} topic{'' if len(topics) == 1 else 's'}"
    return f"{expression} ({count}, and those that are found later)"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns; the last one is as wide as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )
