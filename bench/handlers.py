"""The cost of handlers of ``shoal mirror-maker``, of records and of whole batches: the row ``handlers``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cost import compare, figures_of, loaded
from bench.mirror_makers import mirror_maker
from bench.mover import Command, Job
from bench.movers import usual_codes
from bench.rows import Row, Settings, delete_topics
from bench.runs import Section
from bench.shoal_movers import Code
from bench.topics import TOPICS
from rig import create_topic

__all__ = ["HANDLERS"]

_ROOT = Path(__file__).parents[1]
_SHAPE = next(shape for shape in TOPICS if shape.name == "b16_lz4")
_MEGABYTES = 500


@dataclass(frozen=True)
class _Handling:
    """``shoal mirror-maker`` with a handler of `bench.pass_on`."""

    code: Code
    handler: str

    @property
    def name(self) -> str:
        return f"{self.handler}, {self.code.name}"

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        create_topic(job.destination, job.copy, job.partitions, config={"compression.type": "producer"})
        paths = [self.code.environment.get("PYTHONPATH"), str(_ROOT)]
        environment = {**self.code.environment, "PYTHONPATH": ":".join(filter(None, paths))}
        handler = ["--message.handler", f"bench.pass_on:{self.handler}", "--message.handler.args", job.copy]
        raw = ["--use.raw.bytes"] if self.handler == "Batches" else []
        yield mirror_maker(job, [*handler, *raw], self.code.python, environment)


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    topic = loaded(clusters[0], _SHAPE, _MEGABYTES * settings.scale)
    movers = [
        _Handling(code, handler)
        for handler in ("Records", "Batches")
        for code in usual_codes(settings.before)
    ]
    windows = compare(clusters, topic, movers, settings.repeat)
    delete_topics(clusters[0], topic.name)
    text = (
        f"{topic.gigabytes * 1000:,.0f} MB, 16 records of 1 KB in a batch, lz4. A handler passes on each "
        "record, or each batch as it is. Measured from half of the records to the last."
    )
    return Section("Handlers of shoal mirror-maker", text, figures_of(topic, windows))


HANDLERS = Row("handlers", "handlers of mirror-maker: of records, and of whole batches", 6, _run)
