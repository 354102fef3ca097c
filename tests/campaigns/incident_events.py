"""Changes that a mirror cannot repair: it stops and names them, or continues by its policy and counts."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal_broker.api_error import ApiError
from tests.world import batches
from tests.world.adoption import ADOPT
from tests.world.clusters import TOPIC
from tests.world.contents import batches_of
from tests.world.faults import answers, before_request, refuses_offsets
from tests.world.judge import judge_of
from tests.world.logs import lose_tail
from tests.world.tasks import FOREIGN, TaskWorld

from .events import Family, happens
from .fault_events import answer_without_records, let_followers_lag

__all__ = [
    "AFTER_RETENTION",
    "SILENT_STOPS",
    "copy_is_created_again",
    "copy_loses_its_tail",
    "create_source_topic",
    "delete_source_topic",
    "others_write_to_the_copy",
    "store_foreign",
]

#: Parts of sentences by which a partition stops for good, whatever its policies are.
SILENT_STOPS = ("the source does not have them now", "cannot tell", ADOPT)


#: The same of a copy that begins later than its mirror: what proves the mirror's part may be gone.
AFTER_RETENTION = (
    *SILENT_STOPS,
    "all deleted since",
    "nothing shows which program wrote them",
    "neither its log nor its leader",
)

#: Refusals of a batch that no second try mends, unless they end.
_ABOUT_A_BATCH = [
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.POLICY_VIOLATION,
]


def store_foreign(world: TaskWorld, dice: random.Random) -> None:
    """Let another producer write to some partitions of the copy."""
    for partition in world.partitions:
        if dice.random() < 0.6:
            values = [FOREIGN] * dice.randint(1, 4)
            log = world.copy_log(partition.number)
            stored = None
            while not stored:
                end = log.log_end_offset
                with suppress(ValueError):  # a task has written meanwhile
                    log.store(stored := memoryview(batches.batch(values, base_offset=end)))


@happens(Family.OTHER_WRITERS, weight=3)
def others_write_to_a_shared_copy(world: TaskWorld, dice: random.Random) -> None:
    """Another producer writes to a copy that several may write to."""
    store_foreign(world, dice)


@happens(Family.OTHER_WRITERS, weight=3)
def others_write_between_requests(world: TaskWorld, dice: random.Random) -> None:
    """Another producer writes to a shared copy behind some requests of a task, whose next ones are sent."""
    # Its own: several threads draw, and in no certain order.
    own = random.Random(dice.random())

    def written(response: Any) -> Any:
        store_foreign(world, own)
        return response

    for node in world.destination.nodes:
        answers(node, ApiKey.PRODUCE, written, dice.randint(2, 8))


# Without a position, any record may be a remainder of a topic that the source had before.
@happens(
    Family.INCIDENTS,
    weight=3,
    incidents=[IncidentKind.FOREIGN_RECORDS, IncidentKind.SOURCE_RESET],
    stops=SILENT_STOPS,
)
def others_write_to_the_copy(world: TaskWorld, dice: random.Random) -> None:
    """Another producer writes to the copy."""
    store_foreign(world, dice)


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.DESTINATION_LOSS], stops=SILENT_STOPS)
def copy_loses_its_tail(world: TaskWorld, dice: random.Random) -> None:
    """An unclean election at the destination: its last batches are gone."""
    partition = world.a_partition()
    world.loses_acknowledged(partition.number)
    log = world.copy_log(partition.number)
    found = batches_of(log)
    if found:
        lost_from = found[-dice.randint(1, min(3, len(found)))].header.base_offset
        # Without an election, it is as if an older copy of the disk was put back.
        how = {"election": dice.random() < 0.7}
        after = lose_tail(world.destination.nodes[0], TOPIC, lost_from, partition.number, **how)
        after.delete_records(min(log.log_start_offset, after.log_end_offset))


@happens(Family.INCIDENTS, incidents=[IncidentKind.DESTINATION_LOSS], stops=SILENT_STOPS)
def copy_is_created_again(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes the destination topic and creates it again, perhaps below a request."""
    world.loses_acknowledged(*range(len(world.partitions)))
    broker = world.destination.nodes[0]

    def create_again() -> None:
        world.loses_acknowledged(*range(len(world.partitions)))  # perhaps in a later step
        broker.topics.delete(broker.topics.topic(TOPIC))
        broker.create_topic(TOPIC, len(world.partitions), dict(world.setup.destination_config))

    if world.setup.partitions == 1 and dice.random() < 0.5:
        # A request that lists the topic by name lands in the new one. Of several partitions, one may have
        # been copied to its end before, and only the next run looks at it again.
        before_request(broker, ApiKey.PRODUCE, create_again, dice.randint(1, 4))
    else:
        create_again()


# Without a position, a copy of which nothing is left does not show how far the mirror came. Behind one, it
# does not show whether the deleted records were the mirror's or another's.
@happens(
    Family.INCIDENTS,
    stops=AFTER_RETENTION,
)
def retention_deletes_from_the_copy(world: TaskWorld, dice: random.Random) -> None:
    """The destination deletes its oldest records, often all, also a part of a batch."""
    partition = world.a_partition()
    log = world.copy_log(partition.number)
    start, end = log.log_start_offset, log.log_end_offset
    before = world.copied(partition.number)
    log.delete_records(dice.choice([dice.randint(start, end), end]))
    are_left = set(map(judge_of(world).seen, world.copied(partition.number)))
    gone = {judge_of(world).seen(each) for each in before} - are_left
    for each in partition.records:
        if judge_of(world).seen(each.content) in gone:
            each.may_lack = True


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_RETENTION], stops=SILENT_STOPS)
def source_deletes_records(world: TaskWorld, dice: random.Random) -> None:
    """The source deletes records: up to the position, one beside it, or any offset, also inside a batch."""
    partition = world.a_partition()
    log = partition.log
    least, most = log.log_start_offset, log.last_stable_offset
    places = [dice.randint(least, most)]
    position = world.position(partition.number)
    if position is not None:
        places += [position.source_offset + by for by in (-1, 0, 1)]
    partition.deletes_before(max(least, min(most, dice.choice(places))))


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_RESET], stops=SILENT_STOPS)
def source_loses_its_tail(world: TaskWorld, dice: random.Random) -> None:
    """An unclean election at the source: its last batches are gone, and others may come in their place."""
    partition = world.a_partition()
    world.note_writers()
    world.loses_acknowledged(partition.number)
    log = partition.log
    found = batches_of(log)
    if not found or log.log_start_offset:
        return
    lost_from = found[-dice.randint(1, min(3, len(found)))].header.base_offset
    after = lose_tail(world.source.nodes[0], TOPIC, lost_from, partition.number)
    partition.lost_its_tail(after)
    if dice.random() < 0.6:
        partition.grow()


# INVALID_RECORD is the source's own answer to a question for the offset of a time.
@happens(
    Family.INCIDENTS,
    incidents=[IncidentKind.SEND_FAILURE],
    stops=["CORRUPT_MESSAGE", "its CRC is", "INVALID_RECORD"],
)
def source_has_a_damaged_batch(world: TaskWorld, dice: random.Random) -> None:
    """A batch of the source was damaged on its disk: no broker takes it."""
    world.a_partition().damaged_batch()


@happens(
    Family.INCIDENTS,
    weight=2,
    incidents=[IncidentKind.SEND_FAILURE],
    stops=[each.name for each in _ABOUT_A_BATCH],
)
def copy_refuses_a_batch(world: TaskWorld, dice: random.Random) -> None:
    """A destination broker refuses a batch, once or whenever it comes; gaps may lie around it."""
    partition = world.a_partition()
    for _ in range(dice.choice([0, 6])):
        partition.gap(dice.randint(1, 3))
        partition.small_batches(1)
    for node in world.destination.nodes:
        node.faults.add(ApiKey.PRODUCE, times=dice.randint(1, 4))
        node.faults.add(
            ApiKey.PRODUCE,
            error=dice.choice(_ABOUT_A_BATCH),
            partition=partition.number,
            times=dice.randint(1, 3),
        )


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_GAP])
def source_sends_no_records_for_long(world: TaskWorld, dice: random.Random) -> None:
    """The source answers fetches without records for longer than a range with an end waits, or not quite."""
    world.be_hasty_about_gaps()
    world.at_the_end_of_the_step(world.be_patient)
    if dict(world.setup.source_config) or dice.random() < 0.5:
        answer_without_records(world, dice.randint(6, 40))
    else:  # without a cleaner, nothing proves that there are none
        answer_without_records(world, dice.randint(6, 40), lambda request: True)


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_GAP])
def source_ends_behind_a_gap(world: TaskWorld, dice: random.Random) -> None:
    """The cleaner removed the last batches of a log, whose end stays."""
    world.be_hasty_about_gaps()
    world.at_the_end_of_the_step(world.be_patient)
    world.a_partition().any_gap_at_the_end()


@happens(
    Family.INCIDENTS, incidents=[IncidentKind.SOURCE_RESET, IncidentKind.SOURCE_RETENTION], stops=SILENT_STOPS
)
def source_topic_is_created_again(world: TaskWorld, dice: random.Random) -> None:
    """The source topic is deleted, with the offsets of all groups in it, and created again."""
    _create_source_again(world, dice)
    for partition in world.partitions:
        for _ in range(dice.randint(0, 3)):
            partition.grow()


def _create_source_again(world: TaskWorld, dice: random.Random) -> None:
    # Another producer id writes then, and requests of before would be foreign records (architecture.md).
    world.let_late_requests_arrive()
    world.loses_acknowledged(*range(len(world.partitions)))
    delete_source_topic(world, with_offsets=dice.random() < 0.5)
    create_source_topic(world)


@happens(
    Family.INCIDENTS,
    weight=2,
    incidents=[IncidentKind.SOURCE_RESET, IncidentKind.SOURCE_RETENTION],
    stops=SILENT_STOPS,
)
def source_is_filled_again(world: TaskWorld, dice: random.Random) -> None:
    """The source loses its records, with their topic or without, and gets them again, often behind others."""
    before = [[each for each in partition.of_this_topic if each.is_there] for partition in world.partitions]
    if dice.random() < 0.5:
        _create_source_again(world, dice)
    else:
        for partition in world.partitions:
            partition.deletes_before(partition.log.last_stable_offset)
    for partition, records in zip(world.partitions, before, strict=True):
        for _ in range(dice.randint(0, 2)):
            partition.grow()
        # The last ones may be left out: then the log ends where no record of it did before.
        kept = [each for each in records if each.is_shown]
        partition.fill_again(kept[: dice.choice([len(kept), dice.randint(0, len(kept))])])


def delete_source_topic(world: TaskWorld, *, with_offsets: bool) -> None:
    """Let an operator delete the source topic; Kafka deletes all groups' offsets in it, sooner or later."""
    world.note_writers()
    broker = world.source.nodes[0]
    broker.topics.delete(broker.topics.topic(TOPIC))
    if with_offsets:
        broker.groups.forget_topic(TOPIC)
    broker.leaders.forget(TOPIC)


def create_source_topic(world: TaskWorld) -> None:
    """Let an operator create the source topic again."""
    broker = world.source.nodes[0]
    broker.create_topic(TOPIC, len(world.partitions), dict(world.setup.source_config))
    for partition in world.partitions:
        partition.was_created_again(broker.log(TOPIC, partition.number))


@happens(
    Family.POSITIONS, incidents=[IncidentKind.FOREIGN_RECORDS, IncidentKind.SOURCE_RESET], stops=SILENT_STOPS
)
def group_has_another_name(world: TaskWorld, dice: random.Random) -> None:
    """An operator starts the mirror with another group, and may end the one with the former group."""
    if dice.random() < 0.5:
        world.fencing.leave(world.brokers.settings.group)
    world.set(group=dice.choice(["mirror", "another", "a third"]))


@happens(Family.POSITIONS)
def copy_has_an_open_transaction(world: TaskWorld, dice: random.Random) -> None:
    """The destination shows a transaction to readers of committed records, which ends after a while."""
    for node in world.destination.nodes:
        answers(node, ApiKey.LIST_OFFSETS, _a_record_less, dice.randint(1, 3), to=_reads_committed)


def _reads_committed(request: Any) -> bool:
    return bool(request.isolation_level)


def _a_record_less(response: Any) -> Any:
    for topic in response.topics:
        for each in topic.partitions:
            each.offset = max(0, each.offset - 1)
    return response


@happens(Family.POSITIONS, stops=[ADOPT])
def positions_are_deleted(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes the group, and with it the mirror's positions."""
    with suppress(ApiError):  # there is no such group yet
        world.fencing.leave(world.brokers.settings.group)
        world.brokers.forget_pairs()


@happens(Family.POSITIONS, weight=2, stops=[ADOPT])
def position_of_one_partition_expires(world: TaskWorld, dice: random.Random) -> None:
    """The coordinator forgets the position of one partition, and has those of the others."""
    world.fencing.leave(world.brokers.settings.group)
    world.brokers.expire(world.a_partition().number)


@happens(Family.OTHER_WRITERS)
def positions_of_a_shared_copy_are_deleted(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes the positions of a mirror that copies all again then, behind what is there."""
    positions_are_deleted(world, dice)


@happens(Family.POSITIONS, stops=[ADOPT])
def positions_are_deleted_while_followers_lag(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes the positions, and the source's new leaders show less than they have."""
    positions_are_deleted(world, dice)
    let_followers_lag(world, dice, dice.randint(4, 16))


@happens(Family.POSITIONS, stops=[ADOPT, "a second try ended the same"])
def logs_move_while_they_are_compared(world: TaskWorld, dice: random.Random) -> None:
    """A broker does not have an offset any more that it just named, perhaps while a copy is taken over."""
    if world.setup.adopts:
        positions_are_deleted(world, dice)
        world.expect("logs move again", [], ["twice in a row"])
        refuses_offsets(world.a_node(), dice.randint(1, 8))
        return
    for node in world.destination.nodes:
        refuses_offsets(node, 2)  # the read of all last batches, and that of one


@happens(
    Family.POSITIONS,
    weight=2,
    # All is copied again behind an emptied copy, which is longer than its source then.
    incidents=[IncidentKind.SOURCE_RESET],
    stops=AFTER_RETENTION,
)
def positions_are_deleted_after_retention(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes the positions of copies that begin later than their sources."""
    retention_deletes_from_the_copy(world, dice)
    positions_are_deleted(world, dice)


@happens(Family.POSITIONS, weight=2, incidents=[IncidentKind.SOURCE_RETENTION], stops=[ADOPT])
def copy_is_one_that_began_later(world: TaskWorld, dice: random.Random) -> None:
    """An operator lets the mirror take over the copy of a program that began later at the source."""
    if not world.setup.adopts:
        return
    positions_are_deleted(world, dice)
    world.let_late_requests_arrive()
    broker = world.brokers.destination
    broker.topics.delete(broker.topics.topic(TOPIC))
    broker.create_topic(TOPIC, len(world.partitions), dict(world.setup.destination_config))
    for partition in world.partitions:
        shown = [
            each.content
            for each in partition.of_this_topic
            if each.is_there and (each.is_shown or not world.reads_committed)
        ]
        if copied := shown[dice.randint(0, len(shown)) :]:
            world.copy_log(partition.number).store(memoryview(batches.encode(copied)))
