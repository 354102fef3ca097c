"""The ``max.message.bytes`` of topics, read from the cluster and cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...error_codes import ErrorCode
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...timing import Timing
from .request import TranslatedRequest

__all__ = ["TopicLimits"]

#: If there are more topics, the oldest entries are dropped.
_MOST_TOPICS = 10_000

_CONFIG = "max.message.bytes"
_TOPIC = 2

_Resource = codec.request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource


class _Limit(NamedTuple):
    """A topic's limit in bytes, None if the cluster does not reveal it, and the time of the request."""

    max_message_bytes: int | None
    at: float


class TopicLimits:
    """The limits of all topics that clients produce to in old versions. For all threads."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._limits: dict[str, _Limit] = {}
        self._lock = threading.Lock()

    def find(self, topics: Iterable[str], request: TranslatedRequest) -> dict[str, int]:
        """
        Return the limits of topics, in bytes.

        The result lacks topics that do not exist, and topics without the ACL DESCRIBE_CONFIGS.

        Args:
            topics: The names of the topics.
            request: A client's request, whose connection is used.

        """
        now, kept_s = time.monotonic(), self._timing.topic_limit_kept_s
        wanted = set(topics)
        with self._lock:
            known = {
                topic: limit
                for topic in wanted
                if (limit := self._limits.get(topic)) is not None and now - limit.at < kept_s
            }
        missing = wanted - known.keys()
        if missing and ApiKey.DESCRIBE_CONFIGS in request.upstream.connection.versions:
            asked = {
                topic: _Limit(max_message_bytes, now)
                for topic, max_message_bytes in _ask(sorted(missing), request).items()
            }
            self._keep(asked)
            known |= asked
        return {
            topic: limit.max_message_bytes
            for topic, limit in known.items()
            if limit.max_message_bytes is not None
        }

    def _keep(self, asked: dict[str, _Limit]) -> None:
        with self._lock:
            for topic, limit in asked.items():
                self._limits.pop(topic, None)
                self._limits[topic] = limit
            while len(self._limits) > _MOST_TOPICS:
                del self._limits[next(iter(self._limits))]


def _ask(topics: Iterable[str], request: TranslatedRequest) -> dict[str, int | None]:
    answer = request.ask(
        ApiKey.DESCRIBE_CONFIGS,
        request.upstream.oldest(ApiKey.DESCRIBE_CONFIGS, 1),
        resources=[
            _Resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[_CONFIG])
            for topic in topics
        ],
        include_synonyms=False,
    )
    return {
        each.resource_name: _value(each)
        for each in answer.results
        # A missing topic may be created by the request in translation.
        if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def _value(result: Any) -> int | None:
    if result.error_code != ErrorCode.NONE:
        return None
    found = [each.value for each in result.configs if each.name == _CONFIG]
    return int(found[0]) if found and found[0] and found[0].isdecimal() else None
