"""The requests of a mirror in quiet: it asks no more than it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.mirroring.model.incidents import Delivery
from shoal.protocol.apis import ApiKey

from .contents import batches_of
from .source import SourcePartition

if TYPE_CHECKING:
    from .tasks import TaskWorld

__all__ = ["Before", "needless"]

#: The questions of an alignment. A worker asks them once.
_ALIGNING = {
    "source": {ApiKey.OFFSET_FETCH: 1, ApiKey.LIST_OFFSETS: 1, ApiKey.OFFSET_FOR_LEADER_EPOCH: 2},
    "destination": {ApiKey.LIST_OFFSETS: 2, ApiKey.OFFSET_FOR_LEADER_EPOCH: 1, ApiKey.FETCH: 1},
}


class Before(NamedTuple):
    """Where a partition is before a run, and where the source ends."""

    partition: SourcePartition
    copy_end: int
    source_offset: int
    end: int


def _sends_together(world: TaskWorld) -> bool:
    """Whether a request has all batches of a partition that are to be sent."""
    positions = [world.position(each.number) for each in world.partitions]
    are_offsets = all(each is not None and each.identity.sequence_is_offset for each in positions)
    return world.setup.several_in_a_request and world.brokers.settings.tries_multi_batch and are_offsets


def needless(world: TaskWorld, before: Sequence[Before], *, is_open: bool = False) -> Iterator[str]:
    """Yield the kinds of requests of which a run sent more than it needs."""
    asked = world.requests
    workers = world.pairs_of_leaders
    batches = sum(
        sum(1 for each in batches_of(world.copy_log(number)) if each.header.base_offset >= copy_end)
        for number, copy_end in ((each.partition.number, each.copy_end) for each in before)
    )
    growing = any(each.end > each.source_offset for each in before)
    writers = workers if world.setup.delivery is Delivery.AT_LEAST_ONCE else 0
    # Two requests find out whether a leader takes several batches, for each of two sorts of partitions.
    asking = 4 * workers if world.brokers.settings.tries_multi_batch and growing else 0
    # A request has all batches of a response, or of the slice of one that a commit has room for.
    turns = workers + asked["source"][ApiKey.FETCH] + asked["source"][ApiKey.OFFSET_COMMIT]
    are_together = _sends_together(world)
    # Before it sends anything, a pair looks at topics that requests list by name.
    metadata = 1 + workers * (1 + world.setup.lists_names)
    most: dict[str, dict[ApiKey, int]] = {
        "source": {
            ApiKey.METADATA: metadata,
            ApiKey.OFFSET_COMMIT: 3 * workers + 2 * asked["source"][ApiKey.FETCH],
        },
        "destination": {
            ApiKey.METADATA: metadata,
            ApiKey.PRODUCE: (turns if are_together else batches) + asking,
            ApiKey.INIT_PRODUCER_ID: writers,
        },
    }
    for side, counts in _ALIGNING.items():
        most[side] |= {api: count * workers for api, count in counts.items()}
    if not growing and not is_open:
        most["source"][ApiKey.FETCH] = 0
    if world.counted_for_s > world.brokers.settings.timing.recreated_after_s:
        # On a machine that is so busy, metadata grow old within a run.
        del most["source"][ApiKey.METADATA], most["destination"][ApiKey.METADATA]
    for side, counts in most.items():
        for api, count in counts.items():
            if asked[side][api] > count:
                yield f"the {side} got {asked[side][api]} requests of {api.name}, and {count} are enough"
