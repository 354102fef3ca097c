"""
Brokers that refuse a batch, a principal or a fetch for longer than a moment, and logs that end behind a gap.

Some of these stop a partition, with a sentence whose offset the judge compares.
"""

from __future__ import annotations

import random
from functools import partial

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from tests.world.tasks import TaskWorld

from .events import Family, happens
from .fault_events import answer_without_records

__all__: list[str] = []

#: Refusals of a batch that no second try mends, unless they end.
_ABOUT_A_BATCH = [
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.POLICY_VIOLATION,
]


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


@happens(
    Family.INCIDENTS,
    weight=2,
    incidents=[IncidentKind.SEND_FAILURE],
    stops=[each.name for each in _ABOUT_A_BATCH],
)
def copy_refuses_a_batch(world: TaskWorld, dice: random.Random) -> None:
    """A destination broker refuses a batch, once or whenever it comes."""
    for node in world.destination.nodes:
        node.faults.add(ApiKey.PRODUCE, times=dice.randint(1, 4))
        node.faults.add(
            ApiKey.PRODUCE,
            error=dice.choice(_ABOUT_A_BATCH),
            partition=world.a_partition().number,
            times=dice.randint(1, 3),
        )


@happens(Family.FAULTS, stops=["TOPIC_AUTHORIZATION_FAILED"])
def rights_are_taken_away(world: TaskWorld, dice: random.Random) -> None:
    """An administrator removes an ACL of the mirror's principal, and grants it again before the next task."""
    api = dice.choice([ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT])
    cluster = world.destination if api is ApiKey.PRODUCE else world.source
    for node in cluster.nodes:
        node.faults.add(api, times=dice.randint(1, 4))
        fault = node.faults.add(api, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        world.at_the_end_of_the_step(partial(node.faults.remove, fault))


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_GAP])
def source_sends_no_records_for_long(world: TaskWorld, dice: random.Random) -> None:
    """The source answers fetches without records for longer than a range with an end waits, or not quite."""
    world.be_hasty_about_gaps()
    world.at_the_end_of_the_step(world.be_patient)
    answer_without_records(world, dice.randint(6, 40))


@happens(Family.INCIDENTS, weight=2, incidents=[IncidentKind.SOURCE_GAP])
def source_ends_behind_a_gap(world: TaskWorld, dice: random.Random) -> None:
    """The cleaner removed the last batches of a log, whose end stays."""
    world.be_hasty_about_gaps()
    world.at_the_end_of_the_step(world.be_patient)
    world.a_partition().gap_at_the_end()
