"""Leader epochs in answers of ListOffsets, which a real broker begins by an election alone."""

import pytest

from shoal_broker import Broker
from tests.batches import TIMESTAMP, batch
from tests.broker.wire import Wire

EARLIEST, LATEST = -2, -1


@pytest.mark.parametrize("version", [4, 8])
def test_offset_has_the_leader_epoch_of_its_batch(
    wire: Wire, broker: Broker, topic: str, version: int
) -> None:
    wire.produce(topic, batch(2))
    broker.log(topic).begin_leader_epoch(4)
    wire.produce(topic, batch(2, base_timestamp=TIMESTAMP + 10))
    found = {
        timestamp: wire.list_offset(topic, timestamp, version=version).leader_epoch
        for timestamp in (EARLIEST, TIMESTAMP, TIMESTAMP + 10, LATEST, TIMESTAMP + 100)
    }
    assert found == {EARLIEST: 0, TIMESTAMP: 0, TIMESTAMP + 10: 4, LATEST: 4, TIMESTAMP + 100: -1}
