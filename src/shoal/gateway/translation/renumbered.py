"""APIs whose old versions differ by a field or two: the same message in a newer version, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...error_codes import ErrorCode
from ...protocol import codec
from ...protocol.apis import ApiKey
from ..nodes import Nodes
from ..rewriting import rewrite_brokers
from .request import Part, TranslatedRequest, old_code

__all__ = ["translate"]

#: The config source of a default in DescribeConfigs; v0 has a flag instead.
_DEFAULT_CONFIG = 5


def translate(request: TranslatedRequest, nodes: Nodes) -> Sequence[Part]:
    """Send the request in a newer version, and return the answer in the old one, with our addresses."""
    header = request.header
    api_key = ApiKey(header.api_key)
    body = request.body
    version = request.upstream.oldest(api_key)
    # A field that the old version lacks has its default, as in Kafka's own parser.
    fields = {name: getattr(body, name) for name in body._struct.fields}
    if api_key == ApiKey.METADATA and not body.topics:
        fields["topics"] = None  # in v0 an empty list means all topics
    answer = request.ask(api_key, version, **fields)
    if api_key in _OF_GROUPS and header.api_version == 0 and _is_elsewhere(api_key, answer):
        # In v0 any broker stored offsets in ZooKeeper, so such a client does not look for a coordinator.
        answer = request.ask_coordinator(body.group_id, api_key, version, **fields) or answer
    if api_key == ApiKey.METADATA:
        rewrite_brokers(answer, "node_id", nodes)
    return [codec.encode_response(_back(api_key, header.api_version, answer), header.correlation_id)]


_OF_GROUPS = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH})


def _is_elsewhere(api_key: ApiKey, answer: Any) -> bool:
    return any(
        partition.error_code == ErrorCode.NOT_COORDINATOR
        for topic in answer.topics
        for partition in topic.partitions
    )


def _back(api_key: ApiKey, old_version: int, answer: Any) -> Any:
    if api_key in _OF_GROUPS:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = old_code(partition.error_code)
    if api_key == ApiKey.OFFSET_FETCH:
        _without_offset(answer)
    if api_key == ApiKey.DESCRIBE_CONFIGS:
        for result in answer.results:
            for config in result.configs:
                config.is_default = config.config_source == _DEFAULT_CONFIG
    fields = {name: getattr(answer, name) for name in answer._struct.fields}
    return codec.response_class(api_key)(version=old_version, **fields)


def _without_offset(answer: Any) -> None:
    """Report a missing commit as v0 did: by error 3 (``OffsetFetchResponse.UNKNOWN_PARTITION``)."""
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.committed_offset == -1 and partition.error_code == ErrorCode.NONE:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
