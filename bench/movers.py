"""The movers to compare, in the order of the table."""

from bench.confluent_loop import ConfluentLoop
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Mover
from bench.shoal_movers import Code, Shoal, has_native, native, pure_python

__all__ = ["MIRROR_MAKER_2", "MOVER_NAMES", "codes", "movers", "usual_codes"]

MIRROR_MAKER_2 = MirrorMaker2()

#: The names for ``--movers``; the last is there with ``--before``.
MOVER_NAMES = ("mm2", "confluent", "shoal", "shoal-pure", "shoal-before")


def codes(before: Code | None) -> dict[str, Code]:
    """Return the codes of shoal to measure, by the suffix of their movers' names.

    Args:
        before: The shoal of another commit: then the peers are left out, and each path that this commit has
            is compared with it.
    """
    found = {"": native()} if has_native() else {}
    found["-pure"] = pure_python()
    if before is not None:
        found["-before"] = before
    return found


def usual_codes(before: Code | None) -> list[Code]:
    """Return this commit's shoal by its usual path, and that of the other commit, if any."""
    found = list(codes(None).values())[:1]
    return found if before is None else [*found, before]


def movers(before: Code | None) -> dict[str, Mover]:
    """Return the movers by their names for ``--movers``; see `codes`."""
    found: dict[str, Mover] = {}
    if before is None:
        found |= {"mm2": MIRROR_MAKER_2, "confluent": ConfluentLoop()}
    return found | {f"shoal{suffix}": Shoal(code) for suffix, code in codes(before).items()}
