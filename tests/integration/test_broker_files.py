"""Kafka's own DumpLogSegments reads the files of the embedded broker."""

import subprocess
from pathlib import Path

from rig import dump_partition
from rig.dump import DUMP_LOG_SEGMENTS
from rig.jars import class_path, java
from shoal.broker import Broker
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from tests.batches import TIMESTAMP, TRANSACTIONAL, batch
from tests.broker.wire import Wire


def test_kafka_s_tools_read_every_batch_and_record(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("topic")
        for codec in Codec:
            produced = batch([b"x" * 100] * 20, codec=codec, base_timestamp=TIMESTAMP + codec)
            assert wire.produce("topic", produced).error_code == ErrorCode.NONE
        producer_id = wire.init_producer_id("id").producer_id
        transactional = batch(
            3, flags=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        wire.produce("topic", transactional, version=12, transactional_id="id")
        wire.call(
            ApiKey.END_TXN,
            3,
            transactional_id="id",
            producer_id=producer_id,
            producer_epoch=0,
            committed=True,
        )
    found = dump_partition(tmp_path / "topic-0", deep=True)
    assert [each.codec for each in found[:5]] == [codec.name.lower() for codec in Codec]
    assert [each.base_offset for each in found] == [0, 20, 40, 60, 80, 100, 103]
    assert all(each.is_valid for each in found)
    assert [(each.is_transactional, each.is_control) for each in found[-2:]] == [(True, False), (True, True)]
    assert (found[5].producer_id, found[5].base_sequence, found[5].last_sequence) == (producer_id, 0, 2)
    assert [record.offset for each in found for record in each.records] == list(range(104))
    assert [record.timestamp for record in found[1].records] == [TIMESTAMP + 1 + n for n in range(20)]


def test_kafka_s_tools_accept_the_indexes(tmp_path: Path) -> None:
    """Over several segments and a restart, with entries that only some batches have."""
    config = {"segment.bytes": str(1 << 20), "index.interval.bytes": "10000"}
    for start in (0, 300):
        with Broker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
            if start == 0:
                broker.create_topic("topic", config=config)
            for number in range(start, start + 300):
                # Some timestamps are older than the one before.
                timestamp = TIMESTAMP + 1000 * number - 50_000 * (number % 7 == 0)
                sent = batch([b"x" * 1000] * (1 + number % 5), base_timestamp=timestamp)
                assert wire.produce("topic", sent).error_code == ErrorCode.NONE
    directory = tmp_path / "topic-0"
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 1
    assert len(dump_partition(directory)) == 600
    for kind in ("index", "timeindex"):
        files = [segment.with_suffix(f".{kind}") for segment in segments]
        output = _dump(*files)
        assert output.count("offset:") > 20 * len(files), "there is something to check"
        for complaint in ("mismatch", "Mismatch", "out of order", "Found", "Exception"):
            assert complaint not in output, output


def test_kafka_s_tools_read_a_log_append_time_segment(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, Wire(broker.bootstrap) as wire:
        broker.create_topic("topic", config={"message.timestamp.type": "LogAppendTime"})
        answer = wire.produce("topic", batch(3, codec=Codec.ZSTD))
        assert answer.error_code == ErrorCode.NONE
    (found,) = dump_partition(tmp_path / "topic-0", deep=True)
    assert (found.timestamp_type, found.max_timestamp) == ("LogAppendTime", answer.log_append_time_ms)
    assert found.is_valid


def _dump(*files: Path) -> str:
    command = [str(java()), "-XX:TieredStopAtLevel=1", "-cp", class_path(), DUMP_LOG_SEGMENTS]
    done = subprocess.run(
        [*command, "--files", ",".join(map(str, files))], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr
