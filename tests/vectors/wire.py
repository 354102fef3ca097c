"""A plain socket to a broker that keeps every frame; the codec is kafka-python's."""

import hashlib
import itertools
import json
import socket
import struct
from pathlib import Path
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer
from kafka.record.memory_records import MemoryRecords

__all__ = ["CODEC_NAMES", "Recorder", "batch_headers", "message"]

CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

_CLIENT_ID = "recorder"


def message(kind: type[DataContainer], version: int, /, **fields: Any) -> Any:
    """
    Build a kafka-python message from plain values, with dicts for nested structures.

    kafka-python itself wants an instance of the right nested class for each of them.
    """
    return kind(version=version, **{name: _value(kind, version, name, v) for name, v in fields.items()})


def _value(kind: type[DataContainer], version: int, name: str, value: Any) -> Any:
    field = kind.fields[name]
    if field.is_struct_array() and value is not None:
        return [message(field.data_class, version, **element) for element in value]
    return value


def batch_headers(record_set: bytes) -> list[dict[str, Any]]:
    """Return the header of each whole batch of magic 2 as kafka-python reads it, CRC checked."""
    records = MemoryRecords(record_set)
    found = []
    while (batch := records.next_batch()) is not None:
        if batch.magic < 2:
            continue
        found.append(
            {
                "base_offset": batch.base_offset,
                "last_offset_delta": batch.last_offset_delta,
                "count": batch.records_count,
                "size": batch.size_in_bytes,
                "leader_epoch": batch.leader_epoch,
                "magic": batch.magic,
                "crc": batch.crc,
                "crc_is_valid": batch.validate_crc(),
                "attributes": batch.attributes,
                "codec": CODEC_NAMES[batch.compression_type],
                "timestamp_type": ("CreateTime", "LogAppendTime")[batch.timestamp_type],
                "is_transactional": batch.is_transactional,
                "is_control": batch.is_control_batch,
                "base_timestamp": batch.first_timestamp,
                "max_timestamp": batch.max_timestamp,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "base_sequence": batch.base_sequence,
            }
        )
    return found


class Recorder:
    """
    Sends requests to brokers and keeps both frames of each exchange that is given a name.

    Nothing is written before `save`, so a recording that fails changes no vector.
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._sockets: dict[str, socket.socket] = {}
        self._correlation_ids = itertools.count(1)
        self._frames: dict[str, bytes] = {}
        self._index: list[dict[str, Any]] = []

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()

    def ask(self, address: str, request: ApiMessage) -> Any:
        """Exchange without keeping, for waiting and preparing."""
        return self._exchange(address, request)[2]

    def record(
        self,
        address: str,
        request: ApiMessage,
        name: str,
        what: str,
        codec: str | None = None,
        records: dict[str, list[dict[str, Any]]] | None = None,
        **more: Any,
    ) -> Any:
        """
        Exchange, keep both frames as NAME.request and NAME.response, and return the response.

        ``more`` is added to the response's line of the index.
        """
        sent, received, response = self._exchange(address, request)
        self._keep(f"{name}.request", request, request, sent, what, codec, None)
        self._keep(f"{name}.response", request, response, received, what, codec, records, **more)
        return response

    def save(self, directory: Path) -> None:
        """Replace all vectors in the directory by those recorded."""
        for old in directory.glob("*.bin"):
            old.unlink()
        for name, frame in self._frames.items():
            (directory / f"{name}.bin").write_bytes(frame)
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in self._index)
        (directory / "index.json").write_text(f"[\n{lines}\n]\n")

    def _exchange(self, address: str, request: ApiMessage) -> tuple[bytes, bytes, Any]:
        correlation_id = next(self._correlation_ids)
        request.with_header(correlation_id=correlation_id, client_id=_CLIENT_ID)
        sent = bytes(request.encode(header=True))
        connection = self._connection(address)
        connection.sendall(struct.pack(">i", len(sent)) + sent)
        (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
        received = _receive_exactly(connection, size)
        response_class = request.header.get_response_class()
        response = response_class.decode(received, header=True)
        assert response.header.correlation_id == correlation_id
        return sent, received, response

    def _connection(self, address: str) -> socket.socket:
        if address not in self._sockets:
            host, port = address.split(":")
            self._sockets[address] = socket.create_connection((host, int(port)), timeout=30)
        return self._sockets[address]

    def _keep(
        self,
        name: str,
        request: ApiMessage,
        decoded: ApiMessage,
        frame: bytes,
        what: str,
        codec: str | None,
        records: dict[str, list[dict[str, Any]]] | None,
        **more: Any,
    ) -> None:
        assert name not in self._frames, f"two vectors called {name}"
        self._frames[name] = frame
        self._index.append(
            {
                "name": name,
                "broker": self._broker,
                "api": decoded.name.removesuffix("Request").removesuffix("Response"),
                "api_key": request.API_KEY,
                "version": request.API_VERSION,
                "direction": decoded.type,
                "what": what,
                "codec": codec,
                "correlation_id": request.header.correlation_id,
                "size": len(frame),
                "sha256": hashlib.sha256(frame).hexdigest(),
                "fields": _plain(decoded),
                "batches": _batches_in(decoded),
                "records": records,
                **more,
            }
        )


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError(f"the broker closed after {len(received)} of {size} bytes")
        received += piece
    return bytes(received)


def _plain(value: Any) -> Any:
    """Turn a decoded message into JSON's types; record sets become ``{"bytes": n}``."""
    if isinstance(value, DataContainer):
        return {
            name: _record_set_size(getattr(value, name))
            if name == "records"
            else _plain(getattr(value, name))
            for name, field in value.fields.items()
            if field.for_version_q(value.version)
        }
    if isinstance(value, (list, tuple, set)):
        return [_plain(element) for element in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": bytes(value).hex()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _record_set_size(records: bytes | None) -> Any:
    return None if records is None else {"bytes": len(records)}


def _batches_in(decoded: ApiMessage) -> dict[str, list[dict[str, Any]]]:
    if decoded.name == "FetchResponse":
        return {
            f"{topic.topic or topic.topic_id}-{partition.partition_index}": batch_headers(
                bytes(partition.records or b"")
            )
            for topic in decoded.responses
            for partition in topic.partitions
        }
    if decoded.name == "ProduceRequest":
        return {
            f"{topic.name or topic.topic_id}-{partition.index}": batch_headers(bytes(partition.records))
            for topic in decoded.topic_data
            for partition in topic.partition_data
        }
    return {}
