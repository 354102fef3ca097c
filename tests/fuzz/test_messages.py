"""Every message from the network, damaged: it is read or refused, at a cost bounded by its size."""

from __future__ import annotations

import contextlib
import random
import struct
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol import codec
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    decode_request,
    decode_response,
    encode_response,
    read_request_header,
    request_class,
    response_class,
)
from shoal.protocol.fetch import decode_fetch_response
from shoal.protocol.produce import decode_produce_request, decode_produce_response
from tests import kio_messages
from tests.each_case import each_case
from tests.fuzz.damage import HUGE_NUMBERS, garbage, mutated
from tests.fuzz.effort import bounded, effort, number_of_inputs
from tests.vectors import Vector, old_vectors, removed_vectors, vectors

RECORDED = [*vectors(), *old_vectors(), *removed_vectors()]

#: By hand: Fetch responses, Produce in both directions.
FETCHED = [each for each in RECORDED if each.api == "Fetch" and each.direction == "response"]
PRODUCED = [each for each in RECORDED if each.api == "Produce"]

DECODERS = pytest.mark.parametrize("largest_for_compiled", [1 << 30, 0], ids=["compiled", "checked"])


def read_all(vector: Vector, frame: bytes) -> None:
    """Read a frame of the vector's kind with every decoder that gets such frames."""
    view = memoryview(frame)
    with contextlib.suppress(ProtocolError):
        if vector.direction == "request":
            decode_request(read_request_header(view), view)
        else:
            decode_response(ApiKey(vector.api_key), vector.version, view)
    if vector in FETCHED:
        with contextlib.suppress(ProtocolError):
            decode_fetch_response(view, vector.version, vector.names)
    elif vector in PRODUCED:
        decode: Any = decode_produce_response if vector.direction == "response" else decode_produce_request
        with contextlib.suppress(ProtocolError):
            decode(view, vector.version, names=vector.names)


@DECODERS
@given(st.data())
@effort(125)
def test_damaged_recorded_frame_is_read_or_refused(largest_for_compiled: int, data: st.DataObject) -> None:
    vector = data.draw(st.sampled_from(RECORDED))
    frame = data.draw(mutated(vector.frame[:4096]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "LARGEST_FOR_COMPILED", largest_for_compiled)
        with bounded(len(frame)):
            read_all(vector, frame)


@each_case("vector", RECORDED, attrgetter("name"))
def test_recorded_frame_is_read_or_refused_with_any_number_anywhere(vector: Vector) -> None:
    draw = random.Random(vector.name)
    head = vector.frame[:2000]
    positions = range(len(head))
    for position in draw.sample(positions, min(number_of_inputs(4), len(head))):
        number = draw.choice(HUGE_NUMBERS)
        read_all(vector, head[:position])
        read_all(vector, head[:position] + number + head[position + len(number) :])
        read_all(vector, head[:position] + number + head[position:])


@DECODERS
@given(st.sampled_from(sorted(ApiKey)), st.integers(0, 20), st.booleans(), garbage())
@effort(100)
def test_garbage_is_decoded_or_refused_as_any_message(
    largest_for_compiled: int, api_key: ApiKey, version: int, is_request: bool, body: bytes
) -> None:
    head = struct.pack(">hhih", api_key, version, 1, -1) if is_request else b"\0\0\0\1"
    frame = memoryview(head + body)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(ProtocolError):
        patch.setattr(codec, "LARGEST_FOR_COMPILED", largest_for_compiled)
        with bounded(len(frame)):
            if is_request:
                decode_request(read_request_header(frame), frame)
            else:
                decode_response(api_key, version, frame)


@given(st.integers(4, 13), garbage())
@effort(75)
def test_garbage_is_decoded_or_refused_by_fetch_and_produce(version: int, body: bytes) -> None:
    frame = memoryview(b"\0\0\0\1" + body)
    for decode in (decode_fetch_response, decode_produce_response, decode_produce_request):
        with bounded(len(frame)), contextlib.suppress(ProtocolError):
            decode(frame, version)


def _non_nullable(schema: Any, version: int, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the paths to arrays, strings and bytes that may not be null, down to the first element."""
    found = []
    for field in schema.untagged_fields(version):
        here = (*path, field.name)
        has_null = field.is_array() or field.type_str in ("string", "bytes")
        if has_null and not field.nullable_for_version_q(version):
            found.append(here)
        if field.is_struct_array():
            found += _non_nullable(field, version, here)
    return found


@DECODERS
@each_case("api_key", sorted(ApiKey), attrgetter("name"))
def test_null_in_a_field_that_is_not_nullable_is_refused(
    api_key: ApiKey, largest_for_compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a field is not nullable, null is refused: Kafka's own reader raises "serialized as null"."""
    monkeypatch.setattr(codec, "LARGEST_FOR_COMPILED", largest_for_compiled)
    refused = 0
    for is_request in (True, False):
        ours = (request_class if is_request else response_class)(api_key)
        load = kio_messages.request_schema if is_request else kio_messages.response_schema
        for version in range(ours.min_version, ours.max_version + 1):
            schema = load(api_key, version)
            if schema is None or (api_key, version, is_request) == (ApiKey.METADATA, 0, True):
                continue  # kafka-python writes no null in that one
            for path in _non_nullable(ours._struct, version):
                frame = _with_null(api_key, version, is_request, schema, path)
                if frame is None:
                    continue
                refused += 1
                with pytest.raises(ProtocolError, match=f"{path[-1]} is null"):
                    _decode(api_key, version, is_request, frame)
    assert refused or api_key is ApiKey.INIT_PRODUCER_ID  # which has no such field


def _decode(api_key: ApiKey, version: int, is_request: bool, frame: bytes) -> Any:
    view = memoryview(frame)
    if is_request:
        return decode_request(read_request_header(view), view)
    return decode_response(api_key, version, view)


def _with_null(
    api_key: ApiKey, version: int, is_request: bool, schema: Any, path: tuple[str, ...]
) -> bytes | None:
    """Generate a message with kio, and write it with null at a path; None if it has no such place."""
    for seed in range(20):
        message = kio_messages.random_message(schema, random.Random(f"{api_key}{version}{path}{seed}"))
        if is_request:
            decoded = _decode(api_key, version, True, kio_messages.encode_request(message, 1, "client"))
        else:
            decoded = _decode(api_key, version, False, kio_messages.encode_response(message, 1))
        place = decoded
        for name in path[:-1]:
            elements = getattr(place, name)
            if not elements:
                break
            place = elements[0]
        else:
            setattr(place, path[-1], None)
            if is_request:
                return bytes(codec.encode_request(decoded, 1, "client")[4:])
            return bytes(encode_response(decoded, 1)[4:])
    return None
