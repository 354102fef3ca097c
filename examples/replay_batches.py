"""Replay an archive: send every batch of it again as it is, without decoding it.

    python examples/replay_batches.py --archive /data/archive --to destination:9092

The program reads the files of archive_batches.py, and any other files in the
format of Kafka's log segments, in a directory for each partition. Each batch
goes to the partition that it came from. If a topic does not exist, create it
first.
"""

import argparse
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

from shoal import RawProducer, TopicPartition
from shoal.errors import ShoalError
from shoal.records import split


def partitions(archive: Path) -> Iterator[tuple[TopicPartition, list[Path]]]:
    """Yield each partition of an archive, and its files in order."""
    for directory in sorted(archive.iterdir()):
        topic, _, number = directory.name.rpartition("-")
        if topic and number.isdecimal():
            yield TopicPartition(topic, int(number)), sorted(directory.glob("*.log"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True, help="the directory to read from")
    parser.add_argument("--to", dest="destination", required=True, help="the cluster, HOST:PORT")
    parser.add_argument("--suffix", default="", help="appended to the topics' names")
    args = parser.parse_args()

    futures = []
    with RawProducer({"bootstrap.servers": args.destination, "send.raw.bytes": True}) as producer:
        for partition, files in partitions(args.archive):
            for path in files:
                if path.stat().st_size == 0:
                    continue
                # No batch is read into memory: it goes from the page cache to the socket.
                with path.open("rb") as file:
                    content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                for batch in split(content):
                    # If buffer.memory is full, send() waits, so that the archive may have any size.
                    topic = partition.topic + args.suffix
                    futures.append(producer.send(topic, batch.view, partition=partition.partition))
    for future in futures:
        future.result()  # raises the batch's error
    print(f"{len(futures)} batches replayed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ShoalError as error:
        sys.exit(f"replay_batches: {error}")
