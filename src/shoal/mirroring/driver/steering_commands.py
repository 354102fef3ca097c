"""The commands of an operator to a running mirror: one line each, as ``limit 50m orders.*``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from ...errors import OptionError
from ...nearest import did_you_mean
from ..model.steering_options import check_expression, parse_limit
from ..model.steering_status import rate_text
from ..model.topics import entries_of
from ..monitoring.metrics import Metrics
from ..monitoring.partition_metrics import PartitionMetrics
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
    "topics": _Command("", 0, 0, "print each topic with its lag, and why it is not fetched"),
    "pause": _Command("TOPICS", 1, 1, "stop fetching topics, also those that are found later"),
    "resume": _Command("[TOPICS]", 0, 1, "end one pause, named as it was set, or all"),
    "limit": _Command("BYTES [TOPICS]", 1, 2, "limit the bytes a second of the mirror, or of topics"),
    "unlimit": _Command("[TOPICS]", 0, 1, "end one limit of topics, or all limits"),
    "priority": _Command("[TOPICS[,TOPICS]|none]", 0, 1, "let topics catch up first, the first ones first"),
    "continue": _Command(
        "TOPIC[-PARTITION] KIND", 2, 2, "accept the incident that stopped partitions, this once"
    ),
    "refresh": _Command("", 0, 0, "look for new topics and partitions now"),
    "commit": _Command("", 0, 0, "commit the positions now"),
    "stop": _Command("", 0, 0, "end the mirror, as SIGTERM does"),
    "reset": _Command("", 0, 0, "forget what was set here: the options hold again"),
    "?": _Command("", 0, 0, "print this list"),
}


@dataclass(frozen=True, slots=True)
class Reactions:
    """
    The effects of commands besides steering.

    Attributes:
        refresh: Looks for new topics and partitions; None for ``--once``.
        stop: Ends the mirror.
        notify: Prints a sentence about a change.
        continue_after: Lets stopped partitions continue, by their name and the kind of their incident, and
            returns a sentence about it; None for ``--once``.

    """

    refresh: Callable[[], object] | None
    stop: Callable[[], object]
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
            "topics": self._topics,
            "pause": self._pause,
            "resume": self._resume,
            "limit": self._limit,
            "unlimit": self._unlimit,
            "priority": self._priority,
            "continue": self._continue,
            "refresh": self._refresh,
            "commit": self._commit,
            "stop": self._stop,
            "reset": self._reset,
            "?": self._help,
        }

    def carry_out(self, line: str) -> Answer:
        """
        Carry out the command of a line.

        Raises:
            OptionError: There is no such command, or its arguments cannot be used.

        """
        name, *words = line.split() or ["?"]
        command = COMMANDS.get(name)
        if command is None:
            near = did_you_mean(name, COMMANDS)
            raise OptionError("there is no command {value!r}{near}. Use ? for a list", value=name, near=near)
        if not command.least <= len(words) <= command.most:
            raise OptionError(
                "{command}: {count} arguments are given. Use '{usage}'",
                command=name,
                count=len(words),
                usage=f"{name} {command.arguments}".strip(),
            )
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
            *_latencies(status.latency_ms),
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

    def _topics(self, words: _Words) -> Answer:
        partitions: dict[str, list[PartitionMetrics]] = defaultdict(list)
        for partition, metrics in self._metrics.shown_partitions().items():
            partitions[partition.topic].append(metrics)
        status = self._steering.status
        rows: list[dict[str, Any]] = []
        for topic in sorted(partitions):
            held = [
                reason
                for reason, topics in (("paused", status.paused), ("waiting by priority", status.later))
                if topic in topics
            ] or ["throttled"] * bool(status.throttled_by)
            states = Counter(each.state.value for each in partitions[topic])
            rows.append(
                {
                    "topic": topic,
                    "partitions": len(partitions[topic]),
                    "lag_records": sum(each.lag_records or 0 for each in partitions[topic]),
                    "states": dict(states),
                    "steering": held[0] if held else None,
                }
            )
        table = [("topic", "partitions", "lag", "state")] + [
            (
                row["topic"],
                f"{row['partitions']:,}",
                f"{row['lag_records']:,}",
                row["steering"] or ", ".join(f"{count:,} {state}" for state, count in row["states"].items()),
            )
            for row in rows
        ]
        return Answer(_columns(table), {"topics": rows})

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
        bytes_per_s = parse_limit("limit", words[0])
        expression = check_expression("limit", words[1]) if len(words) > 1 else None
        topics = self._steering.limit(bytes_per_s, expression)
        limited = "the mirror" if expression is None else _selection(expression, topics or frozenset())
        return self._changed(f"limited {limited} to {rate_text(bytes_per_s)}")

    def _unlimit(self, words: _Words) -> Answer:
        self._steering.unlimit(words[0] if words else None)
        return self._changed(f"{words[0]} has no limit of its own" if words else "there is no limit")

    def _priority(self, words: _Words) -> Answer:
        if words:
            entries = () if words[0] == "none" else tuple(entries_of(words[0]))
            self._steering.prioritize(tuple(check_expression("priority", each) for each in entries))
            return self._changed(f"priority: {', '.join(entries) or 'none'}")
        now = self._steering.status.priority
        return Answer(f"priority: {', '.join(now) or 'none'}", {"priority": list(now)})

    def _continue(self, words: _Words) -> Answer:
        if self._reactions.continue_after is None:
            raise OptionError(
                "continue: a mirror with --once ends with its stopped partitions. Run it again with "
                "--on-{kind} continue",
                kind=words[1],
            )
        return self._changed(self._reactions.continue_after(*words))

    def _refresh(self, words: _Words) -> Answer:
        if self._reactions.refresh is None:
            raise OptionError("refresh: a mirror with --once copies the topics that it found at its start")
        self._reactions.refresh()
        return self._requested("looking for new topics and partitions")

    def _commit(self, words: _Words) -> Answer:
        self._steering.commit()
        return self._requested("committing: the positions are committed within a second")

    def _requested(self, sentence: str) -> Answer:
        """Answer that something is under way, and what it has to wait for."""
        silent = [each.sentence for each in self._metrics.clusters.values() if each is not None]
        return Answer(", and ".join(silent) + ". It has to answer first" if silent else sentence)

    def _stop(self, words: _Words) -> Answer:
        self._reactions.stop()
        return Answer("stopping: finishing and committing the batches in flight")

    def _reset(self, words: _Words) -> Answer:
        self._steering.reset()
        return self._changed("what was set is forgotten, and the options hold again")


def _latencies(found: Mapping[str, float | None]) -> list[str]:
    known = [f"{cluster} {each:,.1f} ms" for cluster, each in found.items() if each is not None]
    return [f"latency: {', '.join(known)}"] if known else []


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
