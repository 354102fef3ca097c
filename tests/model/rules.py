"""The rules of the copy path, each of which can be switched off, and the bounds of a search."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from .clusters import FOREIGN, GAP, Attempt, Events, Group, Log, Source, State
from .position import Record, Run

__all__ = ["Bounds", "Protocol", "Rule"]


class Rule(enum.Enum):
    """Rules that the mirror may keep; docs/architecture.md has the failure without each."""

    PLAN = "a batch goes out only if the committed map leads to its records"
    EXACT = "the map leads to each record, not only to the first one and the end of a batch"
    KEEP = "after an alignment, the runs behind the log's end stay in the map until a fetch contradicts them"
    LAST = "look up the last copied record, not the log's end, where the next run may begin"
    QUIET = "an alignment begins with no commit under way"
    DOUBT = "a map of unknown outcome, too, leads to what goes out, until a new generation ends the doubt"
    FENCE = "an attempt that takes over begins with a new generation"
    BREAK = "a newer source leader epoch begins a run"
    EPOCH = "the source's epoch of the last copied record must not end before it"
    LEADER = "a record without an epoch counts as one of its leader's epoch at the fetch"
    LEASE = "an attempt sends only until the next one begins"
    TAIL = "the last batch must be ours, and its sequence must be its offset"
    WATERMARK = "do not believe a log's end that the high watermark has not reached"
    FIRST_ALONE = "the first request after an alignment goes alone, until it is acknowledged"
    ONE_IN_FLIGHT = "one request in flight, if the broker may forget its producers"
    IDENTITY = "go on with the producer id of the committed position"


@dataclass(frozen=True)
class Bounds:
    """The bounds of a search.

    Attributes:
        source: The source at the start: ``r`` is a record, and ``-`` an offset without one.
        events: How often each event may happen.
        start: The source offset from which a copy begins.
        emptied: Number of other programs' records that the copy's retention deleted before the start.
        late: Whether requests of closed connections may arrive later.
        queue: Number of batches that an attempt may plan ahead.
        compares_with_end: Whether the broker compares each sequence with the log's end.
        without_epochs: Whether batches at the source do not say their epoch, as those of old formats.
    """

    source: str
    events: Events = field(default_factory=Events)
    start: int = 0
    emptied: int = 0
    late: bool = False
    queue: int = 2
    compares_with_end: bool = False
    without_epochs: bool = False


@dataclass(frozen=True)
class Protocol:
    """The rules and the bounds of one search."""

    rules: frozenset[Rule]
    bounds: Bounds

    def keeps(self, rule: Rule) -> bool:
        return rule in self.rules

    @property
    def initial(self) -> State:
        bounds = self.bounds
        slots = tuple(0 if slot == "r" else GAP for slot in bounds.source)
        emptied = bounds.emptied
        log = Log((FOREIGN,) * emptied, replicated=emptied, deleted=emptied, forgotten=emptied)
        return State(Source(slots), log, Group(), (Attempt(),), (), bounds.events)

    @property
    def replicates(self) -> bool:
        """Whether the follower is a step of its own; without elections it makes no difference."""
        return bool(self.bounds.events.copy_elections or self.bounds.events.unclean_copy_elections)

    def claims(self, destination: int, records: tuple[Record, ...], leader_epoch: int) -> tuple[Run, ...]:
        """Return where the map has to lead before a batch goes out that a leader has sent in this epoch."""
        if self.bounds.without_epochs:
            epoch = leader_epoch if self.keeps(Rule.LEADER) else -1
            records = tuple(record._replace(epoch=epoch) for record in records)
        runs = tuple(Run(destination + number, *record) for number, record in enumerate(records))
        if self.keeps(Rule.EXACT):
            return runs
        last = runs[-1]
        return runs[0], Run(last.destination + 1, last.source + 1, last.epoch)

    def happened(self, state: State, event: str) -> bool:
        before: int = getattr(self.bounds.events, event)
        now: int = getattr(state.left, event)
        return now < before
