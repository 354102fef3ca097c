"""A hostile cluster against all clients: the mirror's engine, verify, group members, producers, commands.

In trials. In each, a victim sends requests to embedded brokers, one of which lies in a share of its
responses, up to a number of lies. The brokers run in this process, and so
do the victims but for the commands, which are processes, Spark's included. After each trial, these
promises are checked:

- the victim ended by itself, within :data:`VICTIM_S`, as expected or with an error of shoal's; a command with
  a documented exit code, and without a traceback;
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
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from rig.process import forget_peak_rss_of, peak_rss_of
from rig.shoal import Shoal
from rig.wait import TimedOut, wait_until
from shoal import exit_codes
from shoal.client import backoff
from shoal.client.consumer import RawConsumer
from shoal.client.producer import RawProducer
from shoal.errors import ShoalError
from shoal.protocol.apis import ApiKey
from shoal.verify import verify
from shoal_broker import Broker
from tests.spark.mirror_command import PARTITIONS, RECORDS, Mirror, assert_copied, brokers_with_orders
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of
from tests.world.control import Watched
from tests.world.history import ABORT, COMMIT, History
from tests.world.task import TaskResult

from .liar import LIES, RECOGNISABLE, lying
from .result import Result

__all__ = ["CLIENTS", "COMMANDS", "VICTIMS", "lie_to_all"]

VICTIM_S = 280.0
BACK_S = 20.0
MOST_BYTES = 1 << 30

_MOST_LIES = 12
_TASK_S = 200.0
_CLIENT_S = 3.0
_REQUEST_TIMEOUT_MS = 250
_IMPATIENT = {"request.timeout.ms": _REQUEST_TIMEOUT_MS, "retry.backoff.ms": 10, "retry.backoff.max.ms": 50}

_READS = (ApiKey.METADATA, ApiKey.FETCH, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
_GROUP = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
_WRITES = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
_MEMBER = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
#: The APIs that each victim uses; of commands without the first requests, since most runs would end there.
_ASKED = {
    "mirror": (*_READS, *_GROUP, *_WRITES),
    "verify": (*_READS, *_GROUP),
    "group": (*_READS, *_GROUP, *_MEMBER),
    "producer": _WRITES,
    "shoal mirror": (
        *(*_READS[1:], *_GROUP, *_WRITES[1:], *_MEMBER),
        *(ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS),
    ),
    "shoal verify": (*_READS, *_GROUP),
}


@dataclass(frozen=True)
class _Trial:
    """
    One trial, drawn from its seed and number.

    Attributes:
        victim: The client that gets the lies.
        side: The side of the lying cluster.
        lies: Kinds of lies.
        rate: Share of the responses that lie.
        most: Largest number of lies.
        about: APIs of the lying responses.

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
    def are_recognisable(self) -> bool:
        return set(self.lies) <= set(RECOGNISABLE)

    @contextmanager
    def lying(self, broker: Broker) -> Iterator[Counter[str]]:
        draw = random.Random(f"{self.seed}:{self.number}")
        lies = [LIES[each] for each in self.lies]
        with lying(broker, self.about, lies, draw, most=self.most, rate=self.rate) as told:
            yield told


def _drawn(seed: int, number: int, victims: Sequence[str]) -> _Trial:
    draw = random.Random(f"trial:{seed}:{number}")
    kinds = draw.choice((RECOGNISABLE, tuple(LIES), tuple(LIES)))
    victim = draw.choice(victims)
    # Otherwise most lies would affect the first requests of each connection.
    asked = draw.sample(_ASKED[victim], draw.randint(1, 3)) if draw.random() < 0.8 else _ASKED[victim]
    return _Trial(
        seed,
        number,
        victim,
        draw.choice(("source", "destination")),
        tuple(draw.sample(kinds, draw.randint(1, 3))),
        draw.choice((0.1, 0.3, 0.7, 1.0)),
        draw.randint(1, _MOST_LIES),
        frozenset(asked),
    )


def lie_to_all(seed: int, lies: int, victims: Sequence[str], *, first: int = 0) -> Iterator[Result]:
    """Run trials up to this many lies; yield the result so far, and end at a broken promise."""
    result = Result("cluster")
    forget_peak_rss_of(os.getpid())  # if the process has run other tests, it may have needed more before
    number = first
    with _Complaints() as complaints, _hurried():
        while result.counts["lies"] < lies and not result.problems:
            trial = _drawn(seed, number, victims)
            _run(trial, result)
            result.see("MB", peak_rss_of(os.getpid()) / 1e6)
            if peak_rss_of(os.getpid()) > MOST_BYTES:
                result.problems.append("it needed too much memory")
            result.problems += complaints.since_last()
            result.problems = [f"{trial}: {each}" for each in result.problems]
            number += 1
            yield result


def _run(trial: _Trial, result: Result) -> None:
    before, began = _held(), time.monotonic()
    ended: list[str] = []

    def run() -> None:
        try:
            how, lies = VICTIMS[trial.victim](trial)
            ended.append(f"times {trial.victim}: {how}")
            result.counts["lies"] += lies
        except BaseException as error:
            result.problems.append("".join(traceback.format_exception(error)))

    thread = threading.Thread(target=run, name="victim", daemon=True)
    thread.start()
    thread.join(VICTIM_S)
    result.see("seconds of a trial", time.monotonic() - began)
    if thread.is_alive():
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            result.problems.append(f"it hung\n{file.read()}")
        return
    result.counts.update(ended)
    with suppress(TimedOut):
        wait_until(lambda: all(now <= then for now, then in zip(_held(), before, strict=True)), "", BACK_S)
        return
    names = sorted(each.name for each in threading.enumerate())
    result.problems.append(f"threads and descriptors {_held()}, {before} before: {names}")


def _held() -> tuple[int, int]:
    """Return the numbers of threads and descriptors."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


class _Complaints(logging.Handler):
    """Collects logged errors and the exceptions of which threads died."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Complaints:
        logging.getLogger().addHandler(self)
        self._stack.callback(logging.getLogger().removeHandler, self)
        self._stack.enter_context(patch.object(threading, "excepthook", self._died))
        self._stack.enter_context(patch.object(sys, "unraisablehook", self._died))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(f"logged: {self.format(record)}")

    def _died(self, what: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
        trace = traceback.format_exception(what.exc_value) if what.exc_value else [str(what)]
        self._found.append(f"unhandled: {''.join(trace)}")

    def since_last(self) -> list[str]:
        found, self._found = self._found, []
        return found


@contextmanager
def _hurried() -> Iterator[None]:
    """Shorten all retry delays: the awaited condition comes at once here, or never."""
    original = backoff.Backoff.__init__

    def at_once(self: backoff.Backoff, first_ms: int = 1, longest_ms: int = 20) -> None:
        original(self, 1, 20)

    with patch.object(backoff.Backoff, "__init__", at_once):
        yield


# Victims: each returns how it ended, and the number of lies.


def _how(outcome: object) -> str:
    return type(outcome).__name__ if isinstance(outcome, BaseException) else "whole"


def _mirror(trial: _Trial) -> tuple[str, int]:
    with TwoBrokers.started(multi_batch=trial.number % 2 == 0) as stack:
        histories = _filled(stack)
        brokers = _with_timeout(stack, _REQUEST_TIMEOUT_MS)
        with trial.lying(getattr(brokers, trial.side)) as told:
            outcome = _run_task(brokers)
        _check_copies(brokers, histories, in_order=trial.are_recognisable)
        again = _run_task(_with_timeout(stack, 20_000))
        _check_copies(brokers, histories, in_order=trial.are_recognisable)
        if trial.are_recognisable:
            assert again == TaskResult((), complete=True), again
            copied = [brokers.copied(partition=number) for number in range(len(histories))]
            assert copied == [each.committed for each in histories]
    return _how(outcome), told.total()


def _filled(stack: TwoBrokers) -> list[History]:
    histories = stack.topic(partitions=2)
    for history in histories:
        history.plain(3, 3).holed(4, [1]).transaction(2, ends=ABORT).transaction(2, ends=COMMIT).empty()
        history.plain(2, 2)
    return histories


def _with_timeout(stack: TwoBrokers, timeout_ms: int) -> TwoBrokers:
    """Change the request timeout: a short one for lies, a long one for a busy machine."""
    return stack.with_settings(
        source=replace(stack.settings.source, request_timeout_ms=timeout_ms),
        destination=replace(stack.settings.destination, request_timeout_ms=timeout_ms),
        timing=replace(stack.settings.timing, commit_interval_s=0.0),
    )


def _run_task(brokers: TwoBrokers) -> TaskResult | ShoalError:
    """Run a task to its end; if it raises, that must be one of shoal's errors."""
    control = Watched()
    running = brokers.start(control=control)
    if not running.ends_within(_TASK_S / 2):
        control.request_stop()
    try:
        return running.result(timeout_s=_TASK_S / 2)
    except ShoalError as error:
        return error


def _check_copies(brokers: TwoBrokers, histories: list[History], *, in_order: bool) -> None:
    """Check that the destination has only records of the source; in their order if no lie could be true."""
    for number, history in enumerate(histories):
        copied = brokers.copied(partition=number)
        # If a transaction was aborted, only the source's answer shows it.
        assert all(each in history.uncommitted for each in copied)
        assert not in_order or _is_in_order_among(copied, history.uncommitted)


def _is_in_order_among(copied: list[Content], stored: list[Content]) -> bool:
    left = iter(stored)
    return all(each in left for each in copied)


def _verify(trial: _Trial) -> tuple[str, int]:
    with TwoBrokers.started() as stack:
        _filled(stack)
        assert stack.run().complete
        brokers = _with_timeout(stack, _REQUEST_TIMEOUT_MS)
        source, destination = brokers.settings.source, brokers.settings.destination
        outcome: object = None
        with trial.lying(getattr(brokers, trial.side)) as told:
            try:
                verify(source, destination, {"topic": "topic"}, group=brokers.settings.group, patience_s=1)
            except ShoalError as error:
                outcome = error
    return _how(outcome), told.total()


def _group(trial: _Trial) -> tuple[str, int]:
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
    outcome: object = None
    with _broker_with_records() as broker, ExitStack() as stack, trial.lying(broker) as told:
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
    return _how(outcome), told.total()


def _producer(trial: _Trial) -> tuple[str, int]:
    properties = {
        **_IMPATIENT,
        "delivery.timeout.ms": 2000,
        "max.block.ms": 1000,
        "compression.type": ("none", "gzip", "zstd")[trial.number % 3],
    }
    outcome: object = None
    with _broker_with_records() as broker, trial.lying(broker) as told:
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
    return _how(outcome), told.total()


@contextmanager
def _broker_with_records() -> Iterator[Broker]:
    with TwoBrokers.started() as stack:
        _filled(stack)
        yield stack.source


def _suppressing(call: Callable[[], object]) -> Callable[[], None]:
    def suppressed() -> None:
        with contextlib.suppress(ShoalError):
            call()

    return suppressed


def _command(trial: _Trial) -> tuple[str, int]:
    """Run `shoal mirror` or `shoal verify` as a process."""
    is_mirror = trial.victim == "shoal mirror"
    with brokers_with_orders() as brokers, tempfile.TemporaryDirectory() as name:
        if not is_mirror:
            brokers.destination.create_topic("orders", PARTITIONS)
            assert brokers.run(brokers.ranges("orders")).complete
        with trial.lying(getattr(brokers, trial.side)) as told:
            room = Path(name)
            run = (
                Mirror(brokers, room, "--once", "--checkpoint", str(room / "checkpoint"))
                if is_mirror
                else Shoal("verify", *brokers.between, "--topics", "orders")
            )
            with run:
                run.wait(VICTIM_S)
        printed = run.stdout + run.stderr
        assert run.exit_code in _DOCUMENTED, (run.exit_code, printed)
        assert "Traceback" not in printed, printed
        assert "unexpected" not in printed, printed
        if is_mirror and brokers.destination.topics.get("orders") is not None:
            for partition in range(PARTITIONS):
                stored = content_of(brokers.source.log("orders", partition))
                copied = content_of(brokers.destination.log("orders", partition))
                assert all(each in stored for each in copied)
            if trial.are_recognisable and run.exit_code == 0:
                assert_copied(brokers, RECORDS)
    return f"exit code {run.exit_code}", told.total()


_DOCUMENTED = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}

#: The victims, by name; several times if more trials have them.
CLIENTS = ("mirror", "mirror", "mirror", "verify", "group", "group", "producer")
COMMANDS = ("shoal mirror", "shoal verify", "shoal verify", "shoal verify")

VICTIMS: dict[str, Callable[[_Trial], tuple[str, int]]] = {
    "mirror": _mirror,
    "verify": _verify,
    "group": _group,
    "producer": _producer,
    "shoal mirror": _command,
    "shoal verify": _command,
}
