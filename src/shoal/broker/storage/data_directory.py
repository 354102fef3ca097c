"""
Where a broker keeps its data: a directory like one of Kafka's ``log.dirs``.

::

    .lock                    held by the broker that has the directory
    .kafka_cleanshutdown     there while no broker runs, if the last one stopped in good order
    meta.properties          cluster and node
    journal.jsonl            topics, settings, group offsets, transactions (:mod:`.journal`)
    orders-0/                a partition: partition.metadata, and its segments (:mod:`.file_segment`)

The journal is shoal's own; Kafka has topics in its place.
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

from ...errors import ConfigError
from ...printable import logger
from .file_segment import file_names
from .journal import Journal
from .log_dir_failure import LogDirFailure, flush_directory, flush_file

__all__ = ["DataDirectory"]

_log = logger("shoal.broker")

_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_PARTITION_METADATA = "partition.metadata"
_FILES_OF_A_NEW_PARTITION = (
    _PARTITION_METADATA,
    f"{_PARTITION_METADATA}.new",
    *file_names(0),
)

#: Of a file: a topic's may nearly be so long, and Kafka cuts it too (``LocalLog.logDeleteDirName``).
_LONGEST_NAME = 255


class DataDirectory:
    """
    The directory of one broker, which nobody else may have meanwhile.

    Attributes:
        path: Where it is.
        failure: Whether it failed.
        journal: What is kept beside the logs.
        was_clean: The broker that had it last stopped in good order, or there was none.

    """

    def __init__(self, path: Path) -> None:
        """
        Take a directory, which is made if it is not there.

        Raises:
            ConfigError: Another broker has it, it cannot be made, or its journal is damaged.

        """
        self.path = path
        self.failure = LogDirFailure(path)
        self._lock: int | None = None
        try:
            # Kafka leaves it to the umask; but who tries a broker out has no user of its own for it.
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
        Take it after a release, unless it was not released.

        Raises:
            ConfigError: Another broker has it, or had it since: what this one knows is old.

        """
        if self._lock is None:
            self._take()
        if not self.journal.is_current:
            self.release()
            raise ConfigError(f"{self.path} was used by another broker since")

    def _take(self) -> None:
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ConfigError(f"{self.path} is in use by another broker") from None
        self._lock = descriptor

    def release(self) -> None:
        """Give it back; what is to stay must be in it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def check_identity(self, cluster_id: str | None, node_id: int, default_cluster_id: str) -> str:
        """
        Return the cluster's id, as the directory has it or is given it now.

        Raises:
            ConfigError: The directory is that of another broker or cluster.

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
        Say whether no broker runs and the last one stopped in good order.

        Raises:
            OSError: It cannot be said; then it is not so.
            ApiError: The same, of the journal.

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
            # Were it there again after a power cut, nothing would look for what that tore.
            flush_directory(self.path)

    def partition(self, topic: str, number: int, topic_id: uuid.UUID) -> Path:
        """Return a partition's directory, which is made; one of an older topic of this name is put aside."""
        path = self.path / f"{topic}-{number}"
        if path.exists() and not _is_of(path, topic_id):
            stray = _renamed(path, "stray")
            _log.warning("%s is of no topic that is known: it is %s now", path, stray.name)
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
        """Remove a partition that :meth:`partition` just made, and that could not be kept."""
        _discard(self.path / f"{topic}-{number}")

    def delete_partition(self, topic: str, number: int) -> None:
        """Delete a partition's directory, at once as far as others can see."""
        path = self.path / f"{topic}-{number}"
        doomed = _renamed(path, "delete")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def delete_leftovers(self) -> None:
        """Finish deletions that a broker's end cut short, and remove files that it began to write."""
        for path in self.path.glob("*-delete"):
            shutil.rmtree(path, ignore_errors=True)
        for path in (*self.path.glob("*.new"), *self.path.glob("*/*.new")):
            path.unlink(missing_ok=True)


def _metadata(topic_id: uuid.UUID) -> str:
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}\n"


def _discard(path: Path) -> None:
    """Remove a new partition's directory, also if no file can be opened any more: nothing is listed."""
    for name in _FILES_OF_A_NEW_PARTITION:
        with contextlib.suppress(OSError):
            (path / name).unlink()
    with contextlib.suppress(OSError):
        path.rmdir()


def _is_of(path: Path, topic_id: uuid.UUID) -> bool:
    metadata = path / _PARTITION_METADATA
    return metadata.exists() and metadata.read_text() == _metadata(topic_id)


def _write(path: Path, text: str) -> None:
    """Make a small file, whole and on the disk or not at all."""
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
