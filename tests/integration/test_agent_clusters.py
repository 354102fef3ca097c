"""Real Kafka with the Java agent, for tests that need their own brokers: failures, passwords, long logs."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from rig import KafkaCluster, create_topic, dump_partition, java, read_topic, wait_until
from rig.agent import agent_jar
from rig.jars import KAFKA_3_VERSION, KAFKA_VERSION, OLD_KAFKA_VERSION, class_path, jars, tool_command
from rig.load import await_leaders
from rig.locked import PASSWORDS, LockedKafka, locked_kafka
from shoal.error_codes import ErrorCode
from tests.integration.agent_versions import EVERY_LINE
from tests.integration.raw_producer import ALL_CODECS, RawProducer, as_sent, following, outcome_of, stored
from tests.world.batches import batch

SEQUENCES = 2**31

lines = pytest.mark.parametrize("version", EVERY_LINE)


def with_agent(options: Path | None = None) -> list[str]:
    """Return the JVM options of a broker that has the agent."""
    return [f"-javaagent:{agent_jar()}" + (f"={options}" if options else "")]


# Failures


@lines
def test_restarted_broker_recognizes_repeated_requests(version: str, topic: str) -> None:
    """Requests are in flight when it is killed; all are sent again, in order."""
    requests = [following(number * 60, 20, codecs=ALL_CODECS) for number in range(40)]
    with KafkaCluster(version=version, broker_jvm={1: with_agent()}) as kafka:
        create_topic(kafka.bootstrap, topic)
        with RawProducer(kafka.bootstrap) as producer:
            for batches in requests:
                producer.begin(topic, batches)
            for number in range(10):
                assert outcome_of(producer.end()) == (ErrorCode.NONE, number * 60)
            kafka.kill(1)
        kafka.start(1)
        with RawProducer(kafka.bootstrap) as producer:
            for number, batches in enumerate(requests):
                assert producer.accepted(topic, batches) == number * 60
        assert as_sent(stored(kafka, topic)) == [each for batches in requests for each in as_sent(batches)]
        dumped = dump_partition(kafka.partition_dir(topic, 0), deep=True)
        assert [each.base_offset for each in dumped] == list(range(0, 40 * 60, 3))
        assert len(read_topic(kafka.bootstrap, topic)[0]) == 40 * 60


@pytest.mark.long
@lines
def test_follower_without_the_agent_replicates_and_leads_as_a_stock_broker(version: str, topic: str) -> None:
    # The controller is in broker 1, so that only broker 2 can be stopped.
    with KafkaCluster(brokers=2, version=version, broker_jvm={2: with_agent()}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        new = NewTopic(topic, 1, replica_assignment=[[2, 1]], config={"min.insync.replicas": "2"})
        admin.create_topics([new])[topic].result()
        wait_until(lambda: leader_of(admin, topic) == 2, "broker 2 to lead")
        await_leaders(kafka.bootstrap, topic)
        first, second = following(0, 50, codecs=ALL_CODECS), following(150, 20)
        with RawProducer(kafka.address(2)) as producer:
            assert producer.accepted(topic, first) == 0
        assert as_sent(stored(kafka, topic, 1)) == as_sent(first) == as_sent(stored(kafka, topic, 2))

        kafka.stop(2)
        wait_until(lambda: leader_of(admin, topic) == 1, "broker 1 to lead")
        set_config(
            kafka, "--entity-type", "topics", "--entity-name", topic, "--add-config", "min.insync.replicas=1"
        )
        with RawProducer(kafka.address(1)) as producer:
            wait_until(
                lambda: producer.offer(topic, second)[0] is ErrorCode.INVALID_RECORD,
                "broker 1 to lead alone, and to refuse them",
            )
            assert producer.refused(topic, first) == ErrorCode.INVALID_RECORD
            assert as_sent(stored(kafka, topic, 1)) == as_sent(first)
            # One by one they are appended as usual, and the broker remembers the last ones.
            assert producer.accepted(topic, first[-1:]) == 147
            assert producer.accepted(topic, second[:1]) == 150

        kafka.start(2)
        wait_until(lambda: in_sync(admin, topic) == {1, 2}, "broker 2 to be in sync")
        (result,) = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result().values()
        assert result is None
        wait_until(lambda: leader_of(admin, topic) == 2, "broker 2 to lead again")
        with RawProducer(kafka.address(2)) as producer:
            wait_until(
                lambda: producer.offer(topic, second)[0] is ErrorCode.NONE, "broker 2 to know that it leads"
            )
            assert producer.accepted(topic, first) == 0
        for node_id in (1, 2):
            assert as_sent(stored(kafka, topic, node_id)) == as_sent(first + second)


def leader_of(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return found[0].leader if found else -1


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    return set(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)


def set_config(kafka: KafkaCluster, *options: str) -> None:
    """Run Kafka's own kafka-configs.sh."""
    brokers = kafka.bootstrap.split(",")[0]
    tool = tool_command("org.apache.kafka.tools.ConfigCommand")
    command = [*tool, "--bootstrap-server", brokers, "--alter", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


# A log of more than 2^31 records


@lines
@pytest.mark.parametrize("before_the_wrap", [pytest.param(30, marks=pytest.mark.long), 31])
def test_sequences_wrap_around_at_two_to_the_31st(version: str, before_the_wrap: int, topic: str) -> None:
    """With 31, one batch has sequences on both sides."""
    start = SEQUENCES - before_the_wrap - 1
    with KafkaCluster(version=version, broker_jvm={1: with_agent()}) as kafka:
        create_topic(kafka.bootstrap, topic)
        kafka.stop(1)
        let_log_begin_at(kafka, topic, start)
        kafka.start(1)
        end = start + 1
        batches = following(end, 30, codecs=ALL_CODECS)
        with RawProducer(kafka.bootstrap) as producer:
            assert producer.refused(topic, following(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert producer.accepted(topic, batches[:20]) == end
            assert producer.accepted(topic, batches[:20]) == end
            assert producer.accepted(topic, batches) == end
        kafka.kill(1)
        kafka.start(1)
        with RawProducer(kafka.bootstrap) as producer:
            assert producer.accepted(topic, batches) == end
            stale, fresh = (following(end + behind, 2, producer_id=6_000_000) for behind in (87, 90))
            assert producer.refused(topic, stale) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert producer.accepted(topic, fresh) == end + 90
        found = dump_partition(kafka.partition_dir(topic, 0), deep=True)[1:31]
        assert [each.base_offset for each in found] == list(range(end, end + 90, 3))
        assert [each.base_sequence for each in found] == [
            offset % SEQUENCES for offset in range(end, end + 90, 3)
        ]
        assert as_sent(stored(kafka, topic)[1:31]) == as_sent(batches)


def let_log_begin_at(kafka: KafkaCluster, topic: str, offset: int) -> None:
    """Replace all segments by one with a record at this offset; the broker is stopped."""
    directory = kafka.partition_dir(topic, 0)
    for file in directory.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (directory / f"{offset:020}.log").write_bytes(batch(1, base_offset=offset))
    # So that the broker reads the segment instead of its checkpoints.
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (kafka.log_dirs[1] / name).unlink(missing_ok=True)


# Authorization


@pytest.fixture(scope="module", params=EVERY_LINE)
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedKafka]:
    """The agent lets Bob write to topics that begin with ``open``."""
    options = tmp_path_factory.mktemp("agent") / "agent.properties"
    options.write_text("principals=User:bob; User:CN=carol,OU=mirror\ntopics=open.*\n")
    with locked_kafka(request.param, with_agent(options)) as running:
        yield running


def test_acls_are_checked_first_as_in_the_stock_broker(locked: LockedKafka, topic: str) -> None:
    name = f"open-{topic}"
    create_topic(locked.cluster.bootstrap, name)
    with RawProducer(locked.cluster.listener("SASL"), login=("bob", PASSWORDS["bob"])) as bob:
        assert bob.refused(name, following(0, 3)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert bob.refused(name, following(0, 1)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert stored(locked.cluster, name) == []
        locked.allow("bob", ResourceType.TOPIC, name, AclOperation.WRITE)
        wait_until(lambda: not bob.offer(name, following(0, 3))[0], "the broker to know the ACL")
    assert as_sent(stored(locked.cluster, name)) == as_sent(following(0, 3))


def test_unnamed_principal_meets_the_stock_broker(locked: LockedKafka, topic: str) -> None:
    name = f"open-{topic}"
    create_topic(locked.cluster.bootstrap, name)
    with RawProducer(locked.cluster.listener("SASL"), login=("alice", PASSWORDS["alice"])) as alice:
        assert alice.refused(name, following(0, 3)) == ErrorCode.INVALID_RECORD
        assert alice.accepted(name, following(7, 1)) == 0
    # If a listener has no authentication, the broker does not name the client either.
    with RawProducer(locked.cluster.bootstrap) as anonymous:
        assert anonymous.refused(name, following(0, 3)) == ErrorCode.INVALID_RECORD


def test_unmatched_topic_meets_the_stock_broker(locked: LockedKafka, topic: str) -> None:
    create_topic(locked.cluster.bootstrap, topic)
    locked.allow("bob", ResourceType.TOPIC, topic, AclOperation.WRITE)
    with RawProducer(locked.cluster.listener("SASL"), login=("bob", PASSWORDS["bob"])) as bob:

        def is_allowed() -> bool:
            return bob.offer(topic, following(7, 1))[0] is ErrorCode.NONE

        wait_until(is_allowed, "the broker to know the ACL")
        assert bob.refused(topic, following(10, 3)) == ErrorCode.INVALID_RECORD
    assert len(stored(locked.cluster, topic)) == 1


# Combinations of the agent and another feature


@pytest.fixture(scope="module", params=EVERY_LINE)
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(version=request.param, broker_jvm={1: with_agent()}) as cluster:
        yield cluster


@pytest.mark.long
def test_quotas_throttle_as_in_the_stock_broker(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic)
    client_id = "shoal-multi-batch.throttled"
    set_config(
        kafka,
        "--entity-type",
        "clients",
        "--entity-name",
        client_id,
        "--add-config",
        "producer_byte_rate=2000",
    )
    throttled: list[int] = []
    with RawProducer(kafka.bootstrap, client_id=client_id) as producer:
        # A rate is measured over some seconds: if requests are slow, it takes more of them.
        while len(throttled) < 5 or (not throttled[-1] and len(throttled) < 100):
            producer.begin(topic, following(len(throttled) * 150, 50))
            throttled.append(producer.end().throttle_time_ms)
    assert throttled[0] == 0 or throttled[0] < throttled[-1]
    assert throttled[-1] > 0
    assert len(stored(kafka, topic)) == 50 * len(throttled)


# The guard at the start


def run_main(tmp_path: Path, options: str, classes: str) -> subprocess.CompletedProcess[str]:
    """Start a broker without a configuration; if the agent allows it, it ends with 1 for lack of that."""
    agent = f"-javaagent:{agent_jar()}{options}"
    command = [str(java()), agent, "-cp", classes, "kafka.Kafka", str(tmp_path / "missing.properties")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


REFUSED = 78


def assert_refused(result: subprocess.CompletedProcess[str], *reasons: str) -> None:
    assert result.returncode == REFUSED, result.stdout + result.stderr
    (said,) = (line for line in result.stderr.splitlines() if line.startswith("shoal-agent:"))
    assert re.search(r"nothing.*changed", said)
    for reason in reasons:
        assert reason in said


@lines
def test_known_version_starts(version: str, tmp_path: Path) -> None:
    result = run_main(tmp_path, "", class_path(version))
    assert result.returncode == 1
    assert all(each in result.stderr for each in (str(version), "several"))


@pytest.mark.parametrize(
    "version", [pytest.param(OLD_KAFKA_VERSION, marks=pytest.mark.long), KAFKA_3_VERSION]
)
def test_untested_version_does_not_start(version: str, tmp_path: Path) -> None:
    result = run_main(tmp_path, "", class_path(version))
    assert_refused(result, f"this agent was not tested with Kafka {version}, but with 4.1.0, ", KAFKA_VERSION)


@lines
@pytest.mark.parametrize("jar", ["kafka-storage", pytest.param("kafka_2.13", marks=pytest.mark.long)])
def test_class_file_that_differs_by_a_bit_does_not_start(version: str, jar: str, tmp_path: Path) -> None:
    name = "org/apache/kafka/storage/internals/log/LogValidator.class"
    if jar == "kafka_2.13":
        name = "kafka/server/KafkaApis.class"
    lib = tmp_path / "lib"
    shutil.copytree(jars(version), lib)
    patch(lib / f"{jar}-{version}.jar", name)
    result = run_main(tmp_path, "", f"{lib}/*")
    assert_refused(result, f"the class file of {name[:-6].replace('/', '.')} is not that of Kafka {version}")


def patch(jar: Path, name: str) -> None:
    """Change the last byte of a file in a jar."""
    original = jar.with_suffix(".original")
    jar.rename(original)
    with zipfile.ZipFile(original) as source, zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.namelist():
            data = source.read(entry)
            target.writestr(entry, data[:-1] + bytes([data[-1] ^ 1]) if entry == name else data)
    original.unlink()


def test_class_path_that_shadows_kafka_does_not_start(tmp_path: Path) -> None:
    name = "kafka/server/KafkaApis.class"
    (tmp_path / name).parent.mkdir(parents=True)
    with zipfile.ZipFile(jars() / f"kafka_2.13-{KAFKA_VERSION}.jar") as jar:
        (tmp_path / name).write_bytes(jar.read(name))
    result = run_main(tmp_path, "", f"{tmp_path}:{class_path()}")
    assert_refused(result, "the class path has 2 class files of kafka/server/KafkaApis")


def test_unknown_options_do_not_start(tmp_path: Path) -> None:
    options = tmp_path / "agent.properties"
    options.write_text("topic=orders\n")
    assert_refused(run_main(tmp_path, f"={options}", class_path()), "there is no option topic")
    missing = run_main(tmp_path, f"={tmp_path / 'none'}", class_path())
    assert_refused(missing, f"the options of {tmp_path / 'none'} cannot be read")
