"""Several batches of a partition in a request, and one: the row ``agent``.

The destination's broker runs shoal's Java agent, which compares sequences with the log's end. A mirror with
``--delivery at-least-once`` has other sequences, so it sends one batch of a partition in a request.
"""

from dataclasses import replace

from bench.cost import compare, loaded
from bench.figures import CPU
from bench.movers import usual_codes
from bench.rows import Row, Settings
from bench.runs import Section
from bench.shoal_movers import Shoal
from bench.topics import B1
from rig import BENCH_JVM, KafkaCluster, start_in_parallel
from rig.agent import agent_jar

__all__ = ["AGENT"]

#: A batch of one record takes some 600 bytes: a busy service that does not wait for its batches to fill.
_SHAPE = replace(B1, partitions=8)
_MEGABYTES = 400
#: Until the brokers' JVMs have compiled their code.
_WARM_UP_PART = 0.3
#: A smaller topic could arrive in one step, between two looks at the copy.
_LEAST_MEGABYTES = 30


def _run(settings: Settings) -> Section:
    settings.clusters.close()
    code = usual_codes(None)[0]
    one, several = Shoal(code, ("--delivery", "at-least-once")), Shoal(code)
    source = KafkaCluster(jvm=BENCH_JVM, heap="1g")
    destination = KafkaCluster(jvm=(*BENCH_JVM, f"-javaagent:{agent_jar()}"), heap="1g")
    with start_in_parallel(source, destination):
        clusters = source, destination
        compare(clusters, loaded(source, _SHAPE, _MEGABYTES * _WARM_UP_PART), [one, several], 1)
        topic = loaded(source, _SHAPE, max(_LEAST_MEGABYTES, _MEGABYTES * settings.scale))
        windows = compare(clusters, topic, [one, several], settings.repeat)
    figures = {
        name: {
            "MB/s": topic.speed(turns),
            CPU: topic.per_gb(turns, "cpu_s"),
            "destination broker": topic.per_gb(turns, "destination_cpu_s"),
        }
        for name, turns in windows.items()
    }
    text = (
        f"{topic.gigabytes * 1000:.0f} MB of batches of one record in {_SHAPE.partitions} partitions, lz4; a "
        "destination with the Java agent. A mirror with `--delivery at-least-once` sends one in a request."
    )
    return Section("Several batches in a request", text, figures)


AGENT = Row(
    "agent",
    "batches of one record, several in a request, with the Java agent",
    4,
    _run,
    compares_commits=False,
)
