"""The movers to compare, in the order of the table."""

from bench.confluent_loop import CONFLUENT_LOOP
from bench.floor import Floor
from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Mover
from bench.shoal_movers import COPY_LOOP, SHOAL

__all__ = ["MOVERS"]

MOVERS: dict[str, Mover] = {
    "mm2": MirrorMaker2(),
    "confluent": CONFLUENT_LOOP,
    "shoal": SHOAL,
    "loop": COPY_LOOP,
    "floor": Floor(),
}
