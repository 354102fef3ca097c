"""The results of a campaign, as lines while it runs and as tables at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .attackers import End
from .client_campaign import ClientResult
from .cluster_campaign import ClusterResult
from .command_campaign import CommandResult

__all__ = ["client_table", "cluster_line_of", "cluster_table", "command_line_of", "line_of"]

_MEGABYTE = 1 << 20


def line_of(result: ClientResult) -> str:
    """Return one line about a server under attack so far."""
    ends = ", ".join(f"{count:,} {end.value}" for end, count in result.ends.items())
    return (
        f"{result.target} step {result.steps}: {result.requests:,} requests "
        f"({result.requests / max(result.seconds, 0.001):.0f}/s; {ends}), {result.bombs} bombs, "
        f"longest answer {result.longest_s:.1f} s, honest client {result.served} times in at most "
        f"{result.longest_served_s:.1f} s, peak {result.peak_bytes // _MEGABYTE} MB, "
        f"{result.most_threads} threads and {result.most_sockets} sockets, without a CPU "
        f"for {result.without_cpu_s:.0f} of {result.seconds:.0f} s, {len(result.problems)} problems"
    )


def client_table(results: Sequence[ClientResult], seed: int) -> str:
    """Return a table of hostile clients, in Markdown."""
    lines = [
        "| server | seed | requests | answered | refused | left waiting | bombs | other clients | hung "
        "| honest client, longest | peak | threads, sockets | problems |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.target} | {seed} | {each.requests:,} | {each.ends[End.ANSWERED]:,} "
        f"| {each.ends[End.HUNG_UP]:,} | {each.ends[End.WAITED]:,} | {each.bombs:,} | {each.crowd:,} "
        f"| {each.ends[End.HUNG]:,} | {each.served:,} times, {each.longest_served_s:.1f} s "
        f"| {each.peak_bytes // _MEGABYTE} MB | {each.most_threads}, {each.most_sockets} "
        f"| {len(each.problems)} |"
        for each in results
    ]
    return "\n".join(lines) + "\n"


def cluster_line_of(result: ClusterResult) -> str:
    """Return one line about a lying cluster so far."""
    return (
        f"cluster: {result.trials} trials in {result.seconds:.0f} s, {result.told.total():,} lies in "
        f"{result.told.answers:,} answers, longest {result.longest_s:.1f} s, "
        f"peak {result.peak_bytes // _MEGABYTE} MB, {len(result.problems)} problems"
    )


def cluster_table(result: ClusterResult, seed: int) -> str:
    """Return tables of a lying cluster, in Markdown: of its victims, and of its lies."""
    victims: Counter[str] = Counter()
    for (victim, _), count in result.ends.items():
        victims[victim] += count
    lines = ["| lied to | trials | how they ended |", "|---|---|---|"]
    for victim, count in victims.most_common():
        ends = [f"{number} {how}" for (who, how), number in result.ends.most_common() if who == victim]
        lines.append(f"| {victim} | {count} | {', '.join(ends)} |")
    kinds: Counter[str] = Counter()
    for (kind, _), count in result.told.items():
        kinds[kind] += count
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return "\n".join(["", *lines, "", f"Seed {seed}; {cluster_line_of(result)}; lies: {told}", ""])


def command_line_of(result: CommandResult) -> str:
    """Return one line about commands under attack so far."""
    ends = ", ".join(f"{count} {command}: {code}" for (command, code), count in result.ends.items())
    return (
        f"commands: {result.runs} runs (exit codes: {ends}), {result.told.total():,} lies in "
        f"{result.told.answers:,} answers, longest {result.longest_s:.0f} s, "
        f"largest process {result.peak_bytes // _MEGABYTE} MB, {len(result.problems)} problems"
    )
