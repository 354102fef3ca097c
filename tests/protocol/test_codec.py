"""Frames to messages and back, against kio, against older hand-written messages, and against damage."""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol import codec
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_response,
    read_correlation_id,
    read_request_header,
    response_class,
)
from tests.each_case import each_case
from tests.oldest_versions import OLDEST_IN_KAFKA_4
from tests.protocol.frames import CASES, Case

EVERY_MESSAGE = each_case(
    "versions",
    [list(group) for _, group in itertools.groupby(CASES, lambda case: (case.api_key, case.is_request))],
    lambda versions: f"{versions[0].api_key.name}-{versions[0].direction}",
)

COMPILED, CHECKED = 1 << 30, 0


def test_compared_versions_include_those_removed_in_kafka_4() -> None:
    compared = {(case.api_key, case.version, case.is_request) for case in CASES}
    for api_key, oldest in OLDEST_IN_KAFKA_4.items():
        for version in range(oldest):
            assert {(api_key, version, True), (api_key, version, False)} <= compared


@pytest.fixture(params=[COMPILED, CHECKED], ids=["compiled", "checked"])
def _each_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LARGEST_FOR_COMPILED", request.param)


EACH_DECODER = pytest.mark.usefixtures("_each_decoder")


@EACH_DECODER
@EVERY_MESSAGE
def test_kio_frame_decoded_and_encoded_has_the_same_bytes(versions: list[Case]) -> None:
    for case in versions:
        draw = random.Random(str(case))
        for _ in range(3):
            frame = case.frame(draw)
            encoded = case.encode(case.decode(frame))
            assert encoded[4:] == frame, case
            assert int.from_bytes(encoded[:4]) == len(frame)


@EVERY_MESSAGE
def test_kio_decoders_return_the_same_message(versions: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    for case in versions:
        frame = case.frame(random.Random(str(case)))
        monkeypatch.setattr(codec, "LARGEST_FOR_COMPILED", COMPILED)
        compiled = case.decode(frame)
        monkeypatch.setattr(codec, "LARGEST_FOR_COMPILED", CHECKED)
        assert case.decode(frame) == compiled, case


@EACH_DECODER
@EVERY_MESSAGE
def test_frame_cut_anywhere_is_refused(versions: list[Case]) -> None:
    for case in versions:
        frame = case.frame(random.Random(str(case)))
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError):
                case.decode(frame[:cut])


@EACH_DECODER
@EVERY_MESSAGE
def test_trailing_bytes_are_ignored_in_requests_and_refused_in_responses(versions: list[Case]) -> None:
    for case in versions:
        frame = case.frame(random.Random(str(case)))
        for trailing in (b"\0", b"\xff" * 9):
            if case.is_request:
                assert case.decode(frame + trailing) == case.decode(frame), case
            else:
                with pytest.raises(ProtocolError, match=r"fields.*end"):
                    case.decode(frame + trailing)


METADATA_HEAD = b"\0\0\0\1\0" + b"\0\0\0\0"  # correlation id, tags; throttle time
ENDLESS_BROKERS = METADATA_HEAD + b"\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    "frame",
    [
        METADATA_HEAD + b"\xff" * 1_000_000,
        ENDLESS_BROKERS + b"\0\0\0\1\2a\0\0\0\1\0\1\x09\0" * 70_000,
        METADATA_HEAD + b"\2\0\0\0\1\2a\0\0\0\1\0\xff\xff\xff\x7f" + b"\x09\0" * 500_000,
        METADATA_HEAD + b"\xff" * 60_000,
        ENDLESS_BROKERS + b"\0\0\0\1\2a\0\0\0\1\0\1\x09\0" * 4_000,
    ],
    ids=["a varint", "tagged fields", "one tagged field after another", "a shorter varint", "fewer fields"],
)
def test_large_malformed_frame_is_refused_in_time_that_grows_with_its_size(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed MetadataResponse"):
        decode_response(ApiKey.METADATA, 12, memoryview(frame))


def test_large_frame_is_decoded_like_a_small_one() -> None:
    broker = response_class(ApiKey.METADATA).MetadataResponseBroker
    brokers = [broker(version=12, node_id=node, host=f"host-{node}", port=9092) for node in range(6000)]
    response = response_class(ApiKey.METADATA)(version=12, brokers=brokers, topics=[])
    frame = memoryview(encode_response(response, 1))[4:]
    assert len(frame) > codec.LARGEST_FOR_COMPILED
    assert decode_response(ApiKey.METADATA, 12, frame) == response


def test_decoded_byte_fields_outlive_the_buffer() -> None:
    frame = bytearray(
        encode_response(response_class(ApiKey.SYNC_GROUP)(version=3, assignment=b"mine"), 1)[4:]
    )
    response = decode_response(ApiKey.SYNC_GROUP, 3, memoryview(frame))
    frame[:] = bytes(len(frame))
    assert response.assignment == b"mine"


def test_unknown_tagged_fields_of_a_newer_broker_are_skipped() -> None:
    frame = b"\x00\x00\x00\x07\x01\x63\x02hi" + b"\x00\x00\x00\x64\x00\x1b\x01\x64\x03new"
    response = decode_response(ApiKey.HEARTBEAT, 4, memoryview(frame))
    assert response.error_code == 27


@pytest.mark.parametrize("version", [-1, 5, 32_767])
def test_missing_version_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=rf"version.*{version}"):
        decode_response(ApiKey.HEARTBEAT, version, memoryview(b"\0" * 20))
    frame = b"\x00\x0c" + version.to_bytes(2, signed=True) + b"\0\0\0\7\xff\xff" + b"\0" * 20
    with pytest.raises(ProtocolError, match=rf"version.*{version}"):
        decode_request(read_request_header(memoryview(frame)), memoryview(frame))


@pytest.mark.parametrize("api_key", [-1, 7, 999])
def test_request_of_unknown_api_is_refused_after_its_header_is_read(api_key: int) -> None:
    frame = memoryview(api_key.to_bytes(2, signed=True) + b"\0\0\0\0\0\7\xff\xff")
    header = read_request_header(frame)
    assert header == RequestHeader(api_key, 0, 7, None)
    with pytest.raises(ProtocolError, match=rf"API.*{api_key}"):
        decode_request(header, frame)


HEADER = b"\x00\x03\x00\x0c\x00\x00\x00\x07"


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [(b"\xff\xff", None), (b"\0\0", ""), (b"\0\3abc", "abc"), (b"\0\2\xc3\xa9", "é")],
)
def test_request_header_cut_is_refused_and_trailing_bytes_are_ignored(
    client_id: bytes, expected: str | None
) -> None:
    frame = HEADER + client_id
    assert read_request_header(memoryview(frame)) == RequestHeader(3, 12, 7, expected)
    assert read_request_header(memoryview(frame + b"\0more")) == RequestHeader(3, 12, 7, expected)
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_request_header(memoryview(frame[:cut]))


@pytest.mark.parametrize("client_id", [b"\0\1\xff", b"\xff\xfe", b"\x7f\xffabc"])
def test_malformed_client_id_is_refused(client_id: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(memoryview(HEADER + client_id))


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_a_request_header_or_refused(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert read_request_header(memoryview(frame)).api_key == int.from_bytes(frame[:2], signed=True)


def test_correlation_id_is_read_from_the_first_four_bytes() -> None:
    assert read_correlation_id(memoryview(b"\xff\xff\xff\xffmore")) == -1
    for cut in range(4):
        with pytest.raises(ProtocolError, match=rf"response.*{cut}"):
            read_correlation_id(memoryview(b"\0\0\0\1"[:cut]))


def _api_versions(version: int, error_code: int, *ranges: tuple[int, int, int]) -> memoryview:
    message = response_class(ApiKey.API_VERSIONS)
    keys = [
        message.ApiVersion(version=version, api_key=key, min_version=oldest, max_version=newest)
        for key, oldest, newest in ranges
    ]
    return memoryview(encode_response(message(version=version, error_code=error_code, api_keys=keys), 1)[4:])


@EACH_DECODER
@pytest.mark.parametrize("asked", [0, 1, 2, 3, 4])
def test_unsupported_api_versions_response_is_decoded_as_version_0(asked: int) -> None:
    response = decode_response(ApiKey.API_VERSIONS, asked, _api_versions(0, 35, (18, 0, 2)))
    assert response.error_code == 35
    assert [(each.api_key, each.max_version) for each in response.api_keys] == [(18, 2)]


@EACH_DECODER
@pytest.mark.parametrize("error_code", [0, 42])
def test_other_api_versions_response_is_decoded_in_the_requested_version(error_code: int) -> None:
    response = decode_response(ApiKey.API_VERSIONS, 3, _api_versions(3, error_code, (0, 3, 13)))
    assert response.error_code == error_code
    assert [(each.api_key, each.max_version) for each in response.api_keys] == [(0, 13)]


def test_api_versions_response_header_is_never_flexible() -> None:
    """A client cannot know yet whether the broker is new enough (KIP-511)."""
    assert bytes(_api_versions(3, 0)) == b"\0\0\0\1" + b"\0\0" + b"\1" + b"\0\0\0\0" + b"\0"
