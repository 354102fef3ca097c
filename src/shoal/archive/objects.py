"""
The objects of a partition of an archive.

Listings are as old as the last look. Descriptions never change, so each is read once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from .description import DamagedObject, listed, read_small
from .names import ObjectName
from .segment import SegmentFacts
from .store import Store, StoredFile

__all__ = ["PartitionObjects"]

#: Objects overlap if a writer was late. More than so many in a row never do.
_LOOK_BACK = 16

#: Greater than each generation and attempt in a name.
_ANY = 10**10
_ANY_OFFSET = 2**63 - 1


class PartitionObjects:
    """
    The objects of a partition that count: those with a description. In the order of their offsets.

    Attributes:
        path: The directory of the partition.
        names: Their names, by base offset and generation.
        uncounted: Files without a description: a failed upload left them.

    """

    def __init__(self, store: Store, path: str) -> None:
        """Look at the directory."""
        self.path = path
        self.store = store
        self._facts: dict[ObjectName, SegmentFacts] = {}
        self.names: list[ObjectName] = []
        self.uncounted: list[str] = []
        self._sizes: dict[str, int] = {}
        self._highest_generation = -1
        self.look()

    def look(self) -> None:
        """Look at the directory again."""
        parsed = [
            (each, found) for each in listed(self.store, self.path) if (found := ObjectName.parse(each.name))
        ]
        counted = {name for _, (name, suffix) in parsed if suffix == "json"}
        self.names = sorted(counted)
        self.uncounted = sorted(each.name for each, (name, _) in parsed if name not in counted)
        self._sizes = {each.name: each.size for each, _ in parsed}
        self._highest_generation = max((name.generation for _, (name, _) in parsed), default=-1)

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the files of all objects that count, by their names."""
        files = (f"{name}.{suffix}" for name in self.names for suffix in ("json", "log", "txnindex"))
        return {each: self._sizes[each] for each in files if each in self._sizes}

    @property
    def next_generation(self) -> int:
        """A generation that is higher than that of any object, whether it counts or not."""
        return self._highest_generation + 1

    def where(self, name: ObjectName, suffix: str = "log") -> str:
        """Return the URL of a file, for messages."""
        return f"{self.store.url}/{self.path}/{name}.{suffix}"

    def facts(self, name: ObjectName) -> SegmentFacts:
        """
        Return the description of an object.

        Raises:
            DamagedObject: The description cannot be read, or the object was cut short.

        """
        known = self._facts.get(name)
        if known is not None:
            return known
        data = read_small(self.store, f"{self.path}/{name}.json")
        try:
            found = SegmentFacts.decode(data)
        except ValueError as error:
            raise DamagedObject(self.where(name, "json"), str(error)) from None
        if found.next_offset <= name.base_offset:
            raise DamagedObject(
                self.where(name, "json"), f"next_offset {found.next_offset} is not behind its name's"
            )
        size = self._sizes.get(f"{name}.log")
        if size is None:
            raise DamagedObject(self.where(name), "it is missing, and its description is there")
        if size != found.log_bytes:
            raise DamagedObject(
                self.where(name), f"it has {size:,} bytes, but its description {found.log_bytes:,}"
            )
        self._facts[name] = found
        return found

    def open(self, name: ObjectName, suffix: str, size: int) -> StoredFile:
        """
        Open a file of an object, whose description has its size.

        Raises:
            DamagedObject: The file is missing, or has another size.

        """
        where = self.where(name, suffix)
        try:
            file = self.store.open(f"{self.path}/{name}.{suffix}")
        except FileNotFoundError:
            raise DamagedObject(where, "it is missing, and its description is there") from None
        if file.size != size:
            file.close()
            raise DamagedObject(where, f"it has {file.size:,} bytes, but its description {size:,}")
        return file

    @property
    def end_offset(self) -> int | None:
        """The end of the last object; None without any."""
        if not self.names:
            return None
        return max(self.facts(name).next_offset for name in self._candidates(self.names[-_LOOK_BACK:]))

    def _candidates(self, names: Sequence[ObjectName]) -> list[ObjectName]:
        """
        Return the objects of a row that may reach furthest: the last one, and those of late writers.

        Each writer has a higher generation than those before it, and begins where they ended. So an object is
        of a late writer if one before it has a higher generation, or if the next one begins where it does.
        """
        highest = -1
        late, last = [], None
        for name, following in zip_longest(names, names[1:]):
            if name.generation < highest or (following and following.base_offset == name.base_offset):
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
        offset = self.names[0].base_offset if self.names else 0
        try:
            while (found := self.at(offset)) is not None:
                name, until = found
                facts = self.facts(name)
                if facts.index_bytes and self._sizes.get(f"{name}.txnindex") != facts.index_bytes:
                    raise DamagedObject(self.where(name, "txnindex"), "it is missing, or was cut short")
                offset = max(offset + 1, min(until, facts.next_offset))
        except DamagedObject as error:
            return error
        return None

    def note(self, name: ObjectName, facts: SegmentFacts) -> None:
        """Add an object that was written since the last look."""
        insort(self.names, name)
        self._facts[name] = facts
        self._highest_generation = max(self._highest_generation, name.generation)

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
        behind = bisect_right(self.names, (offset, _ANY, _ANY))
        before = self.names[max(0, behind - _LOOK_BACK) : behind]
        covering = [each for each in self._candidates(before) if self.facts(each).next_offset > offset]
        if not covering:
            return self._next(offset, behind)
        found = max(covering, key=lambda each: (each.generation, each.base_offset))
        return found, self._until(found, behind)

    def overlapping(self, name: ObjectName) -> Iterator[ObjectName]:
        """Yield the other objects that have some of an object's offsets: one of the two writers was late."""
        place, behind = bisect_left(self.names, name), self.facts(name).next_offset
        for each in self._candidates(self.names[max(0, place - _LOOK_BACK) : place]):
            if self.facts(each).next_offset > name.base_offset:
                yield each
        for each in self.names[place + 1 : place + 1 + _LOOK_BACK]:
            if each.base_offset < behind:
                yield each

    def _next(self, offset: int, place: int) -> tuple[ObjectName, int] | None:
        if place >= len(self.names):
            return None
        following = self.names[place]
        if self.facts(following).follows > offset:
            raise DamagedObject(
                self.where(following),
                f"no object has the offsets from {offset} to {self.facts(following).follows - 1}, which "
                "come before it",
            )
        return following, self._until(following, place + 1)

    def _until(self, name: ObjectName, place: int) -> int:
        later = self.names[place : place + _LOOK_BACK]
        return min(
            (
                each.base_offset
                for each in later
                if each.generation > name.generation and each.base_offset > name.base_offset
            ),
            default=_ANY_OFFSET,
        )
