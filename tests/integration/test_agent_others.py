"""If a client does not ask for several batches, the agent makes no difference for it."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rig import (
    CODECS,
    KafkaCluster,
    create_topic,
    dump_partition,
    load_aborted_transaction,
    load_batch,
    load_committed_transaction,
    read_topic,
)
from rig.agent import agent_jar
from rig.jars import tool_command
from rig.load import await_markers, random_records
from rig.record import Record
from tests.batches import CONTROL, TRANSACTIONAL, message
from tests.integration.agent_versions import EVERY_LINE
from tests.integration.raw_producer import Identity, RawProducer, following

pytestmark = pytest.mark.long

Seen = dict[str, object]
"""A client's actions with their results: equal if the brokers behave alike."""

CONSOLE_LINES = 2_000

LEAST_APPENDED = 6


@pytest.mark.parametrize("version", EVERY_LINE)
@pytest.mark.timeout(900)
def test_ordinary_clients_see_no_difference(version: str) -> None:
    seen = []
    for agent in ([], [f"-javaagent:{agent_jar()}"]):
        with KafkaCluster(version=version, broker_jvm={1: agent}) as kafka:
            seen.append(by_confluent(kafka) | by_java(kafka) | by_hand(kafka))
    without, with_agent = seen
    assert len(without) > 30
    assert with_agent == without


def by_confluent(kafka: KafkaCluster) -> Seen:
    """Every codec, plain, idempotent and in transactions."""
    seen: Seen = {}
    records = random_records(Random(7), 200, 100)
    for codec in CODECS:
        topic = f"confluent-{codec}"
        create_topic(kafka.bootstrap, topic)
        for number in range(3):
            some = records[number * 50 : number * 50 + 50]
            load_batch(kafka.bootstrap, topic, 0, some, codec, idempotent=False)
            load_batch(kafka.bootstrap, topic, 0, some, codec, idempotent=True)
        load_committed_transaction(kafka.bootstrap, topic, {0: records[150:175]}, codec)
        load_aborted_transaction(kafka.bootstrap, topic, {0: records[175:]}, codec)
        for isolation in ("read_committed", "read_uncommitted"):
            seen[f"{topic} {isolation}"] = contents(read_topic(kafka.bootstrap, topic, isolation)[0])
        seen[f"{topic} in the log"] = headers(kafka, topic)
    return seen


def contents(records: list[Record]) -> list[Record]:
    return [replace(each, timestamp=0) for each in records]


def headers(kafka: KafkaCluster, topic: str) -> list[object]:
    """Return DumpLogSegments' output without producer ids, and without today's checksums and times."""
    return [
        replace(each, producer_id=min(each.producer_id, 0), crc=0, max_timestamp=0, records=(), position=0)
        for each in dump_partition(kafka.partition_dir(topic, 0), deep=True)
    ]


def by_java(kafka: KafkaCluster) -> Seen:
    """Kafka's own console and performance tools."""
    seen: Seen = {}
    sent = {codec: [f"{codec}:value {n} {'x' * (n % 90)}" for n in range(CONSOLE_LINES)] for codec in CODECS}
    key = ["--property", "key.separator=:"]
    for codec, said in sent.items():
        create_topic(kafka.bootstrap, f"console-{codec}")
        how = [
            "--topic",
            f"console-{codec}",
            "--compression-codec",
            codec,
            "--property",
            "parse.key=true",
            *key,
        ]
        run_tool(kafka, "ConsoleProducer", *how, text="\n".join(said) + "\n")
    how = ["--include", "console-.*", "--from-beginning", "--max-messages", str(CONSOLE_LINES * len(CODECS))]
    read = run_tool(
        kafka, "consumer.ConsoleConsumer", *how, "--property", "print.key=true", *key
    ).splitlines()
    for codec, said in sent.items():
        seen[f"console-{codec}"] = [line for line in read if line.startswith(f"{codec}:")]
        assert seen[f"console-{codec}"] == said
    ways = {
        "plain": ["acks=1", "enable.idempotence=false", "compression.type=snappy"],
        "idempotent": ["acks=all", "enable.idempotence=true", "compression.type=lz4"],
        "transactional": ["acks=all", "transactional.id=perf", "compression.type=zstd"],
    }
    for name, properties in ways.items():
        topic = f"perf-{name}"
        create_topic(kafka.bootstrap, topic)
        load = ["--num-records", "5000", "--record-size", "200", "--throughput", "-1"]
        how = [
            "--topic",
            topic,
            *load,
            "--producer-props",
            f"bootstrap.servers={kafka.bootstrap}",
            *properties,
        ]
        run_tool(kafka, "ProducerPerformance", *how, server=False)
        await_markers(kafka.bootstrap, topic, [0])
        values = [each.value or b"" for each in read_topic(kafka.bootstrap, topic)[0]]
        seen[topic] = [hashlib.sha256(each).hexdigest() for each in values]
        assert len(values) == 5000
    return seen


def run_tool(kafka: KafkaCluster, tool: str, *options: str, text: str = "", server: bool = True) -> str:
    where = ["--bootstrap-server", kafka.bootstrap] if server else []
    command = tool_command(f"org.apache.kafka.tools.{tool}")
    result = subprocess.run(
        [*command, *where, *options], input=text, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def by_hand(kafka: KafkaCluster) -> Seen:
    """Requests that no other client sends: the responses, and the log."""
    seen: Seen = {}
    requests = {
        "two": following(0, 2),
        "one": following(17, 1),
        "one again": following(17, 1),
        "a gap": following(30, 1),
        "the next": following(20, 1),
        "no sequences": [Identity(-1, -1).batch(-1)],
        "two without sequences": [Identity(-1, -1).batch(-1)] * 2,
        "a transaction": [Identity().batch(23, flags=TRANSACTIONAL)],
        "a control batch": [Identity().batch(23, flags=CONTROL)],
        "magic 1": [message(1)],
        "magic 0": [message(0)],
        "cut short": [Identity().batch(23)[:-1]],
        "one, and one cut short": [Identity().batch(23), Identity().batch(26)[:-1]],
        "nothing": [],
    }
    create_topic(kafka.bootstrap, "by-hand")
    with RawProducer(kafka.bootstrap, client_id="shoal") as producer:
        for acks in (-1, 1):
            for name, batches in requests.items():
                outcome = producer.produce("by-hand", batches, acks=acks)
                # If the broker finds a duplicate, it returns that one's timestamp as append time.
                seen[f"by hand, {acks}: {name}"] = outcome
    seen["by hand, in the log"] = headers(kafka, "by-hand")
    return seen


# Beside marked traffic


@pytest.mark.parametrize("version", EVERY_LINE)
@pytest.mark.timeout(600)
def test_ordinary_and_marked_clients_share_a_partition(version: str, topic: str) -> None:
    """The marked one gets an error after each write of another client, and no record is lost or doubled."""
    with KafkaCluster(version=version, broker_jvm={1: [f"-javaagent:{agent_jar()}"]}) as kafka:
        create_topic(kafka.bootstrap, topic)
        done = threading.Event()
        ordinary: dict[str, Callable[[], int]] = {
            "plain": lambda: send_many(kafka, topic, "plain", {"compression.type": "snappy"}),
            "idempotent": lambda: send_many(kafka, topic, "idempotent", {"enable.idempotence": True}),
            "transactional": lambda: send_transactions(kafka, topic, "transactional"),
        }
        with ThreadPoolExecutor() as pool:
            marked = pool.submit(append_until, kafka, topic, done)
            sent = {name: pool.submit(run) for name, run in ordinary.items()}
            counts = {name: future.result() for name, future in sent.items()}
            done.set()
            appended, refused = marked.result()
        read = read_topic(kafka.bootstrap, topic)[0]
        for name, count in counts.items():
            assert [each.value for each in read if each.key == name.encode()] == values(name, count)
        assert appended >= LEAST_APPENDED
        assert refused > 0
        theirs = {name.encode() for name in counts}
        assert len([each for each in read if each.key not in theirs]) == appended * 60
        assert all(each.is_valid for each in dump_partition(kafka.partition_dir(topic, 0)))


def values(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def send_many(kafka: KafkaCluster, topic: str, name: str, config: dict[str, object]) -> int:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0, **config})
    failed: list[object] = []

    def keep_failure(error: object, _: object) -> None:
        if error:
            failed.append(error)

    for value in values(name, 4_000):
        producer.produce(
            topic,
            value,
            name.encode(),
            0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0.001)
    assert producer.flush(120) == 0
    assert failed == []
    return 4_000


def send_transactions(kafka: KafkaCluster, topic: str, name: str) -> int:
    config: dict[str, object] = {"transactional.id": f"{topic}-{name}", "log_level": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **config})
    producer.init_transactions(60)
    sent = values(name, 400)
    for first in range(0, 400, 20):
        producer.begin_transaction()
        for value in sent[first : first + 20]:
            producer.produce(topic, value, name.encode(), 0)
        producer.commit_transaction(60)
    return 400


def append_until(kafka: KafkaCluster, topic: str, done: threading.Event) -> tuple[int, int]:
    """Append 20 batches at a time at the log's end; return the numbers of successes and of refusals."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    appended = refused = 0
    with RawProducer(kafka.bootstrap) as producer:
        # After the others have ended, no write comes between.
        while not done.is_set() or appended < LEAST_APPENDED:
            (found,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
            end = found.result().offset
            # If a producer id wrote before, it has to continue its own sequence, regardless of other writes.
            identity = Identity(producer_id=5_000_000 + appended + refused)
            outcome = producer.produce(topic, following(end, 20, identity=identity))
            if outcome.error_code == 0:
                assert outcome.base_offset == end
                appended += 1
            else:
                assert outcome.error_code == 45
                refused += 1
    return appended, refused
