"""Consumers that stop at one cluster and go on at the other, while everything is killed and cut.

A consumer counts a record as read when it has committed the offset behind it. Records that it read without a
commit it reads again, at whichever cluster; so does every consumer of Kafka, and no mirror could prevent it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import shoal
from rig.judge import Stay, Verdict, judge
from rig.read import read_topic
from shoal.client.config import ClientConfig
from shoal.errors import ShoalError
from shoal.mirroring.sync.report import GroupOffset
from tests.world.readers import are_exact, is_done

from .arena import Side
from .setup import GroupPlan, Setup

__all__ = ["MovingConsumers"]

#: Timeout of one stay, of one commit, and of one move. A broker is back within ten seconds, and the mirror,
#: if it was killed, within twenty.
_STAY_S = 30.0
_LAST_STAY_S = 120.0
_COMMIT_S = 60.0
_MOVE_S = 150.0

#: Interval between looks at the translation, and between attempts at a commit.
_LOOK_S = 0.5

Result = TypeVar("Result")


class _Failed(Exception):
    """A consumer could not read, commit or move in time; the text says what."""


class MovingConsumers:
    """The groups of a trial, each with one consumer in a thread.

    Attributes:
        problems: The reasons for which a consumer failed.
        moves: Number of changes of the cluster.
    """

    def __init__(self, setup: Setup, bootstraps: Mapping[Side, str], patience: float) -> None:
        """Prepare; nothing is read yet.

        Args:
            bootstraps: The brokers themselves: a proxy disturbs the mirror alone.
            patience: Factor of the timeouts.
        """
        self.problems: list[str] = []
        self._groups = [_MovingGroup(setup, each, bootstraps, patience) for each in setup.groups]
        self._source, self._topic = bootstraps[Side.SOURCE], setup.topic
        self._bootstraps = bootstraps
        self._threads: list[threading.Thread] = []

    @property
    def moves(self) -> int:
        return sum(each.moves for each in self._groups)

    @property
    def are_moving(self) -> bool:
        """Whether a stay but the last one is still to come, or not over."""
        return any(each.is_alive() for each in self._threads)

    def begin(self) -> None:
        """Begin all stays but the last ones, beside the mirror."""
        self._run(_MovingGroup.move_about)

    def end(self) -> None:
        """Give up whatever the consumers wait for, and wait for their end."""
        for each in self._groups:
            each.is_over.set()
        self._await()
        for each in self._groups:
            each.is_over.clear()

    def finish(self) -> None:
        """Bring all groups to the destination, which has everything, and read to the end."""
        self._run(_MovingGroup.read_on)
        self._await()

    def judge(self, *, to_end: bool) -> Verdict:
        """Compare what the groups have read and committed so far with the source.

        Args:
            to_end: Whether they have finished, so that each must have read everything.
        """
        read = [
            (group, {number: tuple(stays) for number, stays in group.stays.items()}) for group in self._groups
        ]
        found = read_topic(self._source, self._topic)
        keys = {number: [each.key for each in records] for number, records in found.items()}
        verdict = Verdict()
        for group, stays in read:
            for number, expected in keys.items():
                partition = judge(expected, stays.get(number, ()), to_end=to_end)
                verdict += partition.of(f"{group.plan.name}, partition {number}")
        return verdict

    def forget(self) -> None:
        """Delete the groups at both clusters, for a later trial with their names."""
        for bootstrap in self._bootstraps.values():
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            for deleted in admin.delete_consumer_groups([each.plan.name for each in self._groups]).values():
                with suppress(KafkaException):  # it never came here
                    deleted.result()

    def _run(self, do: Callable[[_MovingGroup], None]) -> None:
        def safely(group: _MovingGroup) -> None:
            try:
                do(group)
            except Exception as error:
                # In its own thread the exception would be lost.
                if not group.is_over.is_set():
                    self.problems.append(f"{group.plan.name}: {type(error).__name__}: {error}")

        self._threads = [
            threading.Thread(target=safely, args=(each,), name=each.plan.name) for each in self._groups
        ]
        for thread in self._threads:
            thread.start()

    def _await(self) -> None:
        for thread in self._threads:
            thread.join()


class _MovingGroup:
    """One group.

    Attributes:
        stays: Its stays by partition.
        is_over: Set when the trial ends before its time.
    """

    def __init__(
        self, setup: Setup, group: GroupPlan, bootstraps: Mapping[Side, str], patience: float
    ) -> None:
        self.plan = group
        self.stays: dict[int, list[Stay]] = {number: [] for number in range(setup.partitions)}
        self.moves = 0
        self.is_over = threading.Event()
        self._setup = setup
        self._bootstraps = bootstraps
        self._patience = patience
        self._side = Side.SOURCE
        self._has_begun = False
        self._is_exact: dict[int, bool] = {}

    def move_about(self) -> None:
        """Read at both clusters in turn; the last planned stay is not left yet."""
        for number, stay in enumerate(self.plan.stays):
            if number:
                self._move(applies=stay.applies)
            self._stay(stay.most)

    def read_on(self) -> None:
        """Go to the destination if the group is not there, and read to the end."""
        if self._side is Side.SOURCE:
            self._move(applies=True)
        self._stay(None)

    # Reading

    def _stay(self, most: int | None) -> None:
        """Read, commit and leave; keep the records that are committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstraps[self._side],
                "group.id": self.plan.name,
                "group.protocol": self.plan.protocol(self._side),
                # A partition of which the group has not read anything has no offset at either cluster.
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
                **({"session.timeout.ms": 10_000} if self.plan.protocol(self._side) == "classic" else {}),
            }
        )
        try:
            consumer.subscribe([self._setup.topic])
            read = self._read(consumer, most)
            # A member that was removed meanwhile cannot commit: it has not read anything.
            with suppress(KafkaException):
                self._persistently(lambda: consumer.commit(asynchronous=False), "commit", _is_transient)
        finally:
            consumer.close()
        committed = self._committed()
        self._has_begun = any(offset >= 0 for offset in committed.values())
        for number, records in read.items():
            kept = tuple(key for offset, key in records if offset < committed.get(number, 0))
            exact = self._is_exact.get(number, True)
            self.stays[number].append(Stay(self._side.value, exact, kept))

    def _read(self, consumer: Consumer, most: int | None) -> dict[int, list[tuple[int, bytes | None]]]:
        read: dict[int, list[tuple[int, bytes | None]]] = {number: [] for number in self.stays}
        ended: set[int] = set()
        limit_s = _LAST_STAY_S if most is None else _STAY_S
        deadline = time.monotonic() + limit_s * self._patience
        while not self.is_over.is_set() and time.monotonic() < deadline:
            if most is not None and sum(map(len, read.values())) >= most:
                return read
            assigned = {each.partition for each in consumer.assignment()}
            if assigned == read.keys() and assigned <= ended:
                return read
            message = consumer.poll(0.2)
            if message is None:
                continue
            number, error = message.partition() or 0, message.error()
            if error is None:
                try:
                    consumer.store_offsets(message)
                except KafkaException:
                    continue  # the partition was just revoked
                offset, before = message.offset() or 0, read[number]
                while before and before[-1][0] >= offset:
                    before.pop()  # after a rebalance it reads again what it has not committed
                before.append((offset, message.key()))
                ended.discard(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(number)
        if most is None:
            raise _Failed(f"the last stay did not come to the end; ends of {sorted(ended)}")
        return read

    def _committed(self) -> dict[int, int]:
        """Return the group's offsets where it is now."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstraps[self._side], "group.id": self.plan.name, "log_level": 0}
        )
        asked = [TopicPartition(self._setup.topic, number) for number in self.stays]

        def committed() -> dict[int, int]:
            found = consumer.committed(asked, timeout=10)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
            return {each.partition: each.offset for each in found}

        try:
            return self._persistently(committed, "read its offsets")
        finally:
            consumer.close()

    def _persistently(
        self, do: Callable[[], Result], what: str, may_retry: Callable[[Exception], bool] = lambda error: True
    ) -> Result:
        deadline = time.monotonic() + _COMMIT_S * self._patience
        while True:
            try:
                return do()
            except (KafkaException, ShoalError) as error:
                if not may_retry(error):
                    raise
                if self.is_over.is_set() or time.monotonic() > deadline:
                    raise _Failed(f"cannot {what}: {error}") from error
            self.is_over.wait(_LOOK_S)

    # Moving

    def _move(self, *, applies: bool) -> None:
        """Wait until the other cluster has the group's offsets, and go there."""
        is_back = self._side is Side.DESTINATION
        began = time.monotonic()
        offsets: list[GroupOffset] | None = None
        # A group without any offset begins at the first record, wherever it is.
        while self._has_begun:
            with suppress(ShoalError):
                offsets = self._translated(apply=applies or is_back, reverse=is_back)
                if offsets is not None and all(map(is_done, offsets)):
                    break
            if self.is_over.is_set() or time.monotonic() - began > _MOVE_S * self._patience:
                raise _Failed(f"cannot leave the {self._side.value}: {offsets}")
            self.is_over.wait(_LOOK_S)
        self._is_exact = are_exact(offsets or ())
        self._side = Side.SOURCE if is_back else Side.DESTINATION
        self.moves += 1

    def _translated(self, *, apply: bool, reverse: bool) -> list[GroupOffset] | None:
        """Return the translation of each committed offset; None if the group is not seen."""
        mirror = shoal.MirrorOptions(
            ClientConfig.given("source", self._client(Side.SOURCE), None),
            ClientConfig.given("destination", self._client(Side.DESTINATION), None),
            shoal.TopicSelection(self._setup.topic),
            group=self._setup.topic,
            groups=re.escape(self.plan.name),
        )
        report = shoal.translate_offsets(mirror, apply=apply, reverse=reverse)
        if not report.groups or report.untranslated:
            return None
        return [each for group in report.groups for each in group.offsets]

    def _client(self, side: Side) -> dict[str, str]:
        return {"bootstrap.servers": self._bootstraps[side], "isolation.level": self._setup.isolation}


def _is_transient(error: Exception) -> bool:
    """Whether the same commit can succeed later: the member is one still."""
    reason = error.args[0]
    return isinstance(reason, KafkaError) and reason.code() in (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
