"""The vectors match their index, as read by kio, which did not record them."""

import hashlib
import io
from operator import attrgetter
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tests.each_case import each_case
from tests.vectors import Vector, down_converted_vectors, old_vectors, removed_vectors, vectors

EVERY_VECTOR = each_case("recorded", vectors(), attrgetter("name"))


@each_case(
    "recorded",
    (*vectors(), *old_vectors(), *down_converted_vectors(), *removed_vectors()),
    attrgetter("name"),
)
def test_vector_s_frame_has_the_recorded_size_and_digest(recorded: Vector) -> None:
    assert len(recorded.frame) == recorded.size
    assert hashlib.sha256(recorded.frame).hexdigest() == recorded.sha256


@EVERY_VECTOR
def test_kio_decodes_and_encodes_the_same_bytes(recorded: Vector) -> None:
    header, message = kio_decode(recorded)
    assert header.correlation_id == recorded.correlation_id
    written = io.BytesIO()
    entity_writer(type(header))(written, header)
    entity_writer(type(message))(written, message)
    assert written.getvalue() == recorded.frame


def kio_decode(recorded: Vector) -> tuple[Any, Any]:
    load = load_request_schema if recorded.direction == "request" else load_response_schema
    schema = load(recorded.api_key, recorded.version)
    header, size = entity_reader(schema.__header_schema__)(recorded.frame, 0)
    message, rest = entity_reader(schema)(recorded.frame, size)
    assert size + rest == len(recorded.frame)
    return header, message


def test_only_a_recorded_flip_is_a_bad_crc() -> None:
    bad = {
        recorded.name
        for recorded in vectors()
        for batches in recorded.batches.values()
        for batch in batches
        if not batch["crc_is_valid"]
    }
    assert bad == {"produce-v12-refused-bad-crc.request", "produce-v12-refused-bad-crc-gzip.request"}
