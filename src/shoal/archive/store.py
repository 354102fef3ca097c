"""
A directory in the local file system, or in an object store through ``pyarrow.fs``.

A file appears only when it is whole, and shoal never overwrites or deletes one. In the local file system a
segment of the same file system gets another name. All else there, and in HDFS, is written under a temporary
name and renamed. An object store shows an object only once its upload is complete. But a stream of pyarrow
publishes what it has when it is closed or collected, also after an error. So the small file that makes others
count is written last (:mod:`.segment`), in one piece.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import AccessRefused, ConfigError, StorageFailed
from ..result_file import NO_LINKS, flush_directory, write_in_one_step
from ..timing import DEFAULT_TIMING, Timing
from .credentials import StoreCredentials
from .files import Listed, Store, StoredFile, open_local, pieces_of, storage_failed
from .object_store import open_object_store
from .urls import LOCAL_SCHEME, check_url, shown_url

__all__ = ["open_store"]


def open_store(
    url: str, credentials: StoreCredentials | None = None, timing: Timing = DEFAULT_TIMING
) -> Store:
    """
    Return a directory's store.

    Args:
        url: The URL or path of the directory.
        credentials: Those of an object store; None for the environment's, or a role's.
        timing: How long an object store may take for an answer.

    Raises:
        ConfigError: As :func:`check_url`; or pyarrow is missing, or there is no such bucket.

    """
    check_url("directory", url)
    if "://" not in url:
        return _LocalStore(Path(url).absolute(), url)
    parts = urlsplit(url)
    if parts.scheme.lower() == LOCAL_SCHEME:
        return _LocalStore(Path(unquote(parts.path)).absolute(), shown_url(url))
    return open_object_store(url, credentials or StoreCredentials(), timing.store_answers_s)


class _LocalStore:
    is_local = True

    def __init__(self, root: Path, url: str) -> None:
        self._root = root
        self.url = shown_url(url)

    def _path(self, path: str) -> Path:
        found = self._root / path
        # A link in the archive may lead elsewhere, or to itself.
        if not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(self._root)):
            raise ConfigError(f"{self.url}/{path} leads out of the directory. Remove the link")
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found.stat()
        return found

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise ConfigError(f"{self.url}: a part of the path is no directory. Correct the path") from None
        except PermissionError as error:
            raise AccessRefused(f"{self.url}/{path}", f"{error.strerror}. Allow it to this user") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ConfigError(f"{self.url}/{path}: a link leads to itself. Remove it") from None
            raise storage_failed(f"{self.url}/{path}", error) from error

    def names(self, path: str) -> list[Listed]:
        with self._errors(path):
            try:
                entries = list(os.scandir(self._path(path)))
            except FileNotFoundError:
                return []
            found = []
            for each in entries:
                try:
                    found.append(Listed(each.name, each.is_dir(), each.stat().st_size))
                except OSError as error:
                    # A temporary name that is gone, or a link that leads nowhere.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
            return found

    def open(self, path: str) -> StoredFile:
        with self._errors(path):
            return open_local(self._path(path), f"{self.url}/{path}")

    def write(self, path: str, data: bytes | Path) -> None:
        with self._errors(path):
            final = self._path(path)
            if final.parent != self._root and not self._root.is_dir():
                raise StorageFailed(self.url, "the directory is not there any more. Mount its disk")
            final.parent.mkdir(parents=True, exist_ok=True)
            if not isinstance(data, Path) or not _link(data, final):
                write_in_one_step(final, pieces_of(data))


def _link(file: Path, final: Path) -> bool:
    """Give a file another name, so that nothing is copied; return False if the file system cannot."""
    try:
        os.link(file, final)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EMLINK, *NO_LINKS):
            return False
        raise
    with final.open("rb") as linked:
        os.fsync(linked.fileno())
    flush_directory(final.parent)
    return True
