"""A client's half of a fetch session."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.error_codes import ErrorCode
from shoal.protocol.fetch import FetchResponse
from tests.broker.wire import Wire

__all__ = ["Session", "everything", "sizes"]


class Session:
    """A session on a connection; counts its epochs."""

    def __init__(self, wire: Wire, wanted: Sequence[tuple[str, int, int]], **options: int) -> None:
        self._wire = wire
        self.opening = wire.fetch_all(list(wanted), session_epoch=0, **options)
        self.id = self.opening.session_id
        self.epoch = 1

    def fetch(
        self,
        *wanted: tuple[str, int, int],
        forgotten: Sequence[tuple[str, int]] = (),
        epoch: int | None = None,
        **options: int,
    ) -> FetchResponse:
        response = self._wire.fetch_all(
            list(wanted),
            forgotten=forgotten,
            session_id=self.id,
            session_epoch=self.epoch if epoch is None else epoch,
            **options,
        )
        if epoch is None and not response.error_code:
            self.epoch += 1
        return response


def sizes(response: FetchResponse) -> dict[int, int]:
    """Return the sizes of record sets by partition, in the order of the answer."""
    assert response.error_code == ErrorCode.NONE
    return {each.partition: len(each.record_set) for each in response.partitions}


def everything(topic: str) -> list[tuple[str, int, int]]:
    return [(topic, partition, 0) for partition in range(3)]
