"""A directory in an object store, through ``pyarrow.fs``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import AccessRefused, ConfigError, Disconnected, ShoalError, StorageFailed
from ..in_thread import in_thread
from ..result_file import temporary_name
from .credentials import StoreCredentials
from .files import Listed, LocalCopy, Store, StoredFile, pieces_of
from .urls import shown_url

__all__ = ["open_object_store"]

#: Parts of the error messages of object stores. A name of an object has no blank, so it never matches.
_REFUSED = re.compile(
    r"AWS Error \w*(ACCESS_DENIED|ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIAL|TIME_TOO_SKEWED)|HTTP status 40[03]\b"
    r"|ExceptionName: \w*Token|PERMISSION_DENIED|Unauthenti|OAuth2 access token"
    r"|Authentication ?Failed|Authorization ?Failure"
)
_ELSEWHERE = re.compile(r"HTTP status 301\b|ExceptionName: (PermanentRedirect|AuthorizationHeaderMalformed)")
_NO_HADOOP = re.compile(r"Unable to load lib(jvm|hdfs)")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist", re.IGNORECASE)

#: A store that takes or sends less of a file in a second is taken for one that does not answer.
_LEAST_BYTES_PER_S = 1024 * 1024

T = TypeVar("T")


def open_object_store(url: str, credentials: StoreCredentials, answers_within_s: float) -> Store:
    """
    Return the store of a URL.

    Raises:
        ConfigError: pyarrow is missing, or there is no such bucket.
        ShoalError: The store does not answer, or refuses.

    """
    try:
        from pyarrow.fs import FileType
    except ImportError:
        raise ConfigError(
            f"{shown_url(url)}: pyarrow is not installed, which reads and writes such a directory. Run: pip "
            "install 'shoal[archive]'"
        ) from None
    shown = shown_url(url)

    def reach() -> tuple[Any, str]:
        system, root = _file_system(url, credentials)
        bucket = root.split("/", 1)[0]
        if system.type_name != "hdfs" and system.get_file_info(bucket).type == FileType.NotFound:
            raise ConfigError(
                f"{shown}: bucket {bucket!r} is not there. Create it, or correct --from or --to"
            )
        return system, root.rstrip("/")

    return _ObjectStore(*_answer(shown, reach, answers_within_s), shown, answers_within_s)


def _file_system(url: str, credentials: StoreCredentials) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; a URL with keys would be in pyarrow's errors."""
    from pyarrow.fs import AzureFileSystem, FileSystem

    parts = urlsplit(url)
    path = unquote(parts.path)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    given = dict(credentials.arguments)
    if parts.scheme.lower() == "s3":
        return _s3(parts.netloc, frozenset({**given, **options}.items())), f"{parts.netloc}{path}"
    if not given:
        found: tuple[Any, str] = FileSystem.from_uri(url)
        return found
    account = (parts.hostname or "").partition(".")[0]
    if options.pop("enable_tls", "true") == "false":
        options |= {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    return AzureFileSystem(account, **given, **options), f"{parts.username}{path}"


@cache
def _s3(bucket: str, options: frozenset[tuple[str, Any]]) -> Any:
    """Return the only client of a bucket in this process: to make one, pyarrow waits for those that read."""
    from pyarrow.fs import S3FileSystem, resolve_s3_region

    found = dict(options)
    # By its URL, pyarrow would try a silent store for minutes, and shoal itself waits and says so.
    if not {"region", "endpoint_override"} & found.keys():
        found["region"] = resolve_s3_region(bucket)
    return S3FileSystem(**found)


def _answer(where: str, question: Callable[[], T], within_s: float, size: int = 0) -> T:
    """
    Return a store's answer to a question, with which so many bytes are written or read.

    Some clients wait for minutes or for ever for a store that sends nothing. They cannot be ended, and keep
    signals from Python. So a thread asks.
    """
    within_s += size // _LEAST_BYTES_PER_S
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

    def __init__(self, file: Any, where: str, answers_within_s: float) -> None:
        self._file = file
        self._where = where
        self._answers_within_s = answers_within_s
        self.size = int(file.size())

    def read_into(self, position: int, room: memoryview) -> int:
        file, size = self._file, len(room)
        # Not into the room: a store that is silent now may still send when the room has other bytes.
        data = _answer(self._where, lambda: file.read_at(size, position), self._answers_within_s, size)
        room[: len(data)] = data
        return len(data)

    def part(self, position: int, size: int, room: memoryview) -> memoryview:
        return room[: self.read_into(position, room[:size])]

    def local_copy(self) -> LocalCopy | None:
        return LocalCopy.of(self.size, self._where)

    def close(self) -> None:
        self._file = None  # which closes it, unless a thread still waits for a silent store


class _ObjectStore:
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
        where, within_s = f"{self.url}/{path}", self._answers_within_s
        return [
            Listed(each.base_name, each.type == FileType.Directory, each.size or 0)
            for each in _answer(where, lambda: self._system.get_file_info(selector), within_s)
        ]

    def open(self, path: str) -> StoredFile:
        where = f"{self.url}/{path}"
        within_s = self._answers_within_s

        def opened() -> StoredFile:
            return _RemoteFile(self._system.open_input_file(self._path(path)), where, within_s)

        return _answer(where, opened, within_s)

    def write(self, path: str, data: bytes | Path) -> None:
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        _answer(f"{self.url}/{path}", lambda: self._write(path, data), self._answers_within_s, size)

    def _write(self, path: str, data: bytes | Path) -> None:
        from pyarrow.fs import FileType

        final = self._path(path)
        directory, _, name = final.rpartition("/")
        written = f"{directory}/{temporary_name(name)}" if self._renames else final
        if self._makes_directories and directory not in self._made:
            self._system.create_dir(directory, recursive=True)
            self._made.add(directory)
        # A stream replaces what has its name, and so does pyarrow's move, also in HDFS.
        if self._system.get_file_info(final).type != FileType.NotFound:
            raise StorageFailed(f"{self.url}/{path}", "it is there already, and shoal overwrites nothing")
        with self._system.open_output_stream(written) as stream:
            for piece in pieces_of(data):
                stream.write(piece)
        if self._renames:
            self._system.move(written, final)
