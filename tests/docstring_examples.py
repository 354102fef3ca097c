"""The examples in the docstrings of shoal's public names, run against embedded brokers."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import shoal
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
        properties = {"bootstrap.servers": broker.bootstrap, "compression.type": "gzip", "linger.ms": 1000}
        with shoal.RawProducer(properties) as producer:
            for customer, value in ((b"alice", b"1 x tea"), (b"bob", b"2 x coffee"), (b"alice", b"1 x cake")):
                producer.send("orders", value, key=customer, partition=0)
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
