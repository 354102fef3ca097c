"""The cost of handlers of ``shoal mirror-maker``, of records and of whole batches: the row ``handlers``.

The base classes of handlers pass on all that they get.
"""

from bench.cost import compare, figures_of, loaded
from bench.mirror_makers import ShoalMirrorMaker
from bench.movers import usual_codes
from bench.rows import Row, Settings, delete_topics
from bench.runs import Section
from bench.topics import B16

__all__ = ["HANDLERS"]

_MEGABYTES = 500
_HANDLERS = {
    "Records": ["--message.handler", "shoal.handlers:MirrorMakerMessageHandler"],
    "Batches": ["--message.handler", "shoal.handlers:MirrorMakerRawBytesMessageHandler", "--use.raw.bytes"],
}


def _run(settings: Settings) -> Section:
    clusters = settings.clusters.pair(settings.scale)
    topic = loaded(clusters[0], B16, _MEGABYTES * settings.scale)
    movers = [
        ShoalMirrorMaker(f"{name}, {code.name}", code, options)
        for name, options in _HANDLERS.items()
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
