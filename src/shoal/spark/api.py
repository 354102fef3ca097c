"""
``shoal.mirror(...)`` for programs and notebooks, and the mirrors of the command line.

All of this runs in the user's process, which is the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from shoal.mirroring.driver.run import MirrorRun
from shoal.mirroring.driver.topic_mirror import TopicMirror
from shoal.mirroring.model.acknowledged import AcknowledgedRun
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.progress import Progress, Summary
from shoal.mirrormaker.options import MirrorMakerOptions
from shoal.mirrormaker.run import MirrorMaker
from shoal.spark.engine import SparkEngine
from shoal.topic_partition import TopicPartition

__all__ = ["mirror", "run_mirror_maker"]


def mirror(
    options: MirrorOptions,
    *,
    on_progress: Callable[[Progress], object] | None = None,
    on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
    on_warning: Callable[[str], object] | None = None,
    on_notice: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """
    Mirror topics from one cluster to another.

    The driver runs in the calling process, the tasks on Spark. If the process already has a Spark session,
    as in a notebook, the mirror uses that session and leaves it running. Mirrors in several threads share
    one that the first of them starts, and the last of them stops. In the main thread SIGINT and
    SIGTERM set ``stop``, and SIGUSR1 retries stopped partitions.

    Args:
        options: The options, which are those of ``shoal mirror`` (docs/cli.md).
        on_progress: A function that receives the progress about twice a second, in a thread of its own.
        on_run: A function that receives each acknowledged run of offsets, in any thread. Runs translate
            consumers' offsets.
        on_warning: A function that receives warnings as sentences, in any thread.
        on_notice: A function that receives the addresses of ``metrics`` and ``ui``, and new topics and
            partitions, as sentences, in any thread.
        stop: An event that ends the mirror if you set it. Tasks finish and commit the batches in flight.

    Returns:
        The summary of the run. ``summary.exit_code`` is 1 if a partition stopped, 4 if one continued after
        an incident.

    Raises:
        ConfigError: An option, or a topic at the destination, cannot work. Nothing was copied.
        GroupHeld: Another mirror works in the group.
        ShoalError: The mirror failed. The positions of acknowledged batches are committed.

    Examples:
        Copy all records up to now, and wait for the end:

        >>> import shoal
        >>> options = shoal.MirrorOptions("localhost:9092", "localhost:9192", "orders", once=True)
        >>> summary = shoal.mirror(options)
        >>> summary.exit_code, summary.records
        (0, 3)

    """
    warn = on_warning or _ignore
    for warning in options.ignored:
        warn(warning)
    engine = SparkEngine(options, warn)
    run = MirrorRun(
        options, engine, on_progress, on_run, warn, on_notice or _ignore, stop or threading.Event()
    )
    return TopicMirror(run).run()


def run_mirror_maker(
    options: MirrorMakerOptions,
    *,
    on_progress: Callable[[Progress], object],
    on_warning: Callable[[str], object],
    on_notice: Callable[[str], object],
    stop: threading.Event,
) -> Summary:
    """Mirror the partitions that a consumer group assigns, until a stop; otherwise as :func:`mirror`."""
    engine = SparkEngine(options.mirror, on_warning)
    run = MirrorRun(options.mirror, engine, on_progress, None, on_warning, on_notice, stop)
    return MirrorMaker(options, run).run()


def _ignore(sentence: str) -> None:
    """Drop a sentence that the caller has no function for."""
