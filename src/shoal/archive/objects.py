"""
The objects of a partition of an archive.

Listings are as old as the last look. Descriptions never change, so each is read once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ..result_file import is_temporary
from .description import DamagedObject, listed, read_json
from .files import Store, StoredFile
from .names import LARGEST_GENERATION, ObjectName, UnsafeName
from .segment import SegmentFacts

__all__ = ["PartitionObjects", "Place"]

#: Objects overlap if a writer was late. More than so many in a row never do.
_LOOK_BACK = 16

#: Greater than each generation and attempt in a name.
_ANY = 10**10
_ANY_OFFSET = 2**63 - 1

_MISSING = "it is missing, and its description is there"


@dataclass(slots=True)
class Place:
    """
    Where a writer adds objects to a partition. It has no list of those that are there, perhaps thousands.

    Attributes:
        store: The archive's directory.
        path: The directory of the partition.
        last: The description of the object that reaches furthest at the beginning; None without any.
        highest_generation: The highest one of any object there, whether it counts or not.

    """

    store: Store
    path: str
    last: SegmentFacts | None
    highest_generation: int

    @property
    def next_generation(self) -> int:
        """
        A generation that is higher.

        Raises:
            UnsafeName: A name has the largest one, so that nothing can be higher.

        """
        if self.highest_generation >= LARGEST_GENERATION:
            raise UnsafeName(
                f"{self.store.url}/{self.path}: a file's name has the generation {self.highest_generation}, "
                "and no name has a higher one. Shoal gives no file such a name: move it away"
            )
        return self.highest_generation + 1


class PartitionObjects:
    """
    The objects of a partition that count: those with a description. In the order of their offsets.

    Attributes:
        path: The directory of the partition.
        names: Their names, by base offset and generation.
        uncounted: Files without a description or with a temporary name: a failed upload or a killed task left
            them.

    """

    def __init__(self, store: Store, path: str) -> None:
        """Look at the directory."""
        self.path = path
        self.store = store
        self._facts: dict[ObjectName, SegmentFacts] = {}
        self.look()

    def look(self) -> None:
        """Look at the directory again."""
        entries = listed(self.store, self.path)
        parsed = [(each, found) for each in entries if (found := ObjectName.parse(each.name))]
        counted = {name for _, (name, suffix) in parsed if suffix == "json"}
        self.names: list[ObjectName] = sorted(counted)
        without_json = [each.name for each, (name, _) in parsed if name not in counted]
        temporary = [each.name for each in entries if is_temporary(each.name)]
        self.uncounted: list[str] = sorted(without_json + temporary)
        self._sizes = {each.name: each.size for each, _ in parsed}
        self._highest_generation = max((name.generation for _, (name, _) in parsed), default=-1)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the files of all objects that count, by their names."""
        files = (f"{name}.{suffix}" for name in self.names for suffix in ("json", "log", "txnindex"))
        return {each: self._sizes[each] for each in files if each in self._sizes}

    @property
    def place(self) -> Place:
        """Where a writer continues behind them."""
        return Place(self.store, self.path, self.last, self._highest_generation)

    def where(self, name: ObjectName, suffix: str = "log") -> str:
        """Return the URL of a file, for messages."""
        return f"{self.store.url}/{self.path}/{name}.{suffix}"

    def facts(self, name: ObjectName) -> SegmentFacts:
        """
        Return the description of an object.

        Raises:
            DamagedObject: The description cannot be read, or the object was cut short.

        """
        if name not in self._facts:
            found = read_json(SegmentFacts, self.store, f"{self.path}/{name}.json")
            if found.next_offset <= name.base_offset:
                reason = f"next_offset {found.next_offset} is not behind its name's"
                raise DamagedObject(self.where(name, "json"), reason)
            self._check_size(name, "log", found.log_bytes)
            self._facts[name] = found
        return self._facts[name]

    def _check_size(self, name: ObjectName, suffix: str, size: int) -> None:
        found = self._sizes.get(f"{name}.{suffix}")
        if found is None:
            raise DamagedObject(self.where(name, suffix), _MISSING)
        if found != size:
            reason = f"it has {found:,} bytes, but its description {size:,}"
            raise DamagedObject(self.where(name, suffix), reason)

    def open(self, name: ObjectName, suffix: str) -> StoredFile:
        """
        Open a file of an object.

        Raises:
            DamagedObject: The file is missing.

        """
        try:
            return self.store.open(f"{self.path}/{name}.{suffix}")
        except FileNotFoundError:
            raise DamagedObject(self.where(name, suffix), _MISSING) from None

    @property
    def last(self) -> SegmentFacts | None:
        """The description of the object that reaches furthest; None without any."""
        names = self._candidates(self.names[-_LOOK_BACK:])
        return max(map(self.facts, names), key=lambda each: each.next_offset, default=None)

    @property
    def end_offset(self) -> int | None:
        """The end of the last object; None without any."""
        last = self.last
        return None if last is None else last.next_offset

    def _candidates(self, names: Sequence[ObjectName]) -> list[ObjectName]:
        """
        Return the objects of a row that may reach furthest: the last one, and those of late writers.

        Each writer has a higher generation than those before it, and begins where they ended. So an object is
        of a late writer if one before it has a higher generation, or if the next one begins where it does.
        """
        highest = -1
        late, last = [], None
        for name, following in zip_longest(names, names[1:]):
            if name.generation <= highest or (following and following.base_offset == name.base_offset):
                late.append(name)
            else:
                last = name
            highest = max(highest, name.generation)
        return late if last is None else [*late, last]

    def first_problem(self) -> DamagedObject | None:
        """
        Return the first damage that descriptions and sizes show; None without one.

        Each description is read, but no batch.
        """
        try:
            for name, _, _ in self.pieces(self.names[0].base_offset if self.names else 0, _ANY_OFFSET):
                if size := self.facts(name).index_bytes:
                    self._check_size(name, "txnindex", size)
        except DamagedObject as error:
            return error
        return None

    @property
    def start_offset(self) -> int | None:
        """The first offset that the archive has; None without any object."""
        if not self.names:
            return None
        first = self.names[0]
        return max(first.base_offset, min(self.facts(first).follows, self.facts(first).next_offset - 1))

    def at(self, offset: int) -> tuple[ObjectName, int] | None:
        """
        Return the object that has an offset, or the next one; and the offset at which another begins.

        Where objects overlap, the one with the higher generation counts.

        Returns:
            None at the end, or behind it.

        Raises:
            DamagedObject: An object is missing: the next one does not follow on this offset.

        """
        place = bisect_right(self.names, (offset, _ANY, _ANY))
        if covering := self._having(offset, offset + 1):
            found = max(covering, key=lambda each: (each.generation, each.base_offset))
        elif place == len(self.names):
            return None
        else:
            found = self.names[place]
            if (begin := self.facts(found).follows) > offset:
                reason = f"no object has the offsets from {offset} to {begin - 1}, which come before it"
                raise DamagedObject(self.where(found), reason)
        later = (
            each.base_offset
            for each in self.names[place : place + _LOOK_BACK]
            if each.generation > found.generation and each.base_offset > found.base_offset
        )
        return found, min(later, default=_ANY_OFFSET)

    def pieces(self, offset: int, end: int) -> Iterator[tuple[ObjectName, int, int]]:
        """Yield the objects that are read from an offset up to an end, each with its part of the offsets."""
        while offset < end and (found := self.at(offset)) is not None:
            name, until = found
            begin, offset = offset, max(offset + 1, min(until, self.facts(name).next_offset, end))
            yield name, begin, offset

    def overlapping(self, name: ObjectName) -> list[ObjectName]:
        """Return the other objects that have some of an object's offsets: one of two writers was late."""
        found = self._having(name.base_offset, self.facts(name).next_offset)
        return [each for each in found if each != name]

    def _having(self, first: int, end: int) -> list[ObjectName]:
        """Return the objects that have some of the offsets from the first up to an end."""
        place = bisect_right(self.names, (first, _ANY, _ANY))
        before = self._candidates(self.names[max(0, place - _LOOK_BACK) : place])
        later = self.names[place : place + _LOOK_BACK]
        return [
            *(each for each in before if self.facts(each).next_offset > first),
            *(each for each in later if each.base_offset < end),
        ]
