"""Consumers read, commit and move, while their groups, coordinators and the mirror's rounds get faults."""

from __future__ import annotations

import random

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from tests.world.clusters import TOPIC
from tests.world.faults import lists_no_groups
from tests.world.readers import forget_group
from tests.world.tasks import TaskWorld

from .events import Family, happens
from .incident_events import (
    SILENT_STOPS,
    copy_loses_its_tail,
    others_write_to_the_copy,
    source_deletes_records,
    source_topic_is_created_again,
)

__all__: list[str] = []

#: Errors of a coordinator that moves, and of one whose group has just got a member.
_REFUSALS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


_DAMAGES = (
    copy_loses_its_tail,
    others_write_to_the_copy,
    source_deletes_records,
    source_topic_is_created_again,
)


@happens(Family.GROUPS, weight=6)
def consumers_read(world: TaskWorld, dice: random.Random) -> None:
    """Some consumers read on where they are, and commit."""
    for each in world.readers.groups:
        if dice.random() < 0.7:
            most = dice.choice([0, 1, dice.randint(1, 12)])
            # After an incident, an offset where nothing was read may be one of another topic.
            each.read(dice, most, commits_all=world.setup.readers_move and dice.random() < 0.4)


@happens(Family.MOVES, weight=6)
def consumers_move(world: TaskWorld, dice: random.Random) -> None:
    """Some consumers go to the other cluster, if it has their offsets."""
    for each in world.readers.groups:
        if dice.random() < 0.6:
            each.move(apply=dice.random() < 0.5)


@happens(Family.GROUPS, weight=6)
def mirror_follows_the_groups(world: TaskWorld, dice: random.Random) -> None:
    """The mirror translates the offsets of all groups."""
    world.readers.follow()


@happens(Family.MOVES, weight=4)
def round_of_the_mirror_is_overtaken(world: TaskWorld, dice: random.Random) -> None:
    """Consumers read on and move by the command, after a round has read the groups and before it commits."""

    def overtake() -> None:
        consumers_read(world, dice)
        for each in world.readers.groups:
            each.move(apply=True)

    world.readers.follow(overtake)


@happens(Family.GROUPS, weight=2)
def mirror_is_killed_at_a_commit(world: TaskWorld, dice: random.Random) -> None:
    """The mirror dies before or behind its commit of a translated offset."""
    world.readers.die_at_commit(before=dice.random() < 0.5)


@happens(Family.GROUPS, weight=2)
def commit_of_a_translation_fails(world: TaskWorld, dice: random.Random) -> None:
    """The destination's coordinator refuses a commit, or its answer never comes."""
    faults = dice.choice(world.destination.nodes).faults
    if dice.random() < 0.5:
        faults.add(ApiKey.OFFSET_COMMIT, error=dice.choice(_REFUSALS))
    else:
        faults.add(ApiKey.OFFSET_COMMIT, drop=dice.choice(["before", "within", "after"]))
    world.readers.follow()


@happens(Family.GROUPS, weight=2)
def coordinator_does_not_know_groups(world: TaskWorld, dice: random.Random) -> None:
    """A coordinator lists no groups, or does not answer for them."""
    node = world.a_node()
    match dice.randrange(3):
        case 0:
            lists_no_groups(node)
        case 1:
            node.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        case 2:
            node.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.NOT_COORDINATOR)
    world.readers.follow()


# An operator or time changes a group; never where this would have to repeat or skip records.


@happens(Family.MOVES)
def group_is_deleted_where_it_is_not(world: TaskWorld, dice: random.Random) -> None:
    """An operator deletes a group at the cluster that its consumer has left."""
    group = dice.choice(world.readers.groups)
    forget_group(group.other, group.name)


@happens(Family.MOVES, weight=2)
def offset_expires_where_it_is_not_needed(world: TaskWorld, dice: random.Random) -> None:
    """The offset of a partition expires at the cluster that the consumer has left."""
    group = dice.choice(world.readers.groups)
    group.expire(group.other, world.a_partition().number)


@happens(Family.MOVES)
def group_is_reset(world: TaskWorld, dice: random.Random) -> None:
    """An operator sets an offset of a group: to any at the source, and only forward at the destination."""
    group, number = dice.choice(world.readers.groups), world.a_partition().number
    log = group.here.log(TOPIC, number)
    if not group.is_at_source:
        # A mirror that follows the group undoes a reset backwards, as is documented.
        present = group.offsets(group.here).get(number)
        group.reset(number, dice.randint(0 if present is None else present.offset, log.log_end_offset))
        group.may_leave = False
    elif not group.is_own(group.other, number):
        group.reset(number, dice.randint(0, log.last_stable_offset))


@happens(
    Family.DAMAGES,
    weight=4,
    incidents=[
        IncidentKind.FOREIGN_RECORDS,
        IncidentKind.DESTINATION_LOSS,
        IncidentKind.SOURCE_RESET,
        IncidentKind.SOURCE_RETENTION,
    ],
    stops=SILENT_STOPS,
)
def topic_of_consumers_has_an_incident(world: TaskWorld, dice: random.Random) -> None:
    """Source or copy lose or get records, while all consumers are at the source."""
    damage = dice.choice(_DAMAGES)
    damage(world, dice)
    if damage is source_topic_is_created_again:
        world.source.nodes[0].groups.forget_topic(TOPIC)
        for each in world.readers.groups:
            each.begin_again()
