"""DeleteTopics (API key 20), v1 to v6: by name, from v6 also by id."""

from __future__ import annotations

import uuid
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class

from ..api_error import ApiError
from ..call import Call
from ..state import BrokerState
from ..topics import Topic
from .answering import answer_errors

__all__ = ["handle"]

_Response = response_class(ApiKey.DELETE_TOPICS)
_Result = _Response.DeletableTopicResult

#: From this version on, a request names topics by name or id; the codec reads an id of zeros as None.
_BY_ID_FROM = 6


def handle(state: BrokerState, call: Call, request: Any) -> Any:
    """Delete topics, with their groups' offsets."""
    if call.version >= _BY_ID_FROM:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    return _Response(responses=[_delete(state, call, name, topic_id) for name, topic_id in wanted])


def _refused(error: ApiError, call: Call, name: str | None, topic_id: uuid.UUID | None) -> Any:
    return _Result(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


@answer_errors(_refused, place=lambda name, topic_id: (name or "",))
def _delete(state: BrokerState, call: Call, name: str | None, topic_id: uuid.UUID | None) -> Any:
    topic = _find(state, name, topic_id)
    state.topics.delete(topic)
    state.groups.forget_topic(topic.name)
    state.leaders.forget(topic.name)
    return _Result(name=topic.name, topic_id=topic.topic_id, error_message=None)


def _find(state: BrokerState, name: str | None, topic_id: uuid.UUID | None) -> Topic:
    if name is not None:
        if topic_id is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not by both")
        return state.topics.topic(name)
    topic = None if topic_id is None else state.topics.with_id(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    return topic
