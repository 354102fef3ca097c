"""
The directory of a broker's data, laid out like one of Kafka's ``log.dirs``.

::

    .lock                    held by the broker that has the directory
    .kafka_cleanshutdown     exists while no broker runs, if the last one stopped cleanly
    meta.properties          cluster and node
    journal.jsonl            topics, settings, group offsets, transactions (:mod:`.journal`)
    orders-0/                a partition: partition.metadata, and its segments (:mod:`.file_segment`)

The journal is shoal's own; Kafka uses topics instead.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shutil
import uuid
from pathlib import Path

import javaproperties

from shoal.errors import ConfigError
from shoal.printable import logger

from .file_segment import file_names
from .journal import Journal
from .log_dir_failure import LogDirFailure, flush_directory, flush_file

__all__ = ["DataDirectory"]

_log = logger("shoal_broker")

_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_PARTITION_METADATA = "partition.metadata"
_FILES_OF_A_NEW_PARTITION = (
    _PARTITION_METADATA,
    f"{_PARTITION_METADATA}.new",
    *file_names(0),
)

#: The longest name of a file. A topic's may be nearly as long; Kafka cuts it, too
#: (``LocalLog.logDeleteDirName``).
_LONGEST_NAME = 255


class DataDirectory:
    """
    The directory of one broker; a lock keeps other brokers out.

    Attributes:
        failure: Its failure, if it failed.
        journal: The state beside the logs.
        was_clean: Whether the broker before stopped cleanly, or there was none.

    """

    def __init__(self, path: Path) -> None:
        """
        Lock a directory, which is created if necessary.

        Raises:
            ConfigError: Another broker uses it, it cannot be created, or its journal is damaged.

        """
        self.path = path
        self.failure = LogDirFailure(path)
        self._lock: int | None = None
        try:
            # Kafka leaves the mode to the umask. But a developer has no separate user for the broker.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        self.was_clean = (path / _CLEAN).exists() or not (path / _META).exists()
        try:
            self.journal = Journal(path, self.failure)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise ConfigError(f"{path}: its journal: {error.strerror}") from error
            raise

    def take_again(self) -> None:
        """
        Lock the directory again after a release.

        Raises:
            ConfigError: Another broker uses it, or used it since, so that this one's state is outdated.

        """
        if self._lock is None:
            self._take()
        if not self.journal.is_current:
            self.release()
            raise ConfigError(f"{self.path} was used by another broker since. Open it with a new broker")

    def _take(self) -> None:
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ConfigError(
                f"{self.path} is in use by another broker. Stop that one, or use another directory"
            ) from None
        self._lock = descriptor

    def release(self) -> None:
        """Unlock the directory; all state must be flushed before."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check_identity(self, cluster_id: str | None, node_id: int, default_cluster_id: str) -> str:
        """
        Return the cluster's id from the directory; a new directory gets one.

        Raises:
            ConfigError: The directory belongs to another broker or cluster.

        """
        path = self.path / _META
        if not path.exists():
            identity = {
                "version": "1",
                "cluster.id": cluster_id or default_cluster_id,
                "node.id": str(node_id),
            }
            _write(path, javaproperties.dumps(identity, timestamp=False))
            return identity["cluster.id"]
        with path.open(encoding="latin-1") as file:
            kept = javaproperties.load(file)
        for name, given in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            if given is not None and kept.get(name) != given:
                raise ConfigError(f"{path}: {name} is {kept.get(name)}, not {given}")
        return str(kept["cluster.id"])

    def set_clean(self, clean: bool) -> None:
        """
        Record whether the broker stopped cleanly.

        Raises:
            OSError: The record could not be written; then the directory counts as not clean.
            ApiError: The journal could not be flushed.

        """
        marker = self.path / _CLEAN
        if clean:
            self.journal.flush()
            try:
                marker.write_text('{"version":0,"brokerEpoch":-1}')
            except OSError:
                marker.unlink(missing_ok=True)
                raise
        else:
            marker.unlink(missing_ok=True)
            # If a power cut brought the file back, the next start would not check for torn batches.
            flush_directory(self.path)

    def partition(self, topic: str, number: int, topic_id: uuid.UUID) -> Path:
        """Create a partition's directory, or return it; one of an older topic of this name is renamed."""
        path = self.path / f"{topic}-{number}"
        if path.exists() and not _is_of(path, topic_id):
            stray = _renamed(path, "stray")
            _log.warning("%s belongs to no known topic: renamed to %s", path, stray.name)
            path.rename(stray)
        if not path.exists():
            path.mkdir()
            try:
                _write(path / _PARTITION_METADATA, _metadata(topic_id))
                flush_directory(self.path)
            except OSError:
                _discard(path)
                raise
        return path

    def discard_partition(self, topic: str, number: int) -> None:
        """Remove a directory that :meth:`partition` just created, since its topic could not be kept."""
        _discard(self.path / f"{topic}-{number}")

    def delete_partition(self, topic: str, number: int) -> None:
        """Rename a partition's directory, so that it is gone at once, and delete it."""
        path = self.path / f"{topic}-{number}"
        doomed = _renamed(path, "delete")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def delete_leftovers(self) -> None:
        """Complete deletions that the end of a broker interrupted, and remove incomplete files."""
        for path in self.path.glob("*-delete"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (*self.path.glob("*.new"), *self.path.glob("*/*.new")):
            path.unlink(missing_ok=True)


def _metadata(topic_id: uuid.UUID) -> str:
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}\n"


def _discard(path: Path) -> None:
    """Remove a new partition's directory without listing it, which would need a descriptor."""
    for name in _FILES_OF_A_NEW_PARTITION:
        with contextlib.suppress(OSError):
            (path / name).unlink()
    with contextlib.suppress(OSError):
        path.rmdir()


def _is_of(path: Path, topic_id: uuid.UUID) -> bool:
    metadata = path / _PARTITION_METADATA
    return metadata.exists() and metadata.read_text() == _metadata(topic_id)


def _write(path: Path, text: str) -> None:
    """Write a small file and flush it, or leave none."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        with fresh.open("w", encoding="latin-1") as file:
            file.write(text)
            file.flush()
            flush_file(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    flush_directory(path.parent)


def _renamed(path: Path, why: str) -> Path:
    suffix = f".{uuid.uuid4().hex}-{why}"
    return path.with_name(path.name[: _LONGEST_NAME - len(suffix)] + suffix)
