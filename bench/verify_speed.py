"""The speed of ``shoal verify``: the row ``verify``.

One process compares a small topic first, to be warm, and then the large one. Its own account (getrusage, with
its children) is read before and after the second. ``shoal verify`` starts no JVM.

A MB is one of both clusters' batches, as they are stored and sent, counted once: if verify reads some of them
twice, its speed is lower.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cost import Topic, loaded
from bench.figures import CPU
from bench.measure import measure
from bench.mover import Job
from bench.movers import codes
from bench.rows import Row, Settings, delete_topics, in_turns
from bench.runs import Section
from bench.shoal_movers import Code, Shoal
from bench.topics import B16, B1024
from rig import KafkaCluster

__all__ = ["CPU_S", "VERIFY", "compare_twice"]

_MEGABYTES = {B16: 1000, B1024: 1500}
_TWICE = Path(__file__).parent / "verify_twice.py"
_WARM_UP_MEGABYTES = 50
_TIMEOUT_S = 1200.0

#: The quantities that verify_twice.py prints.
CPU_S, SECONDS = "CPU-s", "s"


@dataclass(frozen=True)
class _Copied:
    """A topic, its copy, and the group with the mirror's positions."""

    topic: Topic
    copy: str

    @property
    def options(self) -> list[str]:
        topics = ["--topics", self.topic.name, "--rename", f"{self.topic.name}={self.copy}"]
        return [*topics, "--group", self.copy]


def _copied(clusters: tuple[KafkaCluster, KafkaCluster], mirror: Shoal, topic: Topic) -> _Copied:
    """Mirror a topic as shoal does, unmeasured."""
    source, destination = clusters
    copy = f"{topic.name}_copy"
    with TemporaryDirectory(prefix="bench-") as directory:
        job = Job(
            source.bootstrap, destination.bootstrap, topic.name, copy, topic.shape.codec, Path(directory)
        )
        measure(mirror, job, source, destination)
    return _Copied(topic, copy)


def compare_twice(code: Code, runs: Sequence[Sequence[str]], exit_code: int = 0) -> dict[str, float]:
    """Run two comparisons in one process by their arguments; each must end with the exit code.

    Returns:
        The cost of the second, and the memory that the first adds to the process.
    """
    told = ["--code", str(exit_code), *map(json.dumps, runs)]
    # By its path, since another commit's bench may lack it.
    found: dict[str, float] = json.loads(
        code.output_of("shoal verify", [code.python, str(_TWICE), *told], _TIMEOUT_S)
    )
    return found


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    between = ["verify", "--from", clusters[0].bootstrap, "--to", clusters[1].bootstrap]
    ours = {code.name: code for code in codes(settings.before).values()}
    mirror = Shoal(next(iter(ours.values())))
    figures = {}
    for shape, usual in _MEGABYTES.items():
        small, large = (
            _copied(clusters, mirror, loaded(clusters[0], shape, megabytes * settings.scale))
            for megabytes in (_WARM_UP_MEGABYTES, usual)
        )
        runs = [[*between, *each.options] for each in (small, large)]
        speeds = in_turns(f"verify of {shape.name}", ours, settings.repeat, partial(compare_twice, runs=runs))
        megabytes = 2000 * large.topic.wire_gigabytes
        for name, found in speeds.items():
            figures[f"{shape.name}, {name}"] = {
                "wire MB/s a core": [megabytes / each for each in found[CPU_S]],
                "wire MB/s": [megabytes / each for each in found[SECONDS]],
                CPU: [each / large.topic.gigabytes for each in found[CPU_S]],
            }
        for copied in (small, large):
            delete_topics(clusters[0], copied.topic.name)
            delete_topics(clusters[1], copied.copy)
    text = (
        "A wire MB is one of both clusters' batches as they are stored, and a GB one of the topic, "
        "uncompressed; the second comparison of a process, with the mirror's group."
    )
    return Section("`shoal verify`", text, figures)


VERIFY = Row("verify", "speed of `shoal verify`, batches of 8 and of 450 KB", 4, _run)
