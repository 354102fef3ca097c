"""
The URLs of directories: which kinds there are, and what a URL may have.

A URL is shown and logged, so no secret may be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from ..errors import ConfigError

__all__ = ["LOCAL_SCHEME", "check_url", "is_directory_url", "shown_url"]

LOCAL_SCHEME = "file"

_FROM_ELSEWHERE = "Credentials come from the environment, a role, or the properties file"

#: The parameters of a URL, by its scheme. None of them is a secret.
_PARAMETERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "s3": frozenset({"region", "endpoint_override", "scheme"}),
        "gs": frozenset({"endpoint_override", "scheme", "retry_limit_seconds"}),
        "abfss": frozenset({"blob_storage_authority", "dfs_storage_authority", "enable_tls"}),
        "hdfs": frozenset({"replication"}),
        LOCAL_SCHEME: frozenset(),
    }
)


def is_directory_url(text: str) -> bool:
    """Whether a text that names an end is a directory, not the servers of a cluster."""
    return "://" in text or text.startswith(("/", "./", "../")) or text in (".", "..")


def shown_url(url: str) -> str:
    """Return a directory's URL without its parameters."""
    return url.partition("?")[0].rstrip("/") or "/"


def check_url(option: str, url: str) -> None:
    """
    Check a directory's URL, without any access to it.

    Raises:
        ConfigError: The scheme is unknown, or the URL has a secret or a parameter that it may not have.

    """
    if "://" in url:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        problem = _problem(scheme, parts)
        if problem is not None:
            raise ConfigError(f"{option} {scheme}://…: {problem}")


def _problem(scheme: str, parts: SplitResult) -> str | None:
    if scheme not in _PARAMETERS:
        return "no such kind of directory. Use s3, gs, abfss, hdfs, file, or a path"
    parameters = parse_qs(parts.query, keep_blank_values=True)
    names_user = parts.password is not None or (parts.username is not None and scheme != "abfss")
    if names_user or any("@" in value for values in parameters.values() for value in values):
        return f"the URL has a user or password. URLs are shown and logged, so remove them. {_FROM_ELSEWHERE}"
    if unknown := parameters.keys() - _PARAMETERS[scheme]:
        allowed = ", ".join(sorted(_PARAMETERS[scheme])) or "none"
        return (
            f"the URL may not have the parameter {min(unknown)!r}. Its parameters may be: {allowed}. "
            f"{_FROM_ELSEWHERE}"
        )
    if parts.fragment:
        return "the URL may not have a '#'. Write %23 for one in a name"
    if scheme == LOCAL_SCHEME:
        is_here = parts.netloc in ("", "localhost")
        return None if is_here else f"{parts.netloc!r} is another machine. Use file:///PATH"
    if {".", ".."} & set(unquote(parts.path).split("/")):
        # A store lists objects by their names, but its client opens another object for such a name.
        return "a store has no '.' and no '..'. Remove them from the path"
    return None if parts.netloc else f"the URL has no bucket. Use {scheme}://BUCKET/PATH"
