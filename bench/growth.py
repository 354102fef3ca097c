"""How the cost grows over partitions: the row ``partitions``."""

from dataclasses import replace

from bench.cost import compare, loaded
from bench.figures import CPU
from bench.movers import codes
from bench.rows import Row, Settings, delete_topics
from bench.runs import Section
from bench.shoal_movers import copy_loop
from bench.topics import TOPICS

__all__ = ["PARTITIONS"]

_PARTITIONS = (1, 4, 16, 64, 256, 1024)
_SHAPE = TOPICS[0]
#: More for many partitions, so that each has dozens of batches.
_MEGABYTES = {partitions: 400 if partitions <= 64 else 1000 for partitions in _PARTITIONS}


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    movers = [copy_loop(code) for code in codes(settings.before).values()]
    figures = {}
    for partitions in _PARTITIONS:
        shape = replace(_SHAPE, name=f"{_SHAPE.name}_p{partitions}", partitions=partitions)
        topic = loaded(clusters[0], shape, _MEGABYTES[partitions] * settings.scale)
        for mover, turns in compare(clusters, topic, movers, settings.repeat).items():
            figures[f"{mover}, {partitions:,} partitions"] = {
                CPU: topic.per_gb(turns, "cpu_s"),
                "destination broker": topic.per_gb(turns, "destination_cpu_s"),
                "yardstick, ms": [turn.yardstick_ms for turn in turns],
            }
        delete_topics(clusters[0], topic.name)
    text = (
        f"{_MEGABYTES[1] * settings.scale:.0f} MB, and {_MEGABYTES[1024] * settings.scale:.0f} MB from 256 "
        f"partitions on, in batches of {_SHAPE.records_per_batch} records, {_SHAPE.codec}. The copy loop is "
        "one task of shoal, without Spark."
    )
    return Section("Cost over partitions", text, figures)


PARTITIONS = Row("partitions", "1 to 1,024 partitions: CPU per GB of the copy loop", 7, _run)
