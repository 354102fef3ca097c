"""A hostile cluster against all clients: the mirror's engine, verify, group members, producers, clients.

In trials. In each, a victim sends requests to embedded brokers, one of which lies in a share of its
responses, up to a number of lies. Victim and brokers run in this process. After each trial, these promises
are checked:

- the victim ended by itself, within :data:`VICTIM_S`, as expected or with an error of shoal's;
- a mirror copied only records of the source; and if the format of the responses alone showed the lies,
  the copy is in order, has no duplicates and is complete in the end;
- no thread died of an exception, and no error was logged;
- threads and descriptors are back to their former numbers, within :data:`BACK_S`;
- this process never needed more memory than :data:`MOST_BYTES`.

A seed repeats the trials, but not the order in which threads send requests.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

from rig.copying import TaskResult
from shoal.client.cluster import Cluster
from shoal.client.consumer import RawConsumer
from shoal.client.producer import RawProducer
from shoal.errors import ShoalError
from shoal.protocol.apis import ApiKey
from shoal.verify import verify
from shoal_broker import Broker
from tests.fuzz.copy_tasks import check, filled, hurried, patient, run_task
from tests.fuzz.liar import changed_fields, no_kafka
from tests.fuzz.questions import QUESTIONS, impatient_config
from tests.two_brokers import TwoBrokers

from .lies import LIES, RECOGNISABLE, Told, lying_about

__all__ = ["VICTIMS", "ClusterResult", "Watch", "lie_to_all"]

_MEGABYTE = 1 << 20

VICTIM_S = 120.0
BACK_S = 20.0
MOST_BYTES = 1024 * _MEGABYTE

_MOST_LIES = 12
_CLIENT_S = 3.0

_READS = (ApiKey.METADATA, ApiKey.FETCH, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
_GROUP = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
_WRITES = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
_MEMBER = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
#: The APIs that each victim uses.
_ASKED = {
    "mirror": (*_READS, *_GROUP, *_WRITES),
    "verify": (*_READS, *_GROUP),
    "group": (*_READS, *_GROUP, *_MEMBER),
    "producer": _WRITES,
    "client": (*_READS, *_GROUP, *_WRITES, *_MEMBER, ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS),
}

_IMPATIENT = {
    "request.timeout.ms": 250,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
}


@dataclass
class ClusterResult:
    """Results of a campaign.

    Attributes:
        told: The lies, by kind and API.
        ends: Results of the victims: by their name and ``whole`` or the error's class.
        problems: The broken promises, each with its trial.
    """

    trials: int = 0
    told: Told = field(default_factory=Told)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    longest_s: float = 0.0
    longest: str = ""
    peak_bytes: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Trial:
    """One trial, drawn from its seed and number.

    Attributes:
        victim: The client that gets the lies.
        side: The side of the lying cluster.
        lies: Kinds of lies.
        rate: Share of the responses that lie.
        most: Largest number of lies.
        about: APIs of the lying responses; any if there are none.
    """

    seed: int
    number: int
    victim: str
    side: str
    lies: tuple[str, ...]
    rate: float
    most: int
    about: frozenset[ApiKey]

    @property
    def draw(self) -> random.Random:
        return random.Random(f"{self.seed}:{self.number}")

    @property
    def are_recognisable(self) -> bool:
        return set(self.lies) <= set(RECOGNISABLE)

    def __str__(self) -> str:
        about = ", ".join(sorted(each.name for each in self.about)) or "any API"
        lies = ", ".join(self.lies)
        return f"trial {self.number}: {self.side} lies to {self.victim} ({lies}), {about}"


def _drawn(seed: int, number: int) -> _Trial:
    draw = random.Random(f"trial:{seed}:{number}")
    kinds = draw.choice((RECOGNISABLE, tuple(LIES), tuple(LIES)))
    victim = draw.choice(("mirror", "mirror", "mirror", "verify", "group", "group", "producer", "client"))
    return _Trial(
        seed,
        number,
        victim,
        draw.choice(("source", "destination")),
        tuple(draw.sample(kinds, draw.randint(1, 3))),
        draw.choice((0.1, 0.3, 0.7, 1.0)),
        draw.randint(1, _MOST_LIES),
        # Otherwise most lies would affect the first requests of each connection.
        frozenset(draw.sample(_ASKED[victim], draw.randint(1, 3)) if draw.random() < 0.8 else ()),
    )


def lie_to_all(seed: int, *, first: int, lies: int, deadline: float) -> Iterator[ClusterResult]:
    """Run trials up to this many lies; yield the result so far, and end at a broken promise."""
    result = ClusterResult()
    began = time.monotonic()
    number = first
    # If the process has run other tests, it may have needed more before.
    most_bytes = max(MOST_BYTES, _peak_bytes())
    with Watch() as watch, hurried():
        while result.told.total() < lies and time.monotonic() < deadline and not result.problems:
            trial = _drawn(seed, number)
            _run(trial, result, watch)
            result.peak_bytes = _peak_bytes()
            if result.peak_bytes > most_bytes:
                result.problems.append(f"{trial}: it needed {result.peak_bytes // _MEGABYTE} MB")
            number += 1
            result.trials += 1
            result.seconds = time.monotonic() - began
            yield result


def _run(trial: _Trial, result: ClusterResult, watch: Watch) -> None:
    before = watch.held()
    began = time.monotonic()
    ended: list[str | BaseException] = []

    def run() -> None:
        try:
            ended.append(VICTIMS[trial.victim](trial, result.told))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run, name="victim", daemon=True)
    thread.start()
    thread.join(VICTIM_S)
    took_s = time.monotonic() - began
    if took_s > result.longest_s:
        result.longest_s, result.longest = took_s, str(trial)
    if thread.is_alive():
        result.problems.append(f"{trial}: it hung\n{_stacks()}")
        return
    match ended:
        case [str(how)]:
            result.ends[trial.victim, how] += 1
        case [BaseException() as error]:
            result.problems.append(f"{trial}: {type(error).__name__}: {error}\n{_trace(error)}")
    result.problems += [f"{trial}: {each}" for each in watch.complaints(before)]


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Victims


@contextmanager
def _lying(trial: _Trial, broker: Broker, told: Told) -> Iterator[None]:
    about = trial.about or frozenset(ApiKey)
    with lying_about(about, broker, trial.lies, trial.rate, trial.most, trial.draw, told):
        yield


def _mirror(trial: _Trial, told: Told) -> str:
    with TwoBrokers.started(multi_batch=trial.number % 2 == 0) as stack:
        brokers, histories = filled(stack)
        # `check` requires the order only if no lie could be true.
        strictness = no_kafka if trial.are_recognisable else changed_fields
        with _lying(trial, getattr(brokers, trial.side), told):
            outcome = run_task(brokers)
        check(brokers, histories, strictness)
        again = run_task(patient(brokers))
        check(brokers, histories, strictness)
        if trial.are_recognisable:
            assert again == TaskResult((), complete=True), again
            copied = [brokers.copied(partition=number) for number in range(len(histories))]
            assert copied == [each.committed for each in histories]
    return _how(outcome)


def _verify(trial: _Trial, told: Told) -> str:
    with TwoBrokers.started() as stack:
        brokers, _ = filled(stack)
        assert patient(brokers).run().complete
        source, destination = brokers.settings.source, brokers.settings.destination
        with _lying(trial, getattr(brokers, trial.side), told):
            try:
                verify(source, destination, {"topic": "topic"}, group=brokers.settings.group, patience_s=1)
            except ShoalError as error:
                return type(error).__name__
    return "whole"


def _group(trial: _Trial, told: Told) -> str:
    """Run two members of a group that read, commit and leave."""
    properties = {
        **_IMPATIENT,
        "group.id": "group",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 6000,
        "fetch.max.wait.ms": 50,
        "default.api.timeout.ms": 1000,
        "fetch.raw.bytes": trial.number % 2 == 0,
        "isolation.level": ("read_committed", "read_uncommitted")[trial.number // 2 % 2],
    }
    with _broker_with_records() as broker, ExitStack() as stack:
        outcome: object = None
        with _lying(trial, broker, told):
            members = [RawConsumer({**properties, "bootstrap.servers": broker.bootstrap}) for _ in range(2)]
            for each in members:
                stack.callback(_suppressing(each.close))
                each.subscribe(["topic"])
            ends = time.monotonic() + _CLIENT_S
            while time.monotonic() < ends:
                for each in members:
                    try:
                        if each.poll(0.05):
                            each.commit()
                    except ShoalError as error:
                        outcome = error
    return _how(outcome)


def _producer(trial: _Trial, told: Told) -> str:
    properties = {
        **_IMPATIENT,
        "delivery.timeout.ms": 2000,
        "max.block.ms": 1000,
        "compression.type": ("none", "gzip", "zstd")[trial.number % 3],
    }
    outcome: object = None
    with _broker_with_records() as broker, _lying(trial, broker, told):
        producer = RawProducer({**properties, "bootstrap.servers": broker.bootstrap})
        try:
            for number in range(40):
                producer.send("topic", b"value %d" % number, key=b"%d" % number)
            producer.flush(_CLIENT_S)
            outcome = producer.failure
        except ShoalError as error:
            outcome = error
        finally:
            _suppressing(lambda: producer.close(_CLIENT_S))()
    return _how(outcome)


def _client(trial: _Trial, told: Told) -> str:
    """Make every call of a client, one after the other, in any order."""
    draw = random.Random(f"questions:{trial.seed}:{trial.number}")
    outcome: object = None
    with _broker_with_records() as broker, _lying(trial, broker, told):
        for question in draw.sample(list(QUESTIONS), 5):
            try:
                with Cluster(impatient_config(broker)) as cluster:
                    question(cluster)
            except ShoalError as error:
                outcome = error
    return _how(outcome)


#: The victims, by name.
VICTIMS: dict[str, Callable[[_Trial, Told], str]] = {
    "mirror": _mirror,
    "verify": _verify,
    "group": _group,
    "producer": _producer,
    "client": _client,
}


@contextmanager
def _broker_with_records() -> Iterator[Broker]:
    with TwoBrokers.started() as stack:
        filled(stack)
        yield stack.source


def _suppressing(call: Callable[[], object]) -> Callable[[], None]:
    def suppressed() -> None:
        with contextlib.suppress(ShoalError):
            call()

    return suppressed


def _how(outcome: object) -> str:
    return type(outcome).__name__ if isinstance(outcome, BaseException) else "whole"


# Observation


class Watch(logging.Handler):
    """Collects logged errors and died threads, and counts this process's threads and descriptors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._stack.callback(logging.getLogger().removeHandler, self)
        self._stack.enter_context(patch.object(threading, "excepthook", self._died))
        self._stack.enter_context(patch.object(sys, "unraisablehook", self._died))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(f"logged: {self.format(record)}")

    def _died(self, what: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
        error = what.exc_value
        self._found.append(f"unhandled: {type(error).__name__}: {error}\n{_trace(error)}")

    @staticmethod
    def held() -> tuple[int, int]:
        """Return the numbers of threads and descriptors."""
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    def complaints(self, before: tuple[int, int]) -> Sequence[str]:
        """Return the problems since the last call, and threads or descriptors that are left over."""
        deadline = time.monotonic() + BACK_S
        while any(now > then for now, then in zip(self.held(), before, strict=True)):
            if time.monotonic() > deadline:
                names = sorted(each.name for each in threading.enumerate())
                self._found.append(f"threads and descriptors {self.held()}, {before} before: {names}")
                break
            time.sleep(0.02)
        found, self._found = self._found, []
        return found


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def _trace(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error is not None else ""
