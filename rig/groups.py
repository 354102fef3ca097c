"""A consumer group's offsets, from Kafka's own tool: kafka-consumer-groups --describe."""

import subprocess
from dataclasses import dataclass

from rig.jars import tool_command

__all__ = ["DescribedPosition", "describe_group"]


class DescribeFailed(Exception):
    """The tool ended with an error, or printed nothing; the text has its output."""


@dataclass(frozen=True, slots=True)
class DescribedPosition:
    """A partition's line; None for a dash in the tool's output.

    Attributes:
        current_offset: The committed offset.
        log_end_offset: The partition's end, under read_uncommitted.
        lag: The difference.
    """

    current_offset: int | None
    log_end_offset: int | None
    lag: int | None


def describe_group(bootstrap: str, group: str) -> dict[tuple[str, int], DescribedPosition]:
    """Return a group's positions by topic and partition.

    Raises:
        DescribeFailed: The tool failed.
    """
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    options = ["--bootstrap-server", bootstrap, "--describe", "--group", group]
    result = subprocess.run(
        [*tool_command(tool), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split() for line in result.stdout.splitlines()]
    heads = [row for row in rows if row[:3] == ["GROUP", "TOPIC", "PARTITION"]]
    if result.returncode != 0 or not heads:
        raise DescribeFailed(f"kafka-consumer-groups of {group}:\n{result.stdout}\n{result.stderr}")
    lines = [dict(zip(heads[0], row, strict=False)) for row in rows if row[:1] == [group]]
    return {
        (line["TOPIC"], int(line["PARTITION"])): DescribedPosition(
            _number(line["CURRENT-OFFSET"]), _number(line["LOG-END-OFFSET"]), _number(line["LAG"])
        )
        for line in lines
    }


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)
