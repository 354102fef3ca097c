"""The movers that are compared, in the order of the table."""

from bench.confluent_loop import CONFLUENT_LOOP
from bench.floor import Floor
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Mover

__all__ = ["MOVERS"]

MOVERS: dict[str, Mover] = {
    "mm2": MirrorMaker2(),
    "confluent": CONFLUENT_LOOP,
    # shoal goes here, twice: through Spark, and its copy loop alone (see bench.mover).
    "floor": Floor(),
}
