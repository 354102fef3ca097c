"""The table of the down-conversion benchmark."""

import struct

import pytest

from bench.gateway import Asked, Had, Run, charts, check_answer, sweep_table, table
from bench.measure import MoverFailed

MB = 1_000_000


def run(chunk_bytes: int, first_byte_s: list[float | None]) -> Run:
    asked = Asked("topic", len(first_byte_s), 50 * MB, 90.0)
    had = Had(10.0, 250 * MB, first_byte_s, 7)
    return Run(chunk_bytes, asked, had, 40 * MB, 60 * MB, 12.0)


def answer(error: int, size: int) -> bytearray:
    body = struct.pack(">iiih5siihqi", 1, 0, 1, 5, b"topic", 1, 0, error, 9, size)
    return bytearray(struct.pack(">i", len(body) + size) + body)


def test_row_has_cost_per_consumer_and_promised_memory() -> None:
    row = table([run(16384, [0.25, 0.5])]).splitlines()[-1]
    conversion, consumers, *numbers = (cell.strip() for cell in row.split("|")[1:-1])
    assert (conversion, consumers) == ("lazy, 16 KiB", "2")
    bound = "52"  # idle, 8 MiB, and 1.5 MiB for each of two
    assert numbers == ["40", "**60**", bound, "10.00", "0.375", "0.500", "25.00", "12.0", "7"]


def test_consumers_without_a_byte_are_counted() -> None:
    row = table([run(2**31 - 1, [0.25, None, None])]).splitlines()[-1]
    assert row.count("none in 90") == 2, "neither the median nor the longest is a number"
    assert "eager" in row


def test_chunk_sizes_are_compared_in_table_and_chart() -> None:
    runs = [run(4096, [0.1]), run(1 << 20, [0.2])]
    assert [line.split("|")[1].strip() for line in sweep_table(runs).splitlines()[2:]] == ["4", "1024"]
    assert charts(runs).startswith("<svg")


@pytest.mark.parametrize(("error", "size"), [(6, 100), (0, 0)])
def test_responses_without_messages_do_not_count(error: int, size: int) -> None:
    check_answer(answer(0, 100))
    with pytest.raises(MoverFailed, match=rf"{error}.*{size}"):
        check_answer(answer(error, size))
