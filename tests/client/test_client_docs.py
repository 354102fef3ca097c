"""docs/api.md has all options of raw clients with their defaults, and docs/python.md a true transcript."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal import RawConsumer, RawProducer
from shoal.client.consumer.settings import CONSUMER_PROPERTIES
from shoal.client.producer.settings import PRODUCER_PROPERTIES
from shoal.client.properties import Property
from shoal.records import Codec, Record, write_batch, write_body
from shoal_broker import Broker

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8")
OPTIONS = (DOCS / "api.md").read_text(encoding="utf-8")

#: Without a default in the table: the page explains them in words.
IN_WORDS = {"isolation.level": "read_committed"}


def documented(heading: str) -> dict[str, str]:
    """Return the options of a table by name, and their defaults as they are written."""
    _, _, options = OPTIONS.partition("\n## Options of the raw clients\n")
    _, _, section = options.partition(f"\n### {heading}\n")
    table, _, _ = section.partition("\n#")
    found: dict[str, str] = {}
    for line in table.splitlines():
        if line.startswith("| `"):
            names, defaults, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
            written = [each.strip() for each in defaults.split(", ")]
            for number, name in enumerate(re.findall("`([^`]+)`", names)):
                found[name] = written[number] if len(written) > number else ""
    return found


@pytest.mark.parametrize(
    ("heading", "table"), [("Consumer", CONSUMER_PROPERTIES), ("Producer", PRODUCER_PROPERTIES)]
)
def test_page_has_every_option_with_its_default(heading: str, table: Mapping[str, Property]) -> None:
    found = documented(heading)
    refused = {"partitioner.class"}
    read_elsewhere = {"isolation.level"}
    assert found.keys() - read_elsewhere == table.keys() - refused
    for name, default in found.items():
        expected = IN_WORDS[name] if name in IN_WORDS else table[name].default
        assert default == expected or (expected is None and default in ("", "none")), name


def test_transcript_of_the_page_equals_the_output() -> None:
    transcript = re.search(r"```\n(>>> .*?)```", PAGE, re.DOTALL)
    assert transcript
    with Broker() as source, Broker() as destination:
        for broker in (source, destination):
            broker.create_topic("orders")
        records = [Record(number, 0, write_body(None, b"order %d" % number)) for number in range(335)]
        with RawProducer({"bootstrap.servers": source.bootstrap, "send.raw.bytes": True}) as producer:
            producer.send("orders", write_batch(records, Codec.ZSTD).view, partition=0)
        code = transcript[1].replace("source:9092", source.bootstrap)
        code = code.replace("destination:9092", destination.bootstrap)
        statements: list[tuple[str, str]] = []
        for block in re.split(r"^>>> ", code, flags=re.M)[1:]:
            lines = block.splitlines()
            more = [line[4:] for line in lines[1:] if line.startswith("... ")]
            printed = [line for line in lines[1:] if not line.startswith("... ")]
            statements.append(("\n".join([lines[0], *more]), "\n".join(printed)))
        names: dict[str, object] = {}
        for statement, said in statements:
            if said:
                expected = re.sub(r"1553|timestamp=\d+", "N", said)
                result = repr(eval(statement, names))
                assert re.sub(r"(?<=None, )\d+|timestamp=\d+", "N", result) == expected
            else:
                exec(statement, names)
        for name in ("consumer", "producer"):
            each = names[name]
            assert isinstance(each, RawConsumer | RawProducer)
            each.close()
