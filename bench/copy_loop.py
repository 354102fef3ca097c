"""The work of one Spark task of shoal, without Spark: one worker with all partitions of a topic.

Usage: python -m bench.copy_loop SOURCE DESTINATION TOPIC COPY [--one-batch]
"""

import sys

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.assignment import end_offsets, partitions_of
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from tests.world.task import run_copy_task


def copy_topic(
    source_servers: str, destination_servers: str, topic: str, copy: str, *, several_batches: bool = True
) -> bool:
    """Copy a topic up to its current end; return whether all of it is at the destination."""
    source, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_servers})
    destination, _ = ClientConfig.from_properties("destination", {"bootstrap.servers": destination_servers})
    with Cluster(source) as cluster:
        partitions = partitions_of(cluster, [topic])
        ends = end_offsets(cluster, partitions, IsolationLevel.READ_COMMITTED)
    ranges = [CopyRange(topic, each.partition, copy, 0, ends[each]) for each in partitions]
    settings = CopySettings(source, destination, copy, rules="bench", multi_batch=several_batches)
    result = run_copy_task(ranges, settings)
    return result.complete and not result.stopped


def main() -> int:
    source_servers, destination_servers, topic, copy, *options = sys.argv[1:]
    several_batches = options != ["--one-batch"]
    return (
        0
        if copy_topic(source_servers, destination_servers, topic, copy, several_batches=several_batches)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
