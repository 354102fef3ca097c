"""Work for many partitions, in a few threads, each with connections of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TypeVar

from ..errors import Stopped
from .cluster import Cluster, patiently
from .config import ClientConfig

__all__ = ["over_partitions"]

#: Threads, one partition each. Python walks the batches of one at a time, so more than a few only hide the
#: network's latency.
_MOST_THREADS = 4

_PROGRESS_INTERVAL_S = 0.25

#: The time between two attempts to end the requests of threads whose results are not wanted any more.
_ABORT_INTERVAL_S = 0.1

J = TypeVar("J")


def over_partitions(
    jobs: Sequence[J],
    do: Callable[..., object],
    clusters: Sequence[tuple[ClientConfig, Collection[str]]],
    *,
    stop: threading.Event,
    patience_s: float,
    on_progress: Callable[[], object],
) -> None:
    """
    Do all jobs, a few at a time.

    Args:
        jobs: The jobs, the largest first: a small one is soon done while the last large one ends.
        do: Does a job. It gets the job, and the clusters of its thread with metadata of the topics.
        clusters: How to reach each cluster, and the topics of the jobs there.
        stop: Set when the jobs are not wanted any more, so that they end early.
        patience_s: How long to retry transient errors while connecting.
        on_progress: Called a few times a second, in this thread.

    Raises:
        ShoalError: A cluster does not answer, or a job failed.

    """
    queue = deque(jobs)
    own = [[Cluster(config) for config, _ in clusters] for _ in range(min(_MOST_THREADS, len(queue)))]
    if not own:
        return

    def pause(seconds: float) -> None:
        if stop.wait(seconds):
            raise Stopped

    def work(reached: Sequence[Cluster]) -> None:
        with ExitStack() as stack:
            for cluster, (_, topics) in zip(reached, clusters, strict=True):
                stack.enter_context(cluster)
                patiently(partial(cluster.refresh, topics), patience_s=patience_s, pause=pause)
            while not stop.is_set():
                try:
                    job = queue.popleft()
                except IndexError:
                    return
                do(job, *reached)

    with ThreadPoolExecutor(len(own), thread_name_prefix="shoal-partitions") as pool:
        futures = [pool.submit(work, each) for each in own]
        try:
            while True:
                ended, at_work = wait(futures, _PROGRESS_INTERVAL_S)
                for future in ended:
                    future.result()
                on_progress()
                if not at_work:
                    return
        finally:
            stop.set()
            # Each request may wait for half a minute. A thread may open one more connection before it ends.
            while wait(futures, 0).not_done:
                for cluster in chain.from_iterable(own):
                    cluster.abort()
                wait(futures, _ABORT_INTERVAL_S)
