"""Groups follow whatever happens to them, to their coordinators and to the mirror."""

from __future__ import annotations

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.sync.report import Action
from shoal.protocol.apis import ApiKey
from tests.mirroring.sync.conftest import Groups, row_of
from tests.mirroring.sync.test_groups import mixed
from tests.world.clusters import recreate
from tests.world.faults import lists_no_groups
from tests.world.history import History

# Coordinators that move


def test_rounds_without_a_listing_of_the_source_translate_the_known_groups(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    sync.round(groups.topics, apply=True)
    groups.commit("source", "g", 14)
    for action in (Action.WRITTEN, Action.UNCHANGED):
        lists_no_groups(groups.two.source)
        row = row_of(sync.round(groups.topics, apply=True))
        assert (row.committed, row.action) == (14, action)


def test_round_of_a_group_that_the_principal_may_not_describe_names_the_remedy(groups: Groups) -> None:
    """Brokers do not list such a group."""
    mixed(groups)
    groups.commit("source", "g", 4)
    destination = groups.two.destination
    lists_no_groups(destination)
    for api in (ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT):
        destination.faults.add(api, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    row = row_of(groups.round())
    assert (row.action, "Grant READ" in row.detail) == (Action.REFUSED, True)


# Topics that are created again


def test_round_of_a_destination_topic_that_was_created_again_waits_for_the_mirror(groups: Groups) -> None:
    groups.two = groups.two.going_on(IncidentKind.DESTINATION_LOSS)
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.WRITTEN
    recreate(groups.two.destination, with_offsets=True)
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.NO_POSITION
    assert groups.committed("destination", "g") is None
    log = groups.two.source.log("topic")
    history = History(log)
    history.plain(3)
    groups.two.run()
    groups.commit("source", "h", log.log_end_offset - 2)
    report = sync.round(groups.topics, apply=True)
    assert row_of(report, "g").action is Action.WRITTEN
    row = row_of(report, "h")
    assert (row.translated, row.action) == (
        groups.two.destination.log("topic").log_end_offset - 2,
        Action.WRITTEN,
    )


# Many groups


def test_many_groups_take_few_requests_and_no_commits_if_nothing_changed(groups: Groups) -> None:
    mixed(groups)
    names = [f"g{number:04}" for number in range(320)]
    for name in names:
        groups.commit("source", name, 4)
    sync = groups.sync()
    report = sync.round(groups.topics, apply=True)
    assert report.counts == {"committed": len(names), "exact": len(names)}
    counted = {
        (side, api): getattr(groups.two, side).faults.add(api, times=None)
        for side in ("source", "destination")
        for api in (ApiKey.LIST_GROUPS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
    }
    assert sync.round(groups.topics, apply=True).counts == {"unchanged": len(names), "exact": len(names)}
    for side in ("source", "destination"):
        assert counted[side, ApiKey.LIST_GROUPS].hits == 1
        assert counted[side, ApiKey.FIND_COORDINATOR].hits == 0
        assert counted[side, ApiKey.OFFSET_FETCH].hits <= len(names) // 4 + 2
        assert counted[side, ApiKey.OFFSET_COMMIT].hits == 0
