"""Transient faults, and what happens to healthy clusters: a mirror copies on, and no partition stops."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from shoal.client.config import IsolationLevel
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import MOST_IN_FLIGHT
from shoal.records import Codec
from shoal.records.compression import DEFAULT_LIMIT_BYTES
from shoal_broker.clock import now_ms
from tests.world.clusters import QUICK, TOPIC
from tests.world.contents import batches_of
from tests.world.faults import answers, led_by_another, referring, serve_by, without_records
from tests.world.logs import lagging
from tests.world.source import DAY_MS
from tests.world.tasks import TaskWorld

from .events import Family, happens

__all__ = ["answer_without_records", "let_followers_lag", "some_rebatch"]

#: Errors that a broker may return and that end later.
_PASSING: dict[ApiKey, list[ErrorCode]] = {
    ApiKey.PRODUCE: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
    ApiKey.FETCH: [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
    ApiKey.METADATA: [ErrorCode.LEADER_NOT_AVAILABLE],
    ApiKey.LIST_OFFSETS: [ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [ErrorCode.FENCED_LEADER_EPOCH],
    ApiKey.OFFSET_FETCH: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
    ApiKey.OFFSET_COMMIT: [ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS],
    ApiKey.FIND_COORDINATOR: [ErrorCode.COORDINATOR_NOT_AVAILABLE],
    ApiKey.INIT_PRODUCER_ID: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
}

#: Answers of a coordinator that may have appended the commit.
_PERHAPS_COMMITTED = [
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]

#: Of a broker that is newer than shoal; the embedded one sends any number.
_NO_CODE = cast("ErrorCode", 31_999)

_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


@happens(Family.FAULTS, weight=6)
def request_fails(world: TaskWorld, dice: random.Random) -> None:
    """A later request is answered with a transient error, or not at all."""
    node = world.a_node()
    api = dice.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.FETCH, *_PASSING])
    node.faults.add(api, times=dice.randint(1, 8))  # so many pass
    if dice.random() < 0.5:
        node.faults.add(api, times=dice.randint(1, 2), drop=dice.choice(["before", "within", "after"]))
        return
    how: dict[str, Any] = {"error": dice.choice(_PASSING[api])}
    if api in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        how["effect"] = dice.choice(["before", "after"])
    if dice.random() < 0.5 and api in (ApiKey.PRODUCE, ApiKey.FETCH):
        how["partition"] = world.a_partition().number
    node.faults.add(api, times=dice.randint(1, 3), **how)


@happens(Family.FAULTS)
def source_answers_with_codes_of_a_newer_kafka(world: TaskWorld, dice: random.Random) -> None:
    """The source answers a code that no Kafka of today has, or that says nothing."""
    api = dice.choice(
        [
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_COMMIT,
        ]
    )
    code = dice.choice([ErrorCode.UNKNOWN_SERVER_ERROR, _NO_CODE])
    dice.choice(world.source.nodes).faults.add(api, error=code, times=dice.randint(1, 3))
    if dice.random() < 0.4:
        dice.choice(world.destination.nodes).faults.add(ApiKey.INIT_PRODUCER_ID, error=code)


@happens(Family.FAULTS, weight=4)
def commit_has_an_unknown_outcome(world: TaskWorld, dice: random.Random) -> None:
    """The coordinator takes a commit of a position, or does not, and its answer says nothing of that."""
    for node in world.source.nodes:
        node.faults.add(ApiKey.OFFSET_COMMIT, times=dice.randint(1, 4))
        match dice.randrange(3):
            case 0:
                how: dict[str, Any] = {"drop": dice.choice(["before", "within", "after"])}
            case 1:
                how = {"error": dice.choice(_PERHAPS_COMMITTED), "effect": dice.choice(["before", "after"])}
            case _:
                # Its client has given up by then. Behind a late commit of a group's translation consumers may
                # read again (docs/moving-a-cluster.md).
                how = {"delay_s": 0.12, "client_id": world.brokers.settings.source.client_id}
                impatient = replace(world.brokers.settings.source, request_timeout_ms=50)
                world.set(source=impatient)
        node.faults.add(ApiKey.OFFSET_COMMIT, times=dice.randint(1, 2), **how)


@happens(Family.FAULTS, weight=2)
def refused_commit_is_found_later(world: TaskWorld, dice: random.Random) -> None:
    """The append of a commit fails on a follower, and after another step the coordinator moves there."""
    groups, group = world.brokers.source.groups, world.brokers.settings.group
    passing = itertools.count(dice.randint(0, 3), -1)
    refused: dict[tuple[str, int], Any] = {}

    def offsets() -> dict[tuple[str, int], Any]:
        return groups.read(group, lambda each: dict(each.offsets))

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        if request.group_id != group or next(passing) != 0:
            return answer(request)
        before = offsets()
        response = answer(request)
        refused.update({key: each for key, each in offsets().items() if before.get(key, each) != each})
        groups.commit(group, {key: before[key] for key in refused})
        for topic in response.topics:
            for each in topic.partitions:
                each.error_code = ErrorCode.REQUEST_TIMED_OUT
        former.update({key: before[key] for key in refused})
        return response

    former: dict[tuple[str, int], Any] = {}

    def move() -> None:
        there = offsets()
        found = {key: each for key, each in refused.items() if there.get(key) == former[key]}
        if found and group == world.brokers.settings.group:
            groups.commit(group, found)

    for node in world.source.nodes:
        serve_by(node, ApiKey.OFFSET_COMMIT, serve)
    world.at_the_end_of_the_step(lambda: world.at_the_end_of_the_step(move))


@happens(Family.FAULTS)
def source_gets_many_gaps(world: TaskWorld, dice: random.Random) -> None:
    """A partition grows by more gaps than one commit has milestones, or runs, for."""
    partition = world.a_partition()
    for _ in range(dice.choice([20, 60, 300])):
        dice.choice([partition.any_batch_behind_a_gap, partition.any_holed_batch])()


@happens(Family.FAULTS)
def disk_is_full_for_long(world: TaskWorld, dice: random.Random) -> None:
    """A destination broker cannot write for many requests."""
    faults = dice.choice(world.destination.nodes).faults
    faults.add(ApiKey.PRODUCE, times=dice.randint(1, 5))
    faults.add(
        ApiKey.PRODUCE,
        error=ErrorCode.KAFKA_STORAGE_ERROR,
        effect=dice.choice(["before", "after"]),
        times=dice.randint(5, 20),
    )


@happens(Family.FAULTS, weight=2)
def producers_are_forgotten(world: TaskWorld, dice: random.Random) -> None:
    """The destination forgets idle producers."""
    # If a late request came after that, the broker could not recognize it: condition 4 of the guarantees.
    world.let_late_requests_arrive()
    for partition in world.partitions:
        log = world.copy_log(partition.number)
        log.forget_expired_producers(now_ms(), DAY_MS)


@happens(Family.FAULTS, weight=2)
def copy_answers_slowly(world: TaskWorld, dice: random.Random) -> None:
    """The destination takes its time, so that more requests are on their way."""
    for node in world.destination.nodes:
        node.faults.add(ApiKey.PRODUCE, times=dice.randint(2, 6), delay_s=0.005)


@happens(Family.FAULTS)
def copy_answers_too_late(world: TaskWorld, dice: random.Random) -> None:
    """The destination answers some requests when their client has given up, and connects again."""
    impatient = replace(world.brokers.settings.destination, request_timeout_ms=100)
    world.set(destination=impatient)
    node = dice.choice(world.destination.nodes)
    node.faults.add(ApiKey.PRODUCE, times=dice.randint(1, 3))
    node.faults.add(ApiKey.PRODUCE, delay_s=0.25, times=dice.randint(1, 2))


@happens(Family.FAULTS)
def topic_is_unknown_for_a_while(world: TaskWorld, dice: random.Random) -> None:
    """A broker does not know the topic, as one that has just started."""
    node = world.a_node()
    node.faults.add(
        ApiKey.METADATA, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=TOPIC, times=dice.randint(1, 3)
    )


@happens(Family.FAULTS, weight=2)
def leaders_are_elected(world: TaskWorld, dice: random.Random) -> None:
    """Leaders move, or begin another epoch where they are; nothing is lost."""
    for cluster in (world.source, world.destination):
        for partition in world.partitions:
            if dice.random() < 0.5:
                cluster.move_leader(TOPIC, partition.number, dice.randint(1, len(cluster.nodes)))


@happens(Family.FAULTS)
def node_restarts(world: TaskWorld, dice: random.Random) -> None:
    """A node stops and starts; if there is another, that one leads then."""
    cluster = dice.choice([world.source, world.destination])
    if len(cluster.nodes) > 1:
        node_id = dice.randint(1, len(cluster.nodes))
        cluster.stop_node(node_id)
        cluster.start_node(node_id)


@happens(Family.FAULTS)
def metadata_are_of_a_former_epoch(world: TaskWorld, dice: random.Random) -> None:
    """Brokers that have not heard of an election name its former epoch."""
    for node in (world.source.nodes[0], world.destination.nodes[0]):
        answers(node, ApiKey.METADATA, _with_former_epochs, dice.randint(1, 4))


def _with_former_epochs(response: Any) -> Any:
    for topic in response.topics:
        for each in topic.partitions:
            each.leader_epoch = max(0, each.leader_epoch - 1)
    return response


@happens(Family.FAULTS)
def metadata_name_a_leader_that_is_gone(world: TaskWorld, dice: random.Random) -> None:
    """A broker names a leader at an address where no process listens."""
    answers(world.a_node(), ApiKey.METADATA, _with_leader_that_is_gone, dice.randint(1, 3))


def _with_leader_that_is_gone(response: Any) -> Any:
    # The discard port, on which no process listens.
    return led_by_another(response, response.brokers[0].host, 9)


@happens(Family.FAULTS)
def followers_of_the_source_lag(world: TaskWorld, dice: random.Random) -> None:
    """A leader is elected whose watermark is behind its log's end, until its followers have fetched."""
    let_followers_lag(world, dice, dice.randint(1, 4))


def let_followers_lag(world: TaskWorld, dice: random.Random, requests: int) -> None:
    """Elect such a leader, whose followers fetch after it has answered so many requests."""
    partition = world.a_partition()
    log = partition.log
    found = batches_of(log)
    if found and log.log_start_offset == 0:
        behind = found[-dice.randint(1, min(4, len(found)))].header.base_offset
        after = lagging(world.source.nodes[0], TOPIC, behind, partition.number)
        after.inherit(log)
        after.begin_leader_epoch(log.leader_epoch + 1)
        partition.log = after
        world.at_the_end_of_the_step(after.lag_ends)
        world.lagging.add(partition.number)
        world.at_the_end_of_the_step(world.lagging.clear)
        left = itertools.count(requests, -1)

        def fetched(response: Any) -> Any:
            if next(left) == 0:
                after.lag_ends()
            return response

        for node in world.source.nodes:
            answers(node, ApiKey.FETCH, fetched, 8)
            # A mirror that begins waits for the watermark, and fetches nothing meanwhile.
            answers(node, ApiKey.LIST_OFFSETS, fetched, 64)


@happens(Family.FAULTS)
def clock_of_the_tasks_is_wrong(world: TaskWorld, dice: random.Random) -> None:
    """The wall clock of the tasks' machine is wrong by up to three days, until the next step."""
    world.clock_is_wrong_by_s = dice.choice([-3, -1, 1, 3]) * dice.choice([60, 3_600, 86_400])
    world.at_the_end_of_the_step(lambda: setattr(world, "clock_is_wrong_by_s", 0.0))


@happens(Family.FAULTS)
def source_answers_without_records(world: TaskWorld, dice: random.Random) -> None:
    """The source answers some fetches without records, as a quota, remote storage or followers let it."""
    if len(world.source.nodes) > 1 and not world.setup.source_config:
        # However long the leader refers to node 0, this shows no gap.
        world.be_hasty_about_gaps()
        world.at_the_end_of_the_step(world.be_patient)
        for node in world.source.nodes:
            answers(node, ApiKey.FETCH, partial(referring, to_node=0), dice.randint(20, 80))
        return
    answer_without_records(world, dice.randint(1, 12))


def answer_without_records(
    world: TaskWorld, times: int, to: Callable[[Any], bool] = lambda request: _is_hasty(request)
) -> None:
    """Let the source answer so many fetches without records; by default, one that may wait brings them."""
    for node in world.source.nodes:
        answers(node, ApiKey.FETCH, without_records, times, to=to)


def _is_hasty(request: Any) -> bool:
    return bool(request.max_wait_ms <= QUICK.fetch_max_wait_ms)


@happens(Family.FAULTS, stops=["the answer does not speak of it"])
def answers_lack_their_partitions(world: TaskWorld, dice: random.Random) -> None:
    """A broker answers a question of a task, or takes its batches, and speaks of other partitions."""
    if dice.random() < 0.5:
        answers(dice.choice(world.destination.nodes), ApiKey.PRODUCE, _about_others, dice.randint(1, 2))
        return
    api = dice.choice([ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
    answers(world.a_node(), api, _without_topics, dice.randint(1, 2))


def _without_topics(response: Any) -> Any:
    response.topics.clear()
    return response


def _about_others(response: Any) -> Any:
    for topic in response.responses:
        for each in topic.partition_responses:
            each.index += 1_000
    return response


@happens(Family.FAULTS, weight=3)
def settings_change(world: TaskWorld, dice: random.Random) -> None:
    """The next task has other sizes, commits at other times, and joins batches by another rule."""
    world.set(
        fetch_buffer_bytes=65_536 + dice.choice([200, 700, 2_000, 100_000]),
        timing=replace(world.brokers.settings.timing, commit_interval_s=dice.choice([0.0, 0.005, 60.0])),
        source=replace(world.brokers.settings.source, request_timeout_ms=5_000),
        destination=replace(world.brokers.settings.destination, request_timeout_ms=5_000),
        multi_batch=dice.random() < 0.5,
        max_in_flight=dice.choice([MOST_IN_FLIGHT, MOST_IN_FLIGHT, 2, 1]),
        rebatch=some_rebatch(dice),
    )


def some_rebatch(dice: random.Random) -> Rebatch | None:
    """Return a rule for joining batches, or none."""
    if dice.random() < 0.5:
        return None
    everything = dice.random() < 0.25
    return Rebatch(dice.choice([150, 400, 2_000, 60_000]), dice.choice([None, *Codec]), everything)


@happens(Family.FAULTS)
def isolation_level_changes(world: TaskWorld, dice: random.Random) -> None:
    """The next tasks read records of open and aborted transactions, or do not any more."""
    if world.setup.are_same or world.readers.groups:
        return  # there, only the records' number or their readers tell the copy's records apart
    source = world.brokers.settings.source
    (level,) = (level for level in IsolationLevel if level is not source.isolation_level)
    world.set(source=replace(source, isolation_level=level), rules=level.name)
    world.level_has_changed = True
    if world.setup.adopts:
        # Without the aborted records at a log's beginning, the copy begins later than the source.
        world.expect("isolation level changes", [IncidentKind.SOURCE_RETENTION], [])


@happens(Family.FAULTS, weight=2)
def source_gets_many_small_batches(world: TaskWorld, dice: random.Random) -> None:
    """A partition grows by more batches than one request in flight takes."""
    world.a_partition().small_batches(dice.randint(8, 24))


@happens(Family.FAULTS, weight=2)
def source_gets_records_of_many_times(world: TaskWorld, dice: random.Random) -> None:
    """A partition grows by batches whose producer the copy's leader may forget, and by others."""
    world.a_partition().batches_of_many_times(dice.randint(4, 12))


@happens(Family.FAULTS)
def transaction_stays_open(world: TaskWorld, dice: random.Random) -> None:
    """A producer writes to a transaction that it does not end."""
    world.a_partition().begin_or_continue_transaction()


@happens(Family.FAULTS)
def transactions_end(world: TaskWorld, dice: random.Random) -> None:
    """The open transactions end."""
    for each in world.partitions:
        each.end_transactions()


@happens(Family.FAULTS, incidents=[IncidentKind.SEND_FAILURE], stops=["MESSAGE_TOO_LARGE"])
def copy_accepts_small_batches_alone(world: TaskWorld, dice: random.Random) -> None:
    """The destination's ``max.message.bytes`` is small, until the next step; a larger record is refused."""
    _limit_messages(world, dice.choice([450, 700, 900]))
    world.at_the_end_of_the_step(lambda: _limit_messages(world, _DEFAULT_MAX_MESSAGE_BYTES))


@happens(Family.FAULTS, stops=["the maximum size of a decompressed batch"])
def few_bytes_may_be_decompressed(world: TaskWorld, dice: random.Random) -> None:
    """The task's limit is small until the next step: a larger batch is not joined, or stops its partition."""
    world.set(max_decompressed_bytes=dice.choice([100, 300, 900]), rebatch=some_rebatch(dice))
    world.at_the_end_of_the_step(lambda: world.set(max_decompressed_bytes=DEFAULT_LIMIT_BYTES))


def _limit_messages(world: TaskWorld, max_message_bytes: int) -> None:
    topics = world.destination.nodes[0].topics
    topics.alter(topics.topic(TOPIC), {"max.message.bytes": str(max_message_bytes)})


@happens(Family.FAULTS)
def copy_gives_no_reason(world: TaskWorld, dice: random.Random) -> None:
    """A destination broker refuses some requests without a reason, and takes them later."""
    for node in world.destination.nodes:
        node.faults.add(ApiKey.PRODUCE, times=dice.randint(1, 3))
        node.faults.add(
            ApiKey.PRODUCE,
            error=ErrorCode.UNKNOWN_SERVER_ERROR,
            effect=dice.choice(["before", "after"]),
            partition=world.a_partition().number,
            times=dice.randint(2, 5),
        )


@happens(Family.INCIDENTS)
def copy_describes_no_producers(world: TaskWorld, dice: random.Random) -> None:
    """The mirror may not ask the destination for its last sequence, so it reads it from the log."""
    for node in world.destination.nodes:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        fault = node.faults.add(ApiKey.DESCRIBE_PRODUCERS, error=code, times=None)
        world.at_the_end_of_the_step(partial(node.faults.remove, fault))


@happens(Family.FAULTS, stops=["TOPIC_AUTHORIZATION_FAILED"])
def rights_are_taken_away(world: TaskWorld, dice: random.Random) -> None:
    """An administrator removes an ACL of the mirror's principal, and grants it again before the next task."""
    api = dice.choice([ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT])
    cluster = world.destination if api is ApiKey.PRODUCE else world.source
    for node in cluster.nodes:
        node.faults.add(api, times=dice.randint(1, 4))
        fault = node.faults.add(api, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        world.at_the_end_of_the_step(partial(node.faults.remove, fault))
