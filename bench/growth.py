"""How the cost grows: over partitions (the row ``growth``) and over size (``size``)."""

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace

import psutil
from confluent_kafka.admin import AdminClient

from bench.compare import CPU, compare, loaded
from bench.copy_loop import copy_topic
from bench.figures import Figure, Figures, Key, Ratio
from bench.movers import codes
from bench.report import markdown, say
from bench.rows import Row, Section, Settings, delete_topics
from bench.shoal_movers import Code, copy_loop
from bench.starts import measure_starts
from bench.topics import TOPICS
from rig import create_topic

__all__ = ["ALIGNING", "GROWTH", "PARTITIONS_OF_GROWTH", "SIZE"]

PARTITIONS_OF_GROWTH = (1, 4, 16, 64, 256, 1024)

_SHAPE = TOPICS[0]
#: More for many partitions, so that each has dozens of batches.
_MEGABYTES = {partitions: 400 if partitions <= 64 else 1000 for partitions in PARTITIONS_OF_GROWTH}
#: With the full topic: 100 GB.
_PASSES = 100
_TIMEOUT_S = 3600.0


def _grow(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    movers = [copy_loop(code) for code in codes(settings.before).values()]
    figures: Figures = {}
    rows = []
    for partitions in PARTITIONS_OF_GROWTH:
        shape = replace(_SHAPE, name=f"{_SHAPE.name}_p{partitions}", partitions=partitions)
        topic = loaded(clusters[0], shape, _MEGABYTES[partitions] * settings.scale)
        windows = compare(clusters, topic, movers, settings.repeat)
        delete_topics(clusters[0], topic.name)
        for mover, turns in windows.items():
            cpu = Figure([each.cpu_s / each.part / topic.gigabytes for each in turns])
            broker = Figure([each.destination_cpu_s / each.part / topic.gigabytes for each in turns])
            figures[Key(GROWTH.name, f"{mover}, {partitions} partitions", CPU)] = cpu
            yardstick = Figure([each.yardstick_ms for each in turns])
            rows.append((mover, f"{partitions:,}", f"**{cpu:.2f}**", f"{broker:.2f}", f"{yardstick:.2f}"))
    head = ("mover", "partitions", CPU, "destination broker, CPU-s/GB", "yardstick, ms")
    text = (
        f"{min(_MEGABYTES.values()) * settings.scale:.0f} MB, and "
        f"{max(_MEGABYTES.values()) * settings.scale:.0f} MB from 256 partitions on, "
        f"in batches of {_SHAPE.records_per_batch} records, "
        f"{_SHAPE.codec}; from a tenth of the records to the last, so without aligning.\n\n"
        f"{markdown(head, sorted(rows, key=lambda row: row[0]))}"
    )
    return Section("Growth over partitions", text, figures)


GROWTH = Row("growth", "1 to 1,024 partitions: CPU per GB of the copy loop", 7, _grow)


def _align(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    partitions = max(50, int(1024 * settings.scale))
    starts = measure_starts(source, destination, partitions, settings.repeat)
    figures: Figures = {}
    rows = []
    for name in dict.fromkeys(start.name for start in starts):
        measured = [start for start in starts if start.name == name]
        cpu, wall = Figure([each.cpu_s for each in measured]), Figure([each.wall_s for each in measured])
        figures |= {Key(ALIGNING.name, name, "CPU-s"): cpu, Key(ALIGNING.name, name, "s"): wall}
        requests = ", ".join(f"{count:,} {api}" for api, count in measured[-1].requests.most_common())
        rows.append((name, f"**{wall:.1f}**", f"**{cpu:.1f}**", requests))
    text = (
        f"{partitions:,} partitions, a batch of records in each, by one task.\n\n"
        f"{markdown(('start', 'wall, s', 'CPU-s of the task', 'requests to both clusters'), rows)}"
    )
    return Section("Aligning", text, figures)


ALIGNING = Row(
    "aligning",
    "1,024 partitions: CPU and time until a task has found all positions",
    3,
    _align,
    compares_commits=False,
)


@dataclass(frozen=True)
class _Pass:
    cpu_s: float
    seconds: float
    rss: int


def _size(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    topic = loaded(source, _SHAPE, _SHAPE.megabytes * settings.scale)
    figures: Figures = {}
    rows = []
    for code in codes(settings.before).values():
        say(f"size, {code.name}: {_PASSES} times the topic")
        told = [
            source.bootstrap,
            destination.bootstrap,
            topic.name,
            f"{topic.name}_again_{code.name.split()[0]}",
        ]
        passes = _passes(code, told)
        cpu = [each.cpu_s / topic.gigabytes for each in passes]
        # The first pass is a warm-up; a third of the others is what two ends are compared by.
        part = max(1, (len(cpu) - 1) // 3)
        ratio = Ratio([sum(cpu[-part:]) / sum(cpu[1 : 1 + part])]) if len(cpu) > 1 else Ratio([1.0])
        figures[Key(SIZE.name, code.name, "the last GBs against the first")] = Figure(ratio.turns)
        rows.append(
            (
                code.name,
                f"{topic.gigabytes * len(passes):.1f}",
                f"{Figure(cpu[1:] or cpu):.2f}",
                f"{ratio.median:.2f} times",
                f"{passes[0].rss / 1e6:.0f}",
                f"{passes[-1].rss / 1e6:.0f}",
            )
        )
    delete_topics(source, topic.name)
    head = (
        "copy loop", "GB", f"{CPU} of each pass but the first", "the last third against the first",
        "RSS after the first, MB", "after the last, MB",
    )  # fmt: skip
    text = (
        f"One process copies the same topic of {topic.gigabytes:.2f} GB again and again, each time to a new "
        f"topic; its own account.\n\n{markdown(head, rows)}"
    )
    return Section("Growth over size", text, figures)


SIZE = Row("size", "one topic of 1 GB read 100 times by one process", 10, _size, compares_commits=False)


def _passes(code: Code, told: list[str]) -> list[_Pass]:
    command = [sys.executable, "-m", "bench.growth", *told, "--passes", str(_PASSES)]
    output = code.output_of("copying again", command, _TIMEOUT_S)
    return [_Pass(**json.loads(line)) for line in output.splitlines()]


def _copy_again(source: str, destination: str, topic: str, copy: str, passes: int) -> None:
    """Copy a topic again and again; print the cost of each pass as a line of JSON."""
    partitions = len(AdminClient({"bootstrap.servers": source}).list_topics(topic).topics[topic].partitions)
    admin = AdminClient({"bootstrap.servers": destination, "log_level": 0})
    # Otherwise a deleted copy keeps its space for a minute.
    config = {"compression.type": "producer", "file.delete.delay.ms": "1000"}
    for number in range(passes):
        name = f"{copy}_{number}"
        create_topic(destination, name, partitions, config=config)
        cpu_before, began = time.process_time(), time.monotonic()
        if not copy_topic(source, destination, topic, name):
            raise SystemExit(f"copying {topic} to {name} failed")
        cpu_s, seconds = time.process_time() - cpu_before, time.monotonic() - began
        rss = psutil.Process().memory_info().rss
        print(json.dumps({"cpu_s": cpu_s, "seconds": seconds, "rss": rss}), flush=True)
        admin.delete_topics([name])[name].result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for place in ("source", "destination", "topic", "copy"):
        parser.add_argument(place)
    parser.add_argument("--passes", type=int, required=True)
    _copy_again(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
