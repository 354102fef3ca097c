"""Batches for tests of `shoal verify`, as letters: the same letter is the same batch."""

from collections.abc import Iterable, Sequence

from shoal.records import PACKED_FINGERPRINT, Fingerprint, Record
from shoal.verify.decoded import Decoded
from shoal.verify.digest import Digest, DigestRun

RECORDS = 10


def stream(letters: Iterable[object], records: int = RECORDS, first_offset: int = 0) -> list[Digest]:
    """Lay out batches one behind the other, each of so many records."""
    batches = []
    offset = follows = first_offset
    for letter in letters:
        batches.append(one(letter, offset, records, follows))
        offset = follows = offset + records
    return batches


def one(
    letter: object,
    offset: int,
    records: int = RECORDS,
    follows: int | None = None,
    *,
    gap: int = 0,
    codec: int = 0,
    timestamp: int | None = None,
    undecoded: str | None = None,
    damage: str | None = None,
) -> Digest:
    """Make a batch; an altered copy of ``a`` is ``a'``: alike in all but the payload."""
    text = str(letter)
    time = sum(256**place * ord(char) for place, char in enumerate(text.rstrip("'")))
    crc = hash((text, codec)) & 0xFFFFFFFF
    fingerprint = Fingerprint(crc, 100 + len(text.rstrip("'")), records, time)
    _texts[fingerprint] = text
    return Digest(
        offset,
        offset + records,
        offset if follows is None else follows,
        gap,
        records,
        fingerprint,
        codec,
        time if timestamp is None else timestamp,
        undecoded,
        damage,
    )


def packed(batches: Sequence[Digest], most: int) -> list[DigestRun]:
    """Pack plain batches without gaps into runs of at most so many."""
    return [_run(batches[begin : begin + most]) for begin in range(0, len(batches), most)]


def _run(batches: Sequence[Digest]) -> DigestRun:
    rows = b"".join(
        PACKED_FINGERPRINT.pack(*each.fingerprint[:3], each.codec_id, each.fingerprint.base_timestamp)
        for each in batches
        if each.fingerprint
    )
    begin, end = batches[0], batches[-1].next_offset
    return DigestRun(
        rows, 0, len(batches), begin.base_offset, end, begin.follows, begin.gap_before, is_telling=True
    )


#: The letters of all batches that were made.
_texts: dict[Fingerprint, str] = {}


class Letters:
    """Decodes such batches: each record has its batch's letter and a number."""

    def decode(self, batch: Digest) -> Decoded:
        assert batch.fingerprint is not None
        text = _texts[batch.fingerprint]
        plain = text.rstrip("'")
        altered = len(text) - len(plain)
        return Decoded(
            [
                Record(offset, batch.fingerprint.base_timestamp, b"%a %d %03d" % (plain, number, altered))
                for number, offset in enumerate(range(batch.base_offset, batch.next_offset))
            ],
            None,
        )


DECODERS = Letters(), Letters()
