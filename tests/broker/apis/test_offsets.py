"""ListOffsets of logs that a client cannot make: with several leader epochs, and with damaged batches."""

import pytest

from shoal.error_codes import ErrorCode
from shoal.records import Codec
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.world.batches import TIMESTAMP, batch

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


#: The position of the low byte of a batch's attributes, which has the codec.
_CODEC = 22


@pytest.mark.parametrize(
    ("codec", "position", "error"),
    [
        pytest.param(Codec.NONE, -1, ErrorCode.INVALID_RECORD, id="number of headers"),
        pytest.param(Codec.NONE, -19, ErrorCode.INVALID_RECORD, id="length"),
        pytest.param(Codec.GZIP, -1, ErrorCode.UNKNOWN_SERVER_ERROR, id="compressed stream"),
    ],
)
def test_offset_of_a_time_in_a_damaged_batch_is_an_error_of_its_partition(
    wire: Wire, broker: Broker, topic: str, codec: Codec, position: int, error: ErrorCode
) -> None:
    wire.produce(topic, batch(2, codec=codec))
    broker.log(topic).flip_bit(0, position, bit=0)
    assert wire.list_offset(topic, TIMESTAMP + 1).error_code == error
    assert wire.list_offset(topic, LATEST).offset == 2  # the connection is open


def test_offset_of_a_time_in_a_batch_of_an_unknown_codec_is_an_error_of_its_partition(
    wire: Wire, broker: Broker, topic: str
) -> None:
    stored = batch(2)
    stored[_CODEC] = 7
    broker.log(topic).store(stored)
    assert wire.list_offset(topic, TIMESTAMP).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
