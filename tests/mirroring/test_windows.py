"""A mirror copies the records of a range: its last batch is cropped, and its end grows until it has come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal.mirroring.model.copy_options import Rebatch
from shoal.records import Codec
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.history import ABORT, COMMIT, History
from tests.world.task import TaskResult


def every_kind(history: History) -> History:
    """Add batches of each kind that the intake treats in a way of its own; 41 offsets."""
    history.plain(3, 1, 4)
    for codec in (Codec.GZIP, Codec.LZ4):
        history.plain(3, codec=codec)
    history.transaction(2, 3, ends=COMMIT)
    history.transaction(2, ends=ABORT)
    history.holed(5, [0, 2])
    history.empty(2)
    history.gap(3)
    history.plain(2, flags=batches.LOG_APPEND_TIME)
    return history.plain(3)


def before(records: Sequence[Content], end: int) -> list[Content]:
    """Return the records before a source offset, which their values name."""
    return [each for each in records if int((each.value or b"").split()[-1]) < end]


def copy_up_to(brokers: TwoBrokers, end: int) -> tuple[TaskResult, Watched]:
    control = Watched()
    (copied,) = brokers.ranges()
    return brokers.run([copied._replace(end_offset=end)], control), control


@pytest.mark.parametrize("rebatch", [None, Rebatch(200), Rebatch(200, everything=True)])
@pytest.mark.parametrize("committed", [True, False])
def test_range_ends_at_each_offset_of_each_batch_and_the_next_one_goes_on_there(
    brokers: TwoBrokers, committed: bool, rebatch: Rebatch | None
) -> None:
    reader = brokers if committed else brokers.read_uncommitted()
    reader = reader.with_settings(rebatch=rebatch)
    history = every_kind(brokers.topic("topic")[0])
    records = history.committed if committed else history.uncommitted
    for end in range(1, history.next_offset + 1):
        result, _ = copy_up_to(reader, end)
        assert result.complete
        assert reader.copied() == before(records, end), f"up to {end}"
        assert reader.position().source_offset == end


def test_batch_that_ends_at_the_end_is_copied_as_it_is(brokers: TwoBrokers) -> None:
    brokers.topic("topic")[0].plain(3, 4, 2)
    _, control = copy_up_to(brokers, 7)
    assert control.decisions == {"copied": 2}
