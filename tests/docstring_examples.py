"""The examples in the docstrings of shoal's public names, run against embedded brokers."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import shoal
from shoal.records import Codec, Record, write_batch, write_body
from shoal_broker import Broker

__all__ = ["ADDRESS", "OTHER_ADDRESS", "broker_with_orders", "example_of", "failures_of"]

#: In the docstrings: of the cluster with the topic, and of an empty one.
ADDRESS, OTHER_ADDRESS = "localhost:9092", "localhost:9192"


def example_of(name: str) -> str:
    """Return the docstring of a public name."""
    return inspect.getdoc(getattr(shoal, name)) or ""


@contextmanager
def broker_with_orders() -> Iterator[Broker]:
    """Start a broker with the topics of the examples: one batch of three records in ``orders``."""
    with Broker() as broker:
        for topic in ("orders", "copies", "payments"):
            broker.create_topic(topic)
        orders = ((b"alice", b"1 x tea"), (b"bob", b"2 x coffee"), (b"alice", b"1 x cake"))
        records = [Record(at, 0, write_body(*order)) for at, order in enumerate(orders)]
        properties = {"bootstrap.servers": broker.bootstrap, "send.raw.bytes": True}
        with shoal.RawProducer(properties) as producer:
            producer.send("orders", write_batch(records, Codec.GZIP).view, partition=0)
        yield broker


def failures_of(name: str, addresses: Mapping[str, str], **names: Any) -> str:
    """Run the examples of a public name, with the addresses replaced; return the failures as text."""
    text = example_of(name)
    for written, used in addresses.items():
        text = text.replace(written, used)
    test = doctest.DocTestParser().get_doctest(text, names, f"shoal.{name}", None, None)
    assert test.examples
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    return "".join(said)
