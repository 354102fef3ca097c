"""Several batches in one append to a log, and a broker that forgets producers or lacks the option."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.records import RecordBatch, read_header, split
from shoal_broker import Broker
from shoal_broker.config import TopicConfig
from shoal_broker.storage.log import AppendInfo, Log
from shoal_broker.storage.multi_batch import admitted_batches
from tests.broker.numbered_batches import numbered
from tests.broker.wire import Wire

LARGEST_SEQUENCE = 2**31 - 1
MARKED = "shoal-multi-batch"


def test_repeated_request_of_a_forgotten_producer_is_recognized(unique: str) -> None:
    sent = b"".join(numbered(0, 2, 2))
    with Broker(config={"shoal.multi.batch.produce": "true"}) as taking:
        taking.create_topic(unique)
        with Wire(taking.bootstrap, client_id=MARKED) as wire:
            wire.produce(unique, sent)
            taking.log(unique).forget_expired_producers(2**62, 0)
            again = wire.produce(unique, sent)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
            assert wire.end_offset(unique) == 4


def test_sequences_wrap_around_within_a_request() -> None:
    log = new_log()
    log.end_at(LARGEST_SEQUENCE - 1)
    batches = numbered(LARGEST_SEQUENCE - 1, 1, 3, 2)
    assert admitted_batches(memoryview(b"".join(batches)), 11) is not None
    for _ in range(2):
        assert append(log, batches).base_offset == LARGEST_SEQUENCE - 1
        assert log.log_end_offset == LARGEST_SEQUENCE + 5
    assert append(log, numbered(4, 1)).base_offset == 2**31 + 4


def test_marked_clients_without_the_option_follow_the_stock_rules(
    session_broker: Broker, unique: str
) -> None:
    session_broker.create_topic(unique)
    with Wire(session_broker.bootstrap, client_id=MARKED) as marked:
        assert marked.produce(unique, b"".join(numbered(0, 1, 1))).error_code == ErrorCode.INVALID_RECORD
        assert marked.end_offset(unique) == 0
        assert marked.produce(unique, numbered(7, 1)[0]).error_code == ErrorCode.NONE


# By itself


def new_log() -> Log:
    return Log("topic-0", TopicConfig.of({}))


def append(log: Log, batches: list[bytearray]) -> AppendInfo:
    views = [memoryview(each) for each in batches]
    return log.compare_and_append(
        [RecordBatch(read_header(view), view) for view in views], lambda batch: batch
    )


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.data())
def test_repeated_requests_leave_each_batch_once_in_order(counts: list[int], data: st.DataObject) -> None:
    """Requests of any size, of which any may be sent again later, as by a client on a lossy network."""
    log = new_log()
    batches = numbered(0, *counts)
    sent: list[tuple[int, int]] = []
    position = 0
    while position < len(batches):
        if bool(sent) and data.draw(st.booleans()):
            start, end = data.draw(st.sampled_from(sent))
        else:
            start, end = position, data.draw(st.integers(position + 1, len(batches)))
            if start and data.draw(st.booleans()):
                # Some of the repeated batches were not acknowledged.
                start = data.draw(st.integers(0, start))
        assert append(log, batches[start:end]).base_offset == sum(counts[:start])
        sent.append((start, end))
        position = max(position, end)
        assert log.log_end_offset == sum(counts[:position])
    read = log.read(0, 1 << 30, committed=False, at_least_one_batch=True)
    assert [each.header.base_sequence for each in split(read.record_set)] == [
        sum(counts[:number]) for number in range(len(counts))
    ]
