"""The findings of ``shoal doctor``, as values."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Check", "Finding", "Verdict", "not_looked_at"]


class Check(enum.Enum):
    """The checks, in their order; the value is the name that operators see."""

    NAME = "name"
    CONNECTION = "connection"
    TLS = "TLS"
    LOGIN = "login"
    VERSIONS = "versions"
    ADVERTISED = "advertised listeners"
    CLOCK = "clock"
    TOPICS = "topics"
    GROUP = "group"
    ACLS = "ACLs"
    JAVA = "Java"
    SPARK = "Spark"
    DISK = "disk"


class Verdict(enum.Enum):
    """The result of a check."""

    GOOD = "ok"
    #: A mirror would run, but something needs attention.
    WARNING = "warning"
    #: A mirror would not start, or would stop.
    WRONG = "wrong"
    #: Nothing is known: the finding has the reason.
    NOT_LOOKED_AT = "not looked at"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    The result of one check.

    Attributes:
        subject: ``source``, ``destination``, ``mirror`` or ``machine``.
        text: A sentence: the object and its state. If something is wrong, the problem.
        remedy: The remedy; empty if none is needed, or if the text has it.

    """

    subject: str
    check: Check
    verdict: Verdict
    text: str
    remedy: str = ""


def not_looked_at(subject: str, checks: Iterable[Check], reason: str) -> list[Finding]:
    """Return the findings of checks that were impossible, for one reason."""
    return [Finding(subject, each, Verdict.NOT_LOOKED_AT, reason) for each in checks]
