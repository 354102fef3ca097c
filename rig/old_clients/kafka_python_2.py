"""kafka-python 2.0.2 as a program, pinned to the requests of an old broker: `OldClient.java` in Python.

    consume bootstrap=HOST:PORT topic=NAME (partitions=COUNT | group=NAME) [records=COUNT [commit=true]]
    produce bootstrap=HOST:PORT topic=NAME

Both accept ``api_version=0.9``, and ``client.NAME=VALUE`` for settings of the client. The package's docstring
describes input and output.

Run it with the directory of this version first in the path, since shoal uses version 3 of the same package.
"""

import base64
import json
import logging
import sys
import threading
from typing import Any

import six

# Its own copy of six is from before Python 3.12, which cannot import it.
sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402
from kafka.version import __version__  # noqa: E402

_TIMESTAMP_TYPES = {None: "none", 0: "CreateTime", 1: "LogAppendTime"}
_POLL_MS = 200
#: Number of empty polls after which a reader ends.
_QUIET_POLLS = 3
_ACKNOWLEDGED_S = 60


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _setting(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _client(options: dict[str, str]) -> dict[str, Any]:
    """Return the settings of a client."""
    prefix = "client."
    return {
        "bootstrap_servers": options["bootstrap"],
        "api_version": tuple(map(int, options["api_version"].split("."))),
        **{name[len(prefix) :]: _setting(text) for name, text in options.items() if name.startswith(prefix)},
    }


class _Reader:
    """A consumer, and the lines that it printed."""

    def __init__(self, options: dict[str, str]) -> None:
        self._consumer = KafkaConsumer(
            group_id=options.get("group"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **_client(options),
        )
        self._count = 0
        self._assigned: list[TopicPartition] = []
        self._next: dict[TopicPartition, int] = {}
        topic = options["topic"]
        if "group" in options:
            self._consumer.subscribe([topic])
        else:
            partitions = [TopicPartition(topic, each) for each in range(int(options["partitions"]))]
            self._consumer.assign(partitions)
            self._consumer.seek_to_beginning(*partitions)

    def read_until(self, stop: threading.Event) -> None:
        """Read until the event is set."""
        while not stop.is_set():
            self._poll()

    def read(self, records: int) -> None:
        """Read this many records, and any that follow soon."""
        quiet = 0
        while self._count < records or quiet < _QUIET_POLLS:
            quiet = 0 if self._poll() else quiet + 1

    def read_and_commit(self, records: int) -> None:
        """Read exactly this many records, and commit them."""
        while self._count < records:
            self._poll(records - self._count)
        self._consumer.commit({each: OffsetAndMetadata(at, "") for each, at in self._next.items()})

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def _poll(self, most: int | None = None) -> int:
        found = [each for of in self._consumer.poll(_POLL_MS, max_records=most).values() for each in of]
        assigned = sorted(self._consumer.assignment())
        if assigned != self._assigned:
            self._assigned = assigned
            _say(assigned=[each.partition for each in assigned])
        for each in found:
            _say(
                partition=each.partition,
                offset=each.offset,
                timestamp=-1 if each.timestamp is None else each.timestamp,
                timestamp_type=_TIMESTAMP_TYPES[each.timestamp_type],
                key=_text(each.key),
                value=_text(each.value),
                headers=[[name, _text(value)] for name, value in each.headers],
            )
            self._next[TopicPartition(each.topic, each.partition)] = each.offset + 1
        self._count += len(found)
        return len(found)


def _consume(options: dict[str, str]) -> None:
    reader = _Reader(options)
    if "records" not in options:
        stop = threading.Event()
        threading.Thread(target=_set_at_end, args=(stop,), daemon=True).start()
        reader.read_until(stop)
    elif "commit" in options:
        reader.read_and_commit(int(options["records"]))
    else:
        reader.read(int(options["records"]))
    reader.close()


def _set_at_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def _produce(options: dict[str, str]) -> None:
    producer = KafkaProducer(**_client(options))
    sent = []
    for line in sys.stdin:
        partition, timestamp, key, value = line.rstrip("\n").split("\t")
        sent.append(
            producer.send(
                options["topic"],
                _bytes(value),
                _bytes(key),
                partition=int(partition),
                timestamp_ms=None if timestamp == "-" else int(timestamp),
            )
        )
    producer.flush(_ACKNOWLEDGED_S)
    for each in sent:
        acknowledged = each.get(_ACKNOWLEDGED_S)
        _say(partition=acknowledged.partition, offset=acknowledged.offset)
    producer.close()


def main() -> None:
    assert __version__ == "2.0.2", __version__
    logging.basicConfig(level=logging.WARNING)
    verb, *words = sys.argv[1:]
    options: dict[str, str] = dict(word.split("=", 1) for word in words)
    {"consume": _consume, "produce": _produce}[verb](options)


if __name__ == "__main__":
    main()
