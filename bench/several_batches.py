"""Several batches of a partition in a request, and one: the row ``agent``.

The destination's broker runs shoal's Java agent. The copy loop is one Spark task of shoal, without Spark.
"""

from dataclasses import replace

from bench.compare import CPU, compare, loaded
from bench.figures import Figure, Figures, Key, Ratio
from bench.report import markdown
from bench.rows import Row, Section, Settings
from bench.shoal_movers import copy_loop, has_native, native, pure_python
from bench.topics import TOPICS
from rig import BENCH_JVM, KafkaCluster, start_in_parallel
from rig.agent import agent_jar

__all__ = ["AGENT"]

#: A batch of one record takes some 600 bytes: a busy service that does not wait for its batches to fill.
_SHAPE = replace(next(shape for shape in TOPICS if shape.name == "b1_lz4"), partitions=8)
_SPEED = "MB/s"
_BROKER_CPU = "destination broker, CPU-s/GB"
#: Until the brokers' JVMs have compiled their code.
_WARM_UP_PART = 0.3


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    code = native() if has_native() else pure_python()
    one, several = copy_loop(code, "--one-batch"), copy_loop(code)
    source = KafkaCluster(jvm=BENCH_JVM, heap="1g")
    destination = KafkaCluster(jvm=(*BENCH_JVM, f"-javaagent:{agent_jar()}"), heap="1g")
    with start_in_parallel(source, destination):
        clusters = source, destination
        compare(clusters, loaded(source, _SHAPE, _SHAPE.megabytes * _WARM_UP_PART), [one, several], 1)
        topic = loaded(source, _SHAPE, _SHAPE.megabytes * settings.scale)
        windows = compare(clusters, topic, [one, several], settings.repeat)
    figures: Figures = {}
    for mover, turns in windows.items():
        gigabytes = [turn.part * topic.gigabytes for turn in turns]
        quantities = {
            _SPEED: [1000 * size / turn.seconds for size, turn in zip(gigabytes, turns, strict=True)],
            _BROKER_CPU: [turn.destination_cpu_s / size for size, turn in zip(gigabytes, turns, strict=True)],
            CPU: [turn.cpu_s / size for size, turn in zip(gigabytes, turns, strict=True)],
        }
        figures |= {Key(AGENT.name, mover, name): Figure(values) for name, values in quantities.items()}
    rows = [
        (
            mover.name,
            *(f"{figures[Key(AGENT.name, mover.name, each)]:.1f}" for each in (_SPEED, _BROKER_CPU, CPU)),
        )
        for mover in (one, several)
    ]
    alone, together = (
        {name: figures[Key(AGENT.name, mover.name, name)] for name in (_SPEED, _BROKER_CPU, CPU)}
        for mover in (one, several)
    )
    ratios = [
        f"{Ratio.of(together[_SPEED], alone[_SPEED])} faster",
        *(f"{Ratio.of(alone[name], together[name])} cheaper" for name in (_BROKER_CPU, CPU)),
    ]
    rows.append(("several against one", *ratios))
    text = (
        f"{topic.gigabytes * 1000:.0f} MB of batches of one record in {_SHAPE.partitions} partitions, lz4; a "
        f"destination with the Java agent.\n\n{markdown(('mover', _SPEED, _BROKER_CPU, CPU), rows)}"
    )
    return Section("Several batches in a request", text, figures)


AGENT = Row(
    "agent",
    "batches of one record, several in a request, with the Java agent",
    4,
    _run,
    compares_commits=False,
)
