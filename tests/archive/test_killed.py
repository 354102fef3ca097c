"""Everything is killed in the middle of archiving and of restoring, and the copy is exact."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from shoal.client.coordinator import MemberId
from shoal.errors import Stopped
from shoal.verify import Outcome
from tests.archive.archiving import Archiving, stored
from tests.archive.task_process import TaskProcess
from tests.task_driver import Driver, Following
from tests.two_brokers import Killed, wait_until
from tests.world.source import SourcePartition

#: Ten times the time that a task takes on a busy machine.
_TASK_S = 120.0

#: A task has more checks of its lease than these before it is done.
_LATEST_CHECK = 60


class Mirror:
    """A driver whose tasks die: in the middle of a check in this process, or at any time as processes."""

    def __init__(self, driver: Driver, dice: random.Random) -> None:
        self._driver = driver
        self._dice = dice
        self._jobs = 1_000
        self._task: Following | TaskProcess | None = None
        driver.want(0)

    def begin(self, *, lives: bool = False) -> None:
        """Start a task: a process, or a thread that dies at a check of its lease."""
        self._driver.server.renew(MemberId(), 60.0)
        if not lives and self._dice.random() < 0.4:
            self._task = self._driver.start(self._dice.randint(0, _LATEST_CHECK))
            return
        self._jobs += 1
        server = self._driver.server
        self._task = TaskProcess(self._driver.brokers.settings, server.address, self._jobs)

    def kill(self) -> None:
        """Kill the task."""
        task = self._task
        assert task is not None
        if isinstance(task, Following):
            with suppress(Killed):
                task.kill()
        else:
            with suppress(Stopped):
                task.kill()
        wait_until(lambda: task.job not in self._driver.server.attempts)

    def end(self) -> None:
        """End the mirror in good order."""
        task = self._task
        assert task is not None
        self._driver.server.end_one(task.job)
        task.finish()
        assert not self._driver.stopped

    def close(self) -> None:
        """Kill a process that still runs: the test has failed."""
        if isinstance(self._task, TaskProcess) and self._task.is_running:
            self._task.kill()


def consumed(archiving: Archiving) -> list[tuple[int, bytes | None, bytes | None]]:
    """Read the restored topic with another project's consumer."""
    end = archiving.restoring.destination.log("topic", 0).last_stable_offset
    consumer = Consumer(
        {
            "bootstrap.servers": archiving.restoring.destination.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition("topic", 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + _TASK_S
        while time.monotonic() < deadline and consumer.position([TopicPartition("topic", 0)])[0].offset < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.timestamp()[1], message.key(), message.value()))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, *range(1_000, 1_060)))]
)
def test_archive_and_restore_are_exact_after_kills(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    bytes_and_time = dice.choice([1, 300, 3_000]), dice.choice([0.02, 0.3, 3.0])
    with ExitStack() as stack:
        archiving = stack.enter_context(
            Archiving.started(
                tmp_path / "archive", segment_bytes=bytes_and_time[0], segment_s=bytes_and_time[1]
            )
        )
        other = stack.enter_context(closing(Driver(archiving.restoring)))
        archiving.brokers.topic()
        log = archiving.brokers.source.log("topic", 0)
        source = SourcePartition(0, log, dice, keeps_append_time=False, has_keys=False)
        source.batch()  # a log that begins with a gap begins later in the archive
        archives = stack.enter_context(closing(Mirror(archiving.driver, dice)))
        restores = stack.enter_context(closing(Mirror(other, dice)))

        def kill_often(*mirrors: Mirror) -> None:
            for _ in range(dice.randint(2, 4)):
                for mirror in mirrors:
                    mirror.begin()
                for _ in range(dice.randint(0, 3) if archives in mirrors else 0):
                    source.grow()
                time.sleep(dice.uniform(0.0, 2.0))  # a process takes a second to begin
                for mirror in mirrors:
                    mirror.kill()

        is_at_once = dice.random() < 0.5
        kill_often(archives, *([restores] if is_at_once else []))
        source.grow()
        archives.begin(lives=True)
        wait_until(lambda: archiving.end() == log.last_stable_offset or bool(archiving.driver.stopped))
        archives.end()
        if not is_at_once:
            kill_often(restores)
        restores.begin(lives=True)
        expected = [each.content for each in source.records if each.is_shown]
        wait_until(lambda: len(archiving.restored()) >= len(expected) or bool(other.stopped))
        restores.end()
        assert archiving.content() == stored(log)
        assert archiving.restored() == expected
        assert archiving.verified() is Outcome.EQUAL
        assert consumed(archiving) == [(each.timestamp, each.key, each.value) for each in expected]
