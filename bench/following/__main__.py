"""The command: ``python -m bench.following --help``."""

import argparse
import csv
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.account import group_parent
from bench.following.batch_kinds import BatchKinds, new_kinds, old_kinds
from bench.following.cost import measure_cost
from bench.following.cutover import measure_cutover
from bench.following.lines import Line, table
from bench.following.load import Size
from bench.following.tally import Tally
from bench.following.translation import POSITIONS, measure_translation
from bench.report import machine, say, versions
from bench.rows import PATIENT
from rig import BENCH_JVM, KAFKA_VERSION, OLD_KAFKA_VERSION, KafkaCluster, OldKafka, start_in_parallel
from rig.jars import KAFKA_3_VERSION, MIRROR_MAKER_2_VERSION

_RESULTS = Path(__file__).parents[1] / "results.md"

_STARTS_S = 600.0

_PARTS = {
    "translation": "10,000 random positions over all kinds of batches, also those of MirrorMaker 2",
    "old": f"the same with the message formats of Kafka {OLD_KAFKA_VERSION}, to the first version of --kafka",
    "cutover": "the seconds of a cut-over of 1,200 partitions and 100 groups",
    "cost": "the CPU that 100 groups over 1,200 partitions cost a mirror",
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.following",
        description="Measure what follows the records, between real Kafka clusters on this machine.",
        epilog="\n".join(["parts:", *(f"  {name:12} {about}" for name, about in _PARTS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=list(_PARTS), default=list(_PARTS), metavar="PART")
    parser.add_argument(
        "--kafka", nargs="+", default=[KAFKA_VERSION, KAFKA_3_VERSION], metavar="VERSION",
        help=f"versions of both clusters, one after the other (default: {KAFKA_VERSION} {KAFKA_3_VERSION})",
    )  # fmt: skip
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="FACTOR",
        help="factor of sizes and durations; with less than 1 it is only a trial (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=int, default=3, help="measurements of each cost; the median counts (default: 3)"
    )
    parser.add_argument(
        "--no-peer", action="store_true", help="without MirrorMaker 2, which takes minutes to settle"
    )
    parser.add_argument(
        "--groups-file", type=Path, metavar="FILE.csv", help="a file for what was found for each group"
    )
    parser.add_argument("--append", action="store_true", help=f"append the table to bench/{_RESULTS.name}")
    return parser.parse_args(arguments)


def sizes(scale: float) -> tuple[Size, Sequence[Size]]:
    """Return the size of the cut-over, and those of the cost."""

    def size(name: str, topics_per_group: int) -> Size:
        partitions, groups = max(60, round(1200 * scale)), max(6, round(100 * scale))
        return Size(name, partitions, groups, topics_per_group, max(2, round(120 * scale)))

    every = len(size("costs", 1).topics)
    return size("moves", 1), [size("costs", 1), size("costs", every)]


def _cluster(version: str) -> KafkaCluster:
    # On a busy machine a trial waits longer for its brokers than a test.
    return KafkaCluster(config=PATIENT, heap="1g", jvm=BENCH_JVM, version=version, start_timeout_s=_STARTS_S)


class _GroupsFile:
    """A file in CSV with a row for each group and mirror."""

    def __init__(self, path: Path) -> None:
        self._path = path
        names = [each.name for each in fields(Tally)]
        self._write("w", ["clusters", "mirror", "group", *names])

    def add(self, clusters: str, mirror: str, group: str, found: Tally) -> None:
        """Append a group."""
        self._write("a", [clusters, mirror, group, *astuple(found)])

    def _write(self, mode: str, row: Sequence[object]) -> None:
        with self._path.open(mode, newline="") as file:
            csv.writer(file).writerow(row)


def _measure_all(arguments: argparse.Namespace) -> tuple[list[Line], list[str]]:
    """Measure part by part, each between new clusters; return also the names of those that failed."""
    lines: list[Line] = []
    failed = []
    parts: list[tuple[str, Callable[[], list[Line]]]] = []
    for version in arguments.kafka:
        clusters = f"{version} to {version}"
        own: dict[str, Callable[[], list[Line]]] = {
            "translation": partial(_translation, clusters, version, arguments),
            "cutover": partial(_cutover, clusters, version, arguments),
            "cost": partial(_cost, clusters, version, arguments),
        }
        parts += [(f"{part}, {clusters}", own[part]) for part in own if part in arguments.parts]
    if "old" in arguments.parts:
        clusters = f"{OLD_KAFKA_VERSION} to {arguments.kafka[0]}"
        parts.append((f"translation, {clusters}", partial(_old, clusters, arguments)))
    for name, measure in parts:
        say(name)
        try:
            found = measure()
        except Exception:  # the other parts are worth having
            traceback.print_exc()
            failed.append(name)
            continue
        print(table(found), end="\n\n", flush=True)
        lines += found
    return lines, failed


def _translation(clusters: str, version: str, arguments: argparse.Namespace) -> list[Line]:
    with start_in_parallel(_cluster(version), _cluster(version)) as (source, destination):
        return _translate(clusters, source, destination, partial(new_kinds, source), arguments)


def _old(clusters: str, arguments: argparse.Namespace) -> list[Line]:
    with ExitStack() as stack:
        source = stack.enter_context(OldKafka(start_timeout_s=_STARTS_S))
        destination = stack.enter_context(_cluster(arguments.kafka[0]))
        return _translate(clusters, source, destination, partial(old_kinds, source), arguments)


def _translate(
    clusters: str,
    source: KafkaCluster | OldKafka,
    destination: KafkaCluster,
    make: Callable[[float], BatchKinds],
    arguments: argparse.Namespace,
) -> list[Line]:
    return measure_translation(
        clusters,
        source,
        destination,
        lambda: make(arguments.scale),
        round(POSITIONS * arguments.scale),
        with_peer=not arguments.no_peer,
        on_group=arguments.on_group,
    )


def _cutover(clusters: str, version: str, arguments: argparse.Namespace) -> list[Line]:
    with start_in_parallel(_cluster(version), _cluster(version)) as (source, destination):
        return measure_cutover(clusters, source, destination, sizes(arguments.scale)[0])


def _cost(clusters: str, version: str, arguments: argparse.Namespace) -> list[Line]:
    window_s = max(10.0, 60 * arguments.scale)
    with start_in_parallel(_cluster(version), _cluster(version)) as (source, destination):
        return measure_cost(
            clusters, source, destination, sizes(arguments.scale)[1], window_s, arguments.repeat
        )


def _heading(scale: float, loads: tuple[float, float]) -> str:
    counted = "by a control group" if group_parent() else "by samples, which may miss some"
    trial = "" if scale == 1 else f" **A trial at {scale:g} of the size: no figures.**"
    return f"""\
## {datetime.now(UTC):%Y-%m-%d}, what follows the records

{machine()}; two Kafka brokers (KRaft), the mirrors and the clients on this machine, loopback; \
MirrorMaker 2 of Kafka {MIRROR_MAKER_2_VERSION}; {versions("confluent-kafka", "pyspark")}. \
Made by `python -m bench.following`.{trial}
Positions are random offsets of consumer groups. confluent-kafka read all records of both clusters. The \
figures count the records between a group's offset and the one that a mirror gave it.
Processes of a mirror are counted {counted}; the cost of groups is the difference of two mirrors side by side.
Load of the machine over a minute, before and after: {loads[0]:.1f} and {loads[1]:.1f}."""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parse(arguments)
    file = parsed.groups_file
    parsed.on_group = _GroupsFile(file).add if file is not None else lambda *_: None
    load_before = os.getloadavg()[0]
    lines, failed = _measure_all(parsed)
    text = f"{_heading(parsed.scale, (load_before, os.getloadavg()[0]))}\n\n{table(lines)}"
    print(text)
    if parsed.append:
        with _RESULTS.open("a") as file:
            file.write(f"\n{text}\n")
    for name in failed:
        say(f"failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
