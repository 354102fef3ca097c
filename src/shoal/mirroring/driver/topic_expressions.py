"""
The topics that an operator's expressions select, found in a process of its own.

Python's ``re`` holds the interpreter while it matches, and an expression such as ``(a+)+b`` may match for
years. In the driver that would end leases and heartbeats. So a child process matches, for a second of CPU at
most.
A name without any special character needs no process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping

from ...errors import ConfigError
from ..model.topics import is_legal_name

__all__ = ["topics_of"]

#: Python starts in a tenth of a second, and on a busy machine in many. CPU time has a limit of its own.
_TIMEOUT_S = 30.0

_PROGRAM = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
expressions, topics = json.load(sys.stdin)
print(json.dumps([[topic for topic in topics if re.fullmatch(each, topic)] for each in expressions]))
"""


def topics_of(option: str, expressions: Iterable[str], topics: Collection[str]) -> dict[str, frozenset[str]]:
    """
    Return the topics that each expression selects.

    Args:
        option: The name of the command or option, for an error.
        expressions: Names, or regular expressions that match a whole name.
        topics: The topics of the mirror.

    Raises:
        ConfigError: An expression takes too long.

    """
    wanted = list(dict.fromkeys(expressions))
    found = {each: frozenset({each}.intersection(topics)) for each in wanted if is_legal_name(each)}
    others = [each for each in wanted if each not in found]
    if others and topics:
        found |= _match(option, others, topics)
    return {each: found.get(each, frozenset()) for each in wanted}


def _match(option: str, expressions: list[str], topics: Collection[str]) -> Mapping[str, frozenset[str]]:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([expressions, sorted(topics)]),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        lists = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"{option} '{', '.join(expressions)}' cannot be matched with the names of {len(topics)} topics "
            "within a second. Use a simpler expression"
        ) from error
    return {each: frozenset(names) for each, names in zip(expressions, lists, strict=True)}
