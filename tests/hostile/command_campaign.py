"""A hostile cluster against ``shoal mirror`` and ``shoal verify`` as processes, including Spark.

Few runs, since each takes a while; every fourth is a mirror, or as many as selected. After each, these
promises are checked: the process ended within :data:`RUN_S`, with a documented exit code, and printed no
traceback. A mirror copied only records of the source; and if the format of the responses alone showed the
lies, the copy is complete.
"""

from __future__ import annotations

import random
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rig.shoal import Shoal
from shoal import exit_codes
from shoal.protocol.apis import ApiKey
from tests.spark.mirror_command import PARTITIONS, RECORDS, Mirror, assert_copied, brokers_with_orders
from tests.two_brokers import TwoBrokers, content_of

from .lies import LIES, RECOGNISABLE, Told, lying_about

__all__ = ["CommandResult", "lie_to_commands"]

RUN_S = 280.0

#: Without the first requests of a start, since most runs would end there.
_ABOUT = {
    "verify": frozenset(ApiKey) - {ApiKey.API_VERSIONS},
    "mirror": frozenset(ApiKey) - {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS},
}
_DOCUMENTED = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}


@dataclass
class CommandResult:
    """Results of the runs.

    Attributes:
        ends: Number of runs by command and exit code.
        peak_bytes: Memory of the largest process, usually a JVM.
    """

    runs: int = 0
    told: Told = field(default_factory=Told)
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    longest_s: float = 0.0
    peak_bytes: int = 0
    problems: list[str] = field(default_factory=list)


def lie_to_commands(
    seed: int, *, first: int, runs: int, deadline: float, mirror_every: int = 4
) -> Iterator[CommandResult]:
    """Run commands one after the other, every fourth a mirror; yield the result so far after each."""
    result = CommandResult()
    for number in range(first, first + runs):
        if time.monotonic() > deadline or result.problems:
            return
        draw = random.Random(f"command:{seed}:{number}")
        command = "verify" if number % mirror_every else "mirror"
        lies = draw.choice((RECOGNISABLE, tuple(LIES)))
        side = draw.choice(("source", "destination"))
        began = time.monotonic()
        with brokers_with_orders() as brokers, tempfile.TemporaryDirectory() as room:
            about = _ABOUT[command]
            lied = getattr(brokers, side)
            if command == "verify":
                brokers.destination.create_topic("orders", PARTITIONS)
                assert brokers.run(brokers.ranges("orders")).complete
            with lying_about(about, lied, lies, draw.choice((0.05, 0.1, 0.3)), 20, draw, result.told):
                run = _mirror if command == "mirror" else _verify
                code, printed = run(brokers, Path(room))
            result.problems += [
                f"run {number}, {command}, {side} lies: {each}"
                for each in _problems(brokers, command, code, printed, are_recognisable=lies == RECOGNISABLE)
            ]
        result.runs += 1
        result.ends[command, code] += 1
        result.longest_s = max(result.longest_s, time.monotonic() - began)
        result.peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        yield result


def _mirror(brokers: TwoBrokers, room: Path) -> tuple[int, str]:
    return _ended(Mirror(brokers, room, "--once", "--checkpoint", str(room / "checkpoint")))


def _verify(brokers: TwoBrokers, room: Path) -> tuple[int, str]:
    between = ["--from", brokers.source.bootstrap, "--to", brokers.destination.bootstrap]
    return _ended(Shoal("verify", *between, "--topics", "orders"))


def _ended(command: Shoal) -> tuple[int, str]:
    with command:
        try:
            command.wait(RUN_S)
        except subprocess.TimeoutExpired:
            return -1, f"it hung; {command.stdout}{command.stderr}"
        return command.exit_code or 0, command.stdout + command.stderr


def _problems(
    brokers: TwoBrokers, command: str, code: int, printed: str, *, are_recognisable: bool
) -> Iterator[str]:
    if code not in _DOCUMENTED:
        yield f"exit code {code}: {printed[-3000:]}"
    if "Traceback" in printed or "unexpected" in printed:
        yield f"it printed {printed[-3000:]}"
    if command != "mirror" or brokers.destination.topics.get("orders") is None:
        return
    for partition in range(PARTITIONS):
        stored = content_of(brokers.source.log("orders", partition))
        copied = content_of(brokers.destination.log("orders", partition))
        if not all(each in stored for each in copied):
            yield f"partition {partition} has what the source does not have"
    if are_recognisable and code == 0:
        try:
            assert_copied(brokers, RECORDS)
        except AssertionError:
            yield "the mirror ended well, and the copy is not whole"
