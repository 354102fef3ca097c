"""Requests that proxies cut, hold up, or deliver late."""

from __future__ import annotations

import random

from rig.proxy import Disturbance, Step
from shoal.protocol.apis import ApiKey

from .arena import Side
from .events import Family, happens
from .setup import QUICK_REQUEST_TIMEOUT_MS, Age
from .world import ClustersWorld

__all__: list[str] = []

_STALLS_S = (0.3, 1.5, 6.0)

#: Longer than a request's timeout, by which the mirror gives it up.
_TOO_LONG_S = QUICK_REQUEST_TIMEOUT_MS / 1000 + 1.5

#: Of a mirror at each side, besides Produce and Fetch. There are few: one of the first is disturbed.
_OTHERS = {
    Side.SOURCE: (
        *(ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FIND_COORDINATOR),
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT),
    ),
    Side.DESTINATION: (
        *(ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.INIT_PRODUCER_ID),
    ),
}


def _cut(api: ApiKey, dice: random.Random, after: int, step: Step | None = None) -> Disturbance:
    return Disturbance(api, step or dice.choice(list(Step)), after, reset=dice.random() < 0.5)


def _cut_or_stalled(api: ApiKey, dice: random.Random, after: int) -> Disturbance:
    step, stall_s = dice.choice(list(Step)), dice.choice([0.0, *_STALLS_S])
    cut = step is Step.AFTER_REQUEST or not stall_s or dice.random() < 0.3
    return Disturbance(api, step, after, stall_s=stall_s, cut=cut, reset=dice.random() < 0.5)


@happens(Family.NETWORK, weight=4)
def produce_request_is_cut(world: ClustersWorld, dice: random.Random) -> None:
    """The connection ends before a Produce request, within it, or before its response."""
    world.disturb(Side.DESTINATION, _cut(ApiKey.PRODUCE, dice, world.a_moment(dice)))


@happens(Family.NETWORK, weight=3)
def acknowledgement_is_lost(world: ClustersWorld, dice: random.Random) -> None:
    """The destination has written a batch, and the mirror gets no response."""
    world.disturb(Side.DESTINATION, _cut(ApiKey.PRODUCE, dice, world.a_moment(dice), Step.BEFORE_RESPONSE))


@happens(Family.NETWORK, weight=3)
def produce_request_is_stalled(world: ClustersWorld, dice: random.Random) -> None:
    """A Produce request takes seconds, and then ends or not."""
    world.disturb(Side.DESTINATION, _cut_or_stalled(ApiKey.PRODUCE, dice, world.a_moment(dice)))


@happens(Family.NETWORK, weight=1)
def produce_request_arrives_late(world: ClustersWorld, dice: random.Random) -> None:
    """A Produce request arrives after the mirror has given it up."""
    # If brokers forget the producer meanwhile, no mirror can prevent that they take the request again.
    late = world.setup.age is Age.FRESH and world.setup.request_timeout_ms == QUICK_REQUEST_TIMEOUT_MS
    world.disturb(
        Side.DESTINATION,
        Disturbance(
            ApiKey.PRODUCE, Step.BEFORE_REQUEST, world.a_moment(dice), stall_s=_TOO_LONG_S, late=late
        ),
    )


@happens(Family.NETWORK, weight=2)
def fetch_is_cut_or_stalled(world: ClustersWorld, dice: random.Random) -> None:
    """A Fetch takes seconds, or its connection ends."""
    world.disturb(Side.SOURCE, _cut_or_stalled(ApiKey.FETCH, dice, dice.randint(0, 12)))


@happens(Family.NETWORK, weight=3)
def other_request_is_cut_or_stalled(world: ClustersWorld, dice: random.Random) -> None:
    """A request takes seconds that comes rarely, or its connection ends."""
    side = dice.choice([Side.SOURCE, Side.SOURCE, Side.DESTINATION])
    world.disturb(side, _cut_or_stalled(dice.choice(_OTHERS[side]), dice, dice.randint(0, 3)))


@happens(Family.GROUPS, weight=1)
def request_about_translated_offsets_is_cut(world: ClustersWorld, dice: random.Random) -> None:
    """The destination's coordinators get a request of the mirror, or not, and the connection ends."""
    apis = [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS, ApiKey.FIND_COORDINATOR]
    # Only the mirror commits to the destination through the proxies.
    world.disturb(Side.DESTINATION, _cut(dice.choice(apis), dice, dice.randint(0, 6)))
