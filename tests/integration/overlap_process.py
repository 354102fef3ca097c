"""A mirror with short windows, whose driver notes who has the partitions; for `test_overlap`.

Prints a line of JSON for each event, with the number of its window: ``taken`` when a task has its partitions,
``ended`` when a job has ended. Ends after some windows. Its argument is JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from shoal.client.config import ClientConfig
from shoal.mirroring.control.attempts import Attempt
from shoal.mirroring.control.server import ControlServer
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.topics import TopicSelection
from shoal.net.address import parse_bootstrap
from shoal.spark.api import run_mirror
from shoal.spark.copy_task import CopyTask
from shoal.spark.engine import _Jobs
from shoal.topic_partition import TopicPartition


def main() -> None:
    wanted = json.loads(sys.argv[1])
    stop = threading.Event()
    saying = threading.Lock()

    def say(event: str, window: int) -> None:
        with saying:
            print(json.dumps([event, window]), flush=True)
        if event == "taken" and window > wanted["windows"]:
            stop.set()

    with (
        patch.object(ControlServer, "_hand_over", _noting_tasks(ControlServer._hand_over, say)),
        patch.object(_Jobs, "_run", _noting_jobs(_Jobs._run, say)),
    ):
        options = MirrorOptions.parse(
            ClientConfig("source", tuple(parse_bootstrap(wanted["source"]))),
            ClientConfig("destination", tuple(parse_bootstrap(wanted["destination"]))),
            TopicSelection(wanted["topic"]),
            wanted["options"],
        )
        timing = replace(options.timing, window_s=wanted["window_s"])
        run_mirror(replace(options, timing=timing), stop=stop)


def _noting_tasks(hand_over: Callable[..., None], say: Callable[[str, int], None]) -> Callable[..., None]:
    def noting(
        server: ControlServer,
        attempt: Attempt,
        asked: Sequence[TopicPartition],
        in_trouble: Mapping[TopicPartition, str],
        **given_up: Any,
    ) -> None:
        hand_over(server, attempt, asked, in_trouble, **given_up)
        if asked:
            say("taken", attempt.window)

    return noting


def _noting_jobs(run: Callable[..., None], say: Callable[[str, int], None]) -> Callable[..., None]:
    def noting(jobs: _Jobs, tasks: Sequence[Sequence[CopyRange]], task: CopyTask) -> None:
        run(jobs, tasks, task)
        say("ended", task.window)

    return noting


if __name__ == "__main__":
    main()
