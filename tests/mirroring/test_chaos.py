"""
Everything goes wrong at random, and the destination holds the source's records all the same.

A seed that fails is a test to be written down in ``test_copy_loop`` or
``task/resume/test_resume``, in the few steps that matter.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import MultiBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal_broker import Broker
from tests.two_brokers import ABORT, COMMIT, NOW_MS, History, Killed, Mortal, TwoBrokers, Watched, wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("quick_retries")]

DAY_MS = 86_400_000

#: Errors that a broker may return and that end later.
PASSING: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.PRODUCE: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ApiKey.FETCH: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE],
    ApiKey.METADATA: [ErrorCode.LEADER_NOT_AVAILABLE],
    ApiKey.LIST_OFFSETS: [ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [ErrorCode.FENCED_LEADER_EPOCH],
    ApiKey.OFFSET_FETCH: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    ApiKey.OFFSET_COMMIT: [ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS],
    ApiKey.FIND_COORDINATOR: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ApiKey.INIT_PRODUCER_ID: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
}


def go_on(history: History, dice: random.Random) -> None:
    """Let something happen in a partition of the source."""
    counts = [dice.randint(1, 4) for _ in range(dice.randint(1, 4))]
    codec = dice.choice(list(Codec))
    match dice.randrange(6):
        case 0:
            history.transaction(*counts, ends=dice.choice([ABORT, COMMIT]), producer_id=dice.randint(1, 3))
        case 1:
            history.gap(dice.randint(1, 5)).plain(*counts)
        case 2:
            history.empty(dice.randint(1, 3))
        case _:
            history.plain(*counts, codec=codec)


def trouble(broker: Broker, dice: random.Random) -> None:
    """Let a request of some kind, some time from now, go wrong."""
    api = dice.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.FETCH, *PASSING])
    broker.faults.add(api, times=dice.randint(1, 8))  # so many pass
    how: dict[str, Any]
    if dice.random() < 0.5:
        how = {"drop": dice.choice(["before", "within", "after"])}
    else:
        how = {"error": dice.choice(PASSING[api])}
        if api in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
            how["effect"] = dice.choice(["before", "after"])
        if dice.random() < 0.5 and api in (ApiKey.PRODUCE, ApiKey.FETCH):
            how["partition"] = 0
    broker.faults.add(api, times=dice.randint(1, 2), **how)


def assert_exact(brokers: TwoBrokers, histories: list[History]) -> None:
    for number, history in enumerate(histories):
        assert brokers.copied("topic", number) == history.committed, f"partition {number}"


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> Iterator[TwoBrokers]:
    """Every second destination takes several batches in a request."""
    seed = request.getfixturevalue("seed") if "seed" in request.fixturenames else 0
    with TwoBrokers.started(multi_batch=seed % 2 == 1) as started:
        yield started.with_settings(multi_batch=MultiBatch.AUTO)


def with_some_settings(brokers: TwoBrokers, dice: random.Random) -> TwoBrokers:
    return brokers.with_settings(
        fetch_buffer_bytes=65_536 + dice.choice([300, 1_000, 100_000]),
        commit_interval_ms=dice.choice([0, 5, 60_000]),
    )


@pytest.mark.parametrize("seed", range(12))
def test_tasks_failing_at_random_neither_lose_nor_duplicate(brokers: TwoBrokers, seed: int) -> None:
    dice = random.Random(seed)
    brokers = with_some_settings(brokers, dice)
    histories = brokers.topic("topic", dice.randint(1, 3))
    for history in histories:
        history.base_timestamp = dice.choice([NOW_MS, NOW_MS - 30 * DAY_MS])
    for _ in range(12):
        for history in histories:
            go_on(history, dice)
        for _ in range(dice.randint(0, 3)):
            trouble(dice.choice([brokers.source, brokers.destination]), dice)
        if dice.random() < 0.2:
            for log in brokers.destination.topics.topic("topic").logs:
                log.forget_expired_producers(NOW_MS, DAY_MS)
        try:
            control = Mortal(dice.randint(0, 25)) if dice.random() < 0.7 else Watched()
            brokers.start(control=control).result(60.0)
        except Killed:
            continue
        assert_exact(brokers, histories)
    brokers.source.faults.clear()
    brokers.destination.faults.clear()
    assert brokers.run().complete
    assert_exact(brokers, histories)


@pytest.mark.parametrize("seed", range(6))
def test_concurrent_tasks_of_one_partition_duplicate_nothing(brokers: TwoBrokers, seed: int) -> None:
    """An orphan that has not noticed yet, beside the one that took its place."""
    dice = random.Random(seed)
    brokers = with_some_settings(brokers, dice)
    histories = brokers.topic("topic", 2)
    brokers.run()  # the first positions
    for _ in range(4):
        for history in histories:
            for _ in range(6):
                go_on(history, dice)
        trouble(brokers.destination, dice)
        running = [brokers.start() for _ in range(dice.randint(2, 3))]
        for task in running:
            assert task.result(60.0).stopped == ()
        brokers.destination.faults.clear()
        assert_exact(brokers, histories)


@pytest.mark.parametrize("request_number", range(0, 12, 3))
def test_late_request_of_a_timed_out_sender_duplicates_nothing(
    brokers: TwoBrokers, history: History, request_number: int
) -> None:
    history.plain(*[1] * 12)
    impatient = replace(brokers.settings.destination, request_timeout_ms=100)
    brokers = brokers.with_settings(destination=impatient)
    if request_number:
        brokers.destination.faults.add(ApiKey.PRODUCE, times=request_number)
    brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=0.3)
    assert brokers.start().result(60).complete
    assert brokers.copied() == history.committed


#: A task in a process of its own, so that it can be killed.
TASK = """
import sys
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.task.task import run_copy_task
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.copy_options import CopySettings

source, destination, *ends = sys.argv[1:]
settings = CopySettings(
    ClientConfig("source", tuple(parse_bootstrap(source))),
    ClientConfig("destination", tuple(parse_bootstrap(destination))),
    "mirror",
    "rules",
    fetch_buffer_bytes=65_536 + 2_000,
    commit_interval_ms=50,
)
ranges = [CopyRange("topic", number, "topic", 0, int(end)) for number, end in enumerate(ends)]
run_copy_task(ranges, settings, Uncontrolled())
"""


def holds(brokers: TwoBrokers, records: int) -> bool:
    return brokers.destination.log("topic").log_end_offset >= records


def test_repeatedly_killed_process_completes_the_copy(brokers: TwoBrokers) -> None:
    histories = brokers.topic("topic", 2)
    for history in histories:
        history.plain(*[1, 2] * 400)
    slow = brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.002)
    ends = [str(history.next_offset) for history in histories]
    command = [sys.executable, "-c", TASK, brokers.source.bootstrap, brokers.destination.bootstrap, *ends]
    for copied in (100, 200, 300, 400):
        with subprocess.Popen(command) as task:
            wait_until(partial(holds, brokers, copied), 60)
            task.kill()
    brokers.destination.faults.remove(slow)
    assert brokers.destination.log("topic").log_end_offset < histories[0].next_offset
    assert brokers.run().complete
    assert_exact(brokers, histories)
