"""A mirror that decodes (*deep*) beside one that copies whole batches (*shallow*): the row ``before_after``.

The charts are those of KIP-712 and of Pinterest's article: CPU, memory, garbage collection, batch sizes and
message conversions, before and after. Each mover is measured as those of the costs are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.cost import Topic, copies, loaded
from bench.figures import CPU
from bench.measure import Window
from bench.mirror_maker_2 import MirrorMaker2
from bench.mirror_makers import MirrorMaker1Mover, ShoalMirrorMaker
from bench.mover import Mover
from bench.movers import usual_codes
from bench.rows import PATIENT, Row, Settings, delete_topics
from bench.runs import Section
from bench.shoal_movers import Shoal
from bench.topics import B256, PARTITIONS, Shape
from rig import BENCH_JVM, KafkaCluster, dump_partitions, start_in_parallel
from rig.jars import KAFKA_3_VERSION, MIRROR_MAKER_2_VERSION
from rig.jmx import jmx_options, read_count
from rig.ports import free_port

__all__ = ["BEFORE_AFTER"]

_CONVERSIONS = "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"
_MEGABYTES = 1000
#: A smaller topic could arrive in one step, between two looks at the copy.
_LEAST_MEGABYTES = 50


@dataclass(frozen=True)
class _Case:
    """A topic, and how the destination's broker stores its copies (``compression.type``)."""

    name: str
    shape: Shape
    stored_with: str = "producer"


_LZ4 = Shape("b256_lz4", "lz4", 256)
_CASES = (
    _Case("b256_gzip", B256),
    _Case("b256_lz4", _LZ4),
    # No mirror avoids these conversions: the destination's broker sets the codec.
    _Case("b256_lz4_to_gzip", _LZ4, stored_with="gzip"),
)


def _movers() -> Sequence[Mover]:
    code = usual_codes(None)[0]
    return (
        MirrorMaker1Mover("MirrorMaker 1 (deep)"),
        MirrorMaker2("MirrorMaker 2 (deep)"),
        ShoalMirrorMaker("shoal mirror-maker (deep)", code),
        ShoalMirrorMaker("shoal mirror-maker --use.raw.bytes", code, ["--use.raw.bytes"]),
        Shoal(code),
    )


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    megabytes = max(_LEAST_MEGABYTES, _MEGABYTES * settings.scale)
    jmx_port = free_port()
    source, destination = (
        KafkaCluster(config=PATIENT, heap="1g", jvm=BENCH_JVM, broker_jvm=broker_jvm)
        for broker_jvm in ({}, {1: jmx_options(jmx_port)})
    )
    figures: dict[str, dict[str, list[float]]] = {}
    with start_in_parallel(source, destination):
        for case in _CASES:
            _store_with(destination, case.stored_with)
            topic = loaded(source, case.shape, megabytes)
            for mover, found in _measured((source, destination), topic, settings.repeat, jmx_port):
                turns = figures.setdefault(f"{case.name}: {mover}", {})
                for quantity, value in found.items():
                    turns.setdefault(quantity, []).append(value)
            delete_topics(source, topic.name)
    text = (
        f"MirrorMaker 1 of Kafka {KAFKA_3_VERSION}, MirrorMaker 2 of {MIRROR_MAKER_2_VERSION}. "
        f"{megabytes:g} MB of records of 1,000 bytes in {PARTITIONS} partitions. CPU and garbage collection "
        "from half of the records to the last; batches and conversions are those of the whole copy."
    )
    return Section("Before and after", text, figures)


BEFORE_AFTER = Row(
    "before_after", "mirrors that decode beside mirrors of whole batches", 18, _run, compares_commits=False
)


def _measured(
    clusters: tuple[KafkaCluster, KafkaCluster], topic: Topic, repeat: int, jmx_port: int
) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Let the movers copy a topic in turn; yield the name and the figures of each."""
    before = read_count(jmx_port, _CONVERSIONS)
    for mover, window, copy in copies(clusters, topic, _movers(), repeat):
        converted = read_count(jmx_port, _CONVERSIONS)
        figures = {**_usage(topic, window), **_batches(clusters[1], copy), "conversions": converted - before}
        before = converted
        yield mover.name, figures


def _usage(topic: Topic, window: Window) -> Mapping[str, float]:
    (cpu,), (speed,) = topic.per_gb([window], "cpu_s"), topic.speed([window])
    return {
        CPU: cpu,
        "MB/s": speed,
        "PSS, MB": window.pss / 1e6,
        "GC pauses": len(window.pauses_s),
        "GC, ms": 1000 * sum(window.pauses_s),
    }


def _batches(destination: KafkaCluster, copy: str) -> Mapping[str, float]:
    """Return the mean size of the batches at the destination."""
    copies = [destination.partition_dir(copy, number) for number in range(PARTITIONS)]
    batches = [batch for found in dump_partitions(copies).values() for batch in found]
    return {
        "KB a batch": sum(each.size for each in batches) / len(batches) / 1000,
        "records a batch": sum(each.count for each in batches) / len(batches),
    }


def _store_with(cluster: KafkaCluster, compression_type: str) -> None:
    """Set how the cluster's only broker compresses topics without a ``compression.type`` of their own."""
    entry = ConfigEntry("compression.type", compression_type, incremental_operation=AlterConfigOpType.SET)
    (node_id,) = cluster.node_ids
    broker = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for altered in admin.incremental_alter_configs([broker]).values():
        altered.result()
