"""
``shoal.mirror(...)`` for programs and notebooks, and the mirrors of the command line.

All of this runs in the user's process, which is the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from shoal.client.config import ClientConfig
from shoal.mirroring.driver.run import MirrorRun
from shoal.mirroring.driver.topic_mirror import TopicMirror
from shoal.mirroring.model.copy_options import COPY_DEFAULTS
from shoal.mirroring.model.follow_options import DEFAULT_CONFIGS_EXCLUDE
from shoal.mirroring.model.offset_map import AcknowledgedRun
from shoal.mirroring.model.options import (
    DEFAULT_GROUPS_INTERVAL_S,
    DEFAULT_MASTER,
    DEFAULT_MAX_NEW_PARTITIONS,
    DEFAULT_REFRESH_S,
    MirrorOptions,
)
from shoal.mirroring.model.progress import Progress, Summary
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirrormaker.options import MirrorMakerOptions
from shoal.mirrormaker.run import MirrorMaker
from shoal.spark.engine import SparkEngine
from shoal.topic_partition import TopicPartition

__all__ = ["mirror", "run_mirror", "run_mirror_maker"]


def mirror(  # docs/cli.md describes its options, which are the command's
    source: str | Mapping[str, str],
    destination: str | Mapping[str, str],
    topics: str,
    *,
    exclude: str | None = None,
    rename: str | None = None,
    group: str | None = None,
    once: bool = False,
    start: str = "earliest",
    from_certificate: str | None = None,
    replication_factor: int | None = None,
    fetch_buffer_bytes: int = COPY_DEFAULTS.fetch_buffer_bytes,
    refresh_s: float = DEFAULT_REFRESH_S,
    max_new_partitions: int = DEFAULT_MAX_NEW_PARTITIONS,
    groups: str | None = None,
    exclude_groups: str | None = None,
    groups_interval_s: float = DEFAULT_GROUPS_INTERVAL_S,
    adopt: bool = False,
    delivery: str = COPY_DEFAULTS.delivery.value,
    continue_after: Collection[str] = (),
    keep_append_time: bool = False,
    max_decompressed_bytes: int = COPY_DEFAULTS.max_decompressed_bytes,
    rebatch: str | None = None,
    sync_configs: bool = False,
    sync_configs_exclude: str = DEFAULT_CONFIGS_EXCLUDE,
    sync_acls: str | None = None,
    control: str | None = None,
    limit: str | int | None = None,
    pause: str | Collection[str] = (),
    metrics: str | None = None,
    ui: str | None = None,
    report: str | None = None,
    master: str = DEFAULT_MASTER,
    checkpoint: str | None = None,
    conf: Mapping[str, str] | None = None,
    http_hosts: Collection[str] = (),
    http_token_file: str | None = None,
    allow_unauthenticated_spark: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
    on_warning: Callable[[str], object] | None = None,
    on_notice: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """
    Mirror topics from one cluster to another.

    The driver runs in the calling process, the tasks on Spark. If the process already has a Spark session,
    as in a notebook, the mirror uses that session and leaves it running.

    Args:
        source: ``HOST:PORT[,HOST:PORT…]``, or the properties of a Java client.
        destination: As ``source``.
        topics: This and the others up to ``allow_unauthenticated_spark`` are the options of ``shoal mirror``
            (docs/cli.md). ``continue_after`` names incidents: ``foreign-records``,
            ``destination-loss``, ``source-reset``, ``source-retention``.
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
        >>> summary = shoal.mirror("localhost:9092", "localhost:9192", "orders", once=True)
        >>> summary.exit_code, summary.records
        (0, 3)

    """
    # The arguments have the names and the defaults of the options' fields, which a test compares: an editor
    # shows this signature, and no field.
    given = dict(locals())
    options = MirrorOptions.parse(
        ClientConfig.given("source", source, on_warning),
        ClientConfig.given("destination", destination, on_warning),
        TopicSelection(topics, exclude, rename),
        given,
    )
    return run_mirror(
        options, on_progress=on_progress, on_run=on_run, on_warning=on_warning, on_notice=on_notice, stop=stop
    )


def run_mirror(
    options: MirrorOptions,
    *,
    on_progress: Callable[[Progress], object] | None = None,
    on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
    on_warning: Callable[[str], object] | None = None,
    on_notice: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """
    Mirror topics; :func:`mirror` describes the functions, the result and the errors.

    In the main thread SIGINT and SIGTERM set ``stop``, and SIGUSR1 retries stopped partitions.

    """
    warn = on_warning or _ignore
    engine = SparkEngine(options, warn)
    run = MirrorRun(
        options, engine, on_progress, on_run, warn, on_notice or _ignore, stop or threading.Event()
    )
    return TopicMirror(run).run()


def run_mirror_maker(
    options: MirrorMakerOptions,
    *,
    on_progress: Callable[[Progress], object] | None = None,
    on_warning: Callable[[str], object] | None = None,
    on_notice: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """Mirror the partitions that a consumer group assigns, until a stop; otherwise as :func:`run_mirror`."""
    warn = on_warning or _ignore
    engine = SparkEngine(options.mirror, warn)
    run = MirrorRun(
        options.mirror, engine, on_progress, None, warn, on_notice or _ignore, stop or threading.Event()
    )
    return MirrorMaker(options, run).run()


def _ignore(sentence: str) -> None:
    """Drop a sentence that the caller has no function for."""
