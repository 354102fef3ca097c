"""The engine alone, in a process to kill: the work of one Spark task, without Spark.

Its argument is JSON. So is its last line on stdout: the stopped partitions and their reasons. The reasons
for which it waits go to stderr, with the time.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.model.copy_options import CopySettings, Rebatch
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.task import progress
from shoal.net.address import parse_bootstrap
from shoal.timing import DEFAULT_TIMING
from shoal.topic_partition import TopicPartition
from tests.copying import Uncontrolled, run_copy_task


class Telling(Uncontrolled):
    """A control without a driver, which prints the reasons for waits."""

    def __init__(self) -> None:
        self._told: dict[TopicPartition, str | None] = {}
        self.incidents: list[dict[str, object]] = []

    def report(self, report: TaskReport) -> None:
        for each in report.partitions:
            self.incidents += [
                {"partition": str(each.partition), "kind": found.kind.value, "continued": found.continued}
                for found in each.counters.incidents
            ]
            partition, waiting_for = each.partition, each.waiting_for
            if waiting_for != self._told.get(partition):
                self._told[partition] = waiting_for
                print(
                    f"{time.time():.3f} {partition.partition} waits for {waiting_for}",
                    file=sys.stderr,
                    flush=True,
                )


def main() -> None:
    wanted = json.loads(sys.argv[1])
    settings = CopySettings(
        source=_client("source", wanted),
        destination=_client("destination", wanted),
        group=wanted["group"],
        rules="chaos",
        fetch_buffer_bytes=wanted["fetch_buffer_bytes"],
        timing=replace(DEFAULT_TIMING, commit_interval_s=wanted["commit_interval_ms"] / 1000),
        producer_id_expiration_ms=wanted["expiration_ms"],
        rebatch=Rebatch.parse("rebatch", wanted["rebatch"]) if wanted["rebatch"] else None,
    )
    progress.TOGETHER_BYTES = wanted["together_bytes"]
    topic = wanted["topic"]
    ranges = [CopyRange(topic, number, topic, 0, end) for number, end in enumerate(wanted["ends"])]
    telling = Telling()
    result = run_copy_task(ranges, settings, telling)
    stopped = {f"{each.topic}-{each.partition}": str(each) for each in result.stopped}
    told = {"stopped": stopped, "complete": result.complete, "incidents": telling.incidents}
    print(json.dumps(told), flush=True)
    sys.exit(0 if result.complete and not stopped else 1)


def _client(side: str, wanted: dict[str, Any]) -> ClientConfig:
    addresses = tuple(parse_bootstrap(wanted[side]))
    return ClientConfig(
        side,
        addresses,
        request_timeout_ms=wanted["request_timeout_ms"],
        isolation_level=IsolationLevel[wanted["isolation"].upper()],
    )


if __name__ == "__main__":
    main()
