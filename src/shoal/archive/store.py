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
import io
import os
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import AccessRefused, ConfigError, Disconnected, ShoalError, StorageFailed
from ..in_thread import in_thread
from ..timing import DEFAULT_TIMING, Timing
from .credentials import StoreCredentials
from .urls import LOCAL_SCHEME, check_url, shown_url

__all__ = [
    "FileRange",
    "Listed",
    "Store",
    "StoredFile",
    "open_store",
    "read_whole",
    "spare_cache",
    "storage_failed",
]

#: Parts of the error messages of object stores. A name of an object has no blank, so it never matches.
_REFUSED = re.compile(
    r"AWS Error \w*(ACCESS_DENIED|ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIAL|TIME_TOO_SKEWED)|HTTP status 40[03]\b"
    r"|ExceptionName: \w*Token|PERMISSION_DENIED|Unauthenti|OAuth2 access token"
    r"|Authentication ?Failed|Authorization ?Failure"
)
_ELSEWHERE = re.compile(r"HTTP status 301\b|ExceptionName: (PermanentRedirect|AuthorizationHeaderMalformed)")
_NO_HADOOP = re.compile(r"Unable to load lib(jvm|hdfs)")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist", re.IGNORECASE)

_COPY_BYTES = 8 * 1024 * 1024

#: The bytes of a file that may be in the page cache.
_MOST_CACHED_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class Listed(NamedTuple):
    """An entry of a directory: its name, whether it is a directory itself, and its size in bytes."""

    name: str
    is_directory: bool
    size: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a local file that the system sends: this process copies none of them."""

    file: io.FileIO
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def send(self, connection: socket.socket) -> None:
        """Send them; raises OSError if the file was cut short."""
        if connection.sendfile(self.file, self.position, self.size) < self.size:
            raise OSError("the file was cut short")
        spare_cache(self.file.fileno(), self.position, self.position + self.size)


class StoredFile(Protocol):
    """
    A file that is read.

    Attributes:
        piece_bytes: How much to read at a time.

    """

    piece_bytes: int

    @property
    def size(self) -> int:
        """Its size in bytes."""

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        """Return bytes that are sent and not looked at: in the room, or a :class:`FileRange`."""

    def read_into(self, position: int, room: memoryview) -> int:
        """Fill the room with the bytes from a position on; return their number, which is less at the end."""

    def close(self) -> None:
        """Close it."""


def read_whole(file: StoredFile) -> bytes:
    """Return all bytes of a small file."""
    room = bytearray(file.size)
    file.read_into(0, memoryview(room))
    return bytes(room)


class Store(Protocol):
    """
    A directory. Paths are relative to it, with slashes, and built by :mod:`.names` alone.

    Each method raises :class:`Disconnected` if a retry may help. It raises :class:`AccessRefused` if the
    store refuses the credentials, and :class:`ConfigError` if there is no such bucket.
    """

    @property
    def url(self) -> str:
        """Its URL or path, for messages."""

    @property
    def is_local(self) -> bool:
        """Whether it is in the file system of this machine."""

    def names(self, path: str) -> list[Listed]:
        """List a directory; one that does not exist has no entries."""

    def open(self, path: str) -> StoredFile:
        """Open a file; raises FileNotFoundError if it does not exist."""

    def write(self, path: str, data: bytes | Path) -> None:
        """Write a file that does not exist: bytes, or a local file, which nothing changes afterwards."""


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
    return _remote(url, credentials, timing.store_answers_s)


class _LocalFile:
    piece_bytes = 1024 * 1024

    def __init__(self, path: Path, where: str) -> None:
        self._where = where
        self._file = io.FileIO(path)
        self.size = os.fstat(self._file.fileno()).st_size

    def read_into(self, position: int, room: memoryview) -> int:
        try:
            size = os.preadv(self._file.fileno(), [room], position)
        except OSError as error:
            raise storage_failed(self._where, error) from error
        spare_cache(self._file.fileno(), position, position + size)
        return size

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        return cast(memoryview, FileRange(self._file, position, size))

    def close(self) -> None:
        self._file.close()


def spare_cache(descriptor: int, begin: int, end: int) -> None:
    """
    Drop the pages of a file from the page cache from time to time, and have the disk take those that are new.

    An archive is larger than memory, and passes once. Its pages are soon used again for the rest of it: new
    ones would cost more CPU than all else, since a hypervisor may have to find memory for each.

    Args:
        begin: The position from which the file was read or written just now.
        end: The position behind that.

    """
    if sys.platform == "linux" and begin // _MOST_CACHED_BYTES < end // _MOST_CACHED_BYTES:
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)


def storage_failed(where: str, error: OSError) -> StorageFailed:
    """Return the error of a file that the system cannot read or write for now."""
    remedy = ". Make room on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return StorageFailed(where, f"{error.strerror or error}{remedy}")


class _LocalStore:
    is_local = True

    def __init__(self, root: Path, url: str) -> None:
        self._root = root
        self.url = shown_url(url)

    def _path(self, path: str) -> Path:
        found = self._root / path
        # A link in the archive may lead elsewhere.
        if not found.resolve().is_relative_to(self._root.resolve()):
            raise ConfigError(f"{self.url}/{path} leads out of the directory. Remove the link")
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
            raise storage_failed(f"{self.url}/{path}", error) from error

    def names(self, path: str) -> list[Listed]:
        with self._errors(path):
            try:
                entries = list(os.scandir(self._path(path)))
            except FileNotFoundError:
                return []
            found = []
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # a temporary name
                    found.append(Listed(each.name, each.is_dir(), each.stat().st_size))
            return found

    def open(self, path: str) -> StoredFile:
        with self._errors(path):
            return _LocalFile(self._path(path), f"{self.url}/{path}")

    def write(self, path: str, data: bytes | Path) -> None:
        final = self._path(path)
        if final.parent != self._root and not self._root.is_dir():
            raise StorageFailed(self.url, "the directory is not there any more. Mount its disk")
        with self._errors(path):
            final.parent.mkdir(parents=True, exist_ok=True)
            if not isinstance(data, Path) or not _link(data, final):
                _copy(data, final)
            _sync_directory(final.parent)


def _link(file: Path, final: Path) -> bool:
    """Give a file another name, so that nothing is copied; return False if the file system cannot."""
    try:
        os.link(file, final)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            return False
        raise
    with final.open("rb") as linked:
        os.fsync(linked.fileno())
    return True


def _copy(data: bytes | Path, final: Path) -> None:
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            for piece in _pieces(data):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, final)  # a rename would overwrite
    finally:
        temporary.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remote(url: str, credentials: StoreCredentials | None, answers_within_s: float) -> Store:
    try:
        from pyarrow.fs import FileType
    except ImportError:
        raise ConfigError(
            f"{shown_url(url)}: pyarrow is not installed, which reads and writes such a directory. Run: pip "
            "install 'shoal[archive]'"
        ) from None
    shown = shown_url(url)

    def reach() -> tuple[Any, str]:
        system, root = _file_system(url, credentials or StoreCredentials())
        bucket = root.split("/", 1)[0]
        if system.type_name != "hdfs" and system.get_file_info(bucket).type == FileType.NotFound:
            raise ConfigError(
                f"{shown}: bucket {bucket!r} is not there. Create it, or correct --from or --to"
            )
        return system, root.rstrip("/")

    return _RemoteStore(*_answer(shown, reach, answers_within_s), shown, answers_within_s)


def _file_system(url: str, credentials: StoreCredentials) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; a URL with keys would be in pyarrow's errors."""
    from pyarrow.fs import AzureFileSystem, FileSystem, S3FileSystem, resolve_s3_region

    parts = urlsplit(url)
    path = unquote(parts.path)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    given = dict(credentials.arguments)
    if parts.scheme.lower() == "s3":
        # By its URL, pyarrow would try a silent store for minutes, and shoal itself waits and says so.
        if not {"region", "endpoint_override"} & options.keys():
            options["region"] = resolve_s3_region(parts.netloc)
        return S3FileSystem(**given, **options), f"{parts.netloc}{path}"
    if not given:
        found: tuple[Any, str] = FileSystem.from_uri(url)
        return found
    account = (parts.hostname or "").partition(".")[0]
    if options.pop("enable_tls", "true") == "false":
        options |= {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    return AzureFileSystem(account, **given, **options), f"{parts.username}{path}"


def _answer(where: str, question: Callable[[], T], within_s: float) -> T:
    """
    Return a store's answer to a short question.

    Some clients wait for minutes or for ever for a store that sends nothing. They cannot be ended, and keep
    signals from Python. So a thread asks.
    """
    asked = in_thread("shoal-store", question)
    wait([asked], within_s)
    if not asked.done():
        raise Disconnected(where, f"no answer in {within_s:g} s")
    with _remote_errors(where):
        return asked.result()


@contextlib.contextmanager
def _remote_errors(where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _sentence(where, error) from error
    except ValueError as error:  # pyarrow's ArrowInvalid: a URL or a region that it does not take
        raise ConfigError(f"{where}: {_first_line(error)}") from error


def _sentence(where: str, error: OSError) -> ShoalError:
    text = _first_line(error)
    if _NO_HADOOP.search(text):
        return ConfigError(
            f"{where}: {text}. hdfs needs Java, libhdfs and Hadoop's jars. Set JAVA_HOME and HADOOP_HOME, "
            "and CLASSPATH to what hadoop classpath --glob prints"
        )
    if _NO_BUCKET.search(text):
        return ConfigError(f"{where}: the bucket is not there. Create it, or correct --from or --to")
    if _ELSEWHERE.search(text):
        return ConfigError(
            f"{where}: the bucket is in another region. Set it in the URL of --from or --to: ?region=REGION"
        )
    if _REFUSED.search(text):
        return AccessRefused(where, f"{text.rstrip('.')}. Check the credentials, and the region in the URL")
    return Disconnected(where, text)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


class _RemoteFile:
    #: Each is a request.
    piece_bytes = 8 * 1024 * 1024

    def __init__(self, file: Any, where: str) -> None:
        self._file = file
        self._where = where
        self.size = int(file.size())

    def read_into(self, position: int, room: memoryview) -> int:
        with _remote_errors(self._where):
            self._file.seek(position)
            return int(self._file.readinto(room))

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        return room[: self.read_into(position, room[:size])]

    def close(self) -> None:
        self._file.close()


class _RemoteStore:
    is_local = False

    def __init__(self, system: Any, root: str, url: str, answers_within_s: float) -> None:
        self._system = system
        self._answers_within_s = answers_within_s
        self._root = root
        self.url = url
        #: Whether a stream shows a file before it is whole.
        self._renames = system.type_name == "hdfs"
        #: Whether a directory has to be made: pyarrow lists none of Google's that has no object of its own.
        self._makes_directories = system.type_name in ("hdfs", "gcs")
        self._made: set[str] = set()

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def names(self, path: str) -> list[Listed]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path(path), allow_not_found=True)
        return [
            Listed(each.base_name, each.type == FileType.Directory, each.size or 0)
            for each in self._answer(f"{self.url}/{path}", lambda: self._system.get_file_info(selector))
        ]

    def open(self, path: str) -> StoredFile:
        where = f"{self.url}/{path}"
        return self._answer(where, lambda: _RemoteFile(self._system.open_input_file(self._path(path)), where))

    def _answer(self, where: str, question: Callable[[], T]) -> T:
        return _answer(where, question, self._answers_within_s)

    def write(self, path: str, data: bytes | Path) -> None:
        final = self._path(path)
        written = f"{final}.{secrets.token_hex(4)}.tmp" if self._renames else final
        with _remote_errors(f"{self.url}/{path}"):
            directory = final.rpartition("/")[0]
            if self._makes_directories and directory not in self._made:
                self._system.create_dir(directory, recursive=True)
                self._made.add(directory)
            with self._system.open_output_stream(written) as stream:
                for piece in _pieces(data):
                    stream.write(piece)
            if self._renames:
                self._system.move(written, final)


def _pieces(data: bytes | Path) -> Iterator[bytes]:
    """Yield bytes, or a local file piece by piece."""
    if not isinstance(data, Path):
        yield data
        return
    with data.open("rb", buffering=0) as file:
        while piece := file.read(_COPY_BYTES):
            yield piece
