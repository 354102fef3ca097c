"""The mirrors of the figures, as processes."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.account import Account, running
from bench.measure import MoverFailed
from rig.mirror_maker import MirrorMaker2
from rig.process import tail
from rig.shoal import SHOAL

__all__ = [
    "MM2_ALIAS",
    "RunningMirror",
    "environment_in",
    "mirror_maker_2",
    "mirroring",
]

_ENDS_S = 120.0

MM2_ALIAS = "mm2"


class RunningMirror:
    """A ``shoal mirror`` that runs."""

    def __init__(self, process: subprocess.Popen[bytes], account: Account, log: Path) -> None:
        self._process = process
        self._account = account
        self._log = log

    def check(self) -> None:
        """Raise MoverFailed if it has ended."""
        if self._process.poll() is not None:
            raise MoverFailed(f"shoal mirror ended with {self._process.returncode}:\n{tail(self._log)}")

    def cpu_s(self) -> float:
        """Return the CPU-seconds of all its processes so far."""
        self.check()
        return self._account.cpu().total_s

    def stop(self) -> None:
        """End it as an operator does, after its last commits."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(_ENDS_S) != 0:
            raise MoverFailed(f"shoal mirror ended with {self._process.returncode}:\n{tail(self._log)}")


@contextmanager
def mirroring(
    source: str, destination: str, directory: Path, name: str, *options: str, program: Sequence[str] = SHOAL
) -> Iterator[RunningMirror]:
    """Run ``shoal mirror`` in a ``with`` block; it is killed at the end if it still runs.

    Args:
        directory: Gets its state and its log.
        name: The beginning of the names of both.
        program: Arguments of Python that select the program.
    """
    log = directory / f"{name}.log"
    between = ("--from", source, "--to", destination)
    arguments = [sys.executable, *program, "mirror", *between, *options]
    with running(arguments, log, environment_in(directory)) as (process, account):
        yield RunningMirror(process, account, log)


def environment_in(directory: Path) -> dict[str, str]:
    """Return the variables with which shoal keeps its state in a directory."""
    return {"XDG_STATE_HOME": str(directory)}


#: The default, and a configuration that Kafka 4 refuses: with it, MirrorMaker 2 creates none of the topics.
_NOT_COPIED = (
    "follower\\.replication\\.throttled\\.replicas, leader\\.replication\\.throttled\\.replicas, "
    "message\\.timestamp\\.difference\\.max\\.ms, message\\.timestamp\\.type, "
    "unclean\\.leader\\.election\\.enable, min\\.insync\\.replicas, message\\.format\\.version"
)


def mirror_maker_2(source: str, destination: str, topics: str, groups: str, interval_s: int) -> MirrorMaker2:
    """Return a MirrorMaker 2 whose groups follow as often as those of a mirror of shoal.

    Its copies are ``mm2.TOPIC``. It leaves out aborted records, as shoal does: by default it copies them. Its
    own topic is at the destination, since a source of an old message format refuses its producer.
    """
    return MirrorMaker2(
        source,
        destination,
        topics,
        alias=MM2_ALIAS,
        properties={
            "tasks.max": 2,
            f"{MM2_ALIAS}.consumer.isolation.level": "read_committed",
            f"{MM2_ALIAS}->destination.groups": groups,
            f"{MM2_ALIAS}->destination.sync.group.offsets.enabled": "true",
            f"{MM2_ALIAS}->destination.emit.checkpoints.enabled": "true",
            f"{MM2_ALIAS}->destination.offset-syncs.topic.location": "target",
            "sync.group.offsets.interval.seconds": interval_s,
            "emit.checkpoints.interval.seconds": interval_s,
            "refresh.groups.interval.seconds": interval_s,
            "sync.topic.configs.enabled": "false",
            "config.properties.exclude": _NOT_COPIED,
        },
    )
