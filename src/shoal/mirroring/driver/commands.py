"""The commands of an operator to a running mirror: a name, and arguments by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from ...errors import ConfigError, ShoalError
from ...nearest import did_you_mean
from ..control import ControlServer
from ..model.incidents import IncidentKind
from ..model.steering_options import check_expression, parse_limit
from ..model.steering_status import rate_text
from ..model.text import first_few
from ..monitoring.door import CommandAnswer
from ..monitoring.metrics import Metrics
from .continuing import read_kind, stopped_by
from .schedule import PartitionSchedule
from .steering import Steering

__all__ = ["COMMANDS", "Commands"]


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


class Commands:
    """Carries out commands, in any thread."""

    def __init__(
        self,
        steering: Steering,
        schedule: PartitionSchedule,
        metrics: Metrics,
        control: ControlServer,
        *,
        stop: Callable[[], object],
        notify: Callable[[str], object],
        retry: Callable[[], object],
        create_lost: Callable[[str], object],
        once: bool = False,
    ) -> None:
        """
        Prepare to carry out commands.

        Args:
            stop: Ends the mirror.
            notify: Prints a sentence about a change.
            retry: Tries all stopped partitions again.
            create_lost: Creates the copy of a source topic if it is gone.
            once: Whether the mirror ends with its stopped partitions.

        """
        self._steering = steering
        self._schedule = schedule
        self._metrics = metrics
        self._control = control
        self._stop = stop
        self._notify = notify
        self._retry = retry
        self._create_lost = create_lost
        self._once = once

    def carry_out(self, name: str, arguments: Mapping[str, str]) -> CommandAnswer:
        """
        Carry out a command.

        Raises:
            ConfigError: There is no such command, or its arguments cannot be used.

        """
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
                return self._changed(self._pause(check_expression("pause", arguments["topics"])))
            case "resume":
                resumed = ", ".join(self._steering.resume(arguments.get("topics")))
                return self._changed(f"resumed {resumed}" if resumed else "no topic was paused")
            case "limit":
                return self._changed(self._limit(arguments["bytes"]))
        return self._changed(self._continue(arguments["topic"], arguments["kind"]))

    def _status(self) -> CommandAnswer:
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
        return CommandAnswer("\n".join(lines), {**asdict(progress), "steering": status.to_json_object()})

    def _changed(self, sentence: str) -> CommandAnswer:
        self._notify(f"by the control socket: {sentence}")
        return CommandAnswer(sentence, {"steering": self._steering.status.to_json_object()})

    def _pause(self, expression: str) -> str:
        count = len(self._steering.pause(expression))
        topics = f"{count:,} topic{'' if count == 1 else 's'}"
        return f"paused {expression} ({topics}, and those that are found later)"

    def _limit(self, text: str) -> str:
        bytes_per_s = None if text == "none" else parse_limit("limit", text)
        self._steering.limit(bytes_per_s)
        if bytes_per_s is None:
            return "the mirror has no limit"
        return f"limited the mirror to {rate_text(bytes_per_s)}"

    def _check_lasts(self, name: str, remedy: str) -> None:
        if self._once:
            raise ConfigError(f"{name}: a mirror with --once ends with its stopped partitions. {remedy}")

    def _continue(self, name: str, kind_name: str) -> str:
        self._check_lasts("continue", f"Run it again with --continue-after {kind_name}")
        kind = read_kind(kind_name)
        stopped = stopped_by(kind, name, self._metrics.partitions())
        if kind is IncidentKind.DESTINATION_LOSS:
            topic = stopped[0].topic
            try:
                self._create_lost(topic)
            except ShoalError as error:
                raise ConfigError(
                    f"continue: the copy of {topic} cannot be created again: {error}"
                ) from error
        self._schedule.try_again(stopped, kind)
        self._control.recall(stopped)
        return f"{first_few(stopped)} may continue after {kind.value}, this once"
