"""The page and the report in a real browser: the visible contents, and no request elsewhere."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.mirroring.model.follow_options import Follower
from shoal.mirroring.model.incidents import Incident, IncidentKind
from shoal.mirroring.model.progress import ClusterSilence, GroupsStatus, Summary
from shoal.mirroring.model.state import FollowRound
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About
from shoal.net.address import Address
from shoal.records import Codec
from shoal.timing import SYSTEM_CLOCK, Clock
from tests.browser import READABLE, Browser
from tests.mirroring.monitoring.page.page_reports import ServedPage, Told, expected, partition_of, report_of
from tests.world.clusters import TwoBrokers
from tests.world.faults import leads_elsewhere
from tests.world.history import ABORT
from tests.world.waiting import wait_until

SCHEMES = ["light", "dark"]

HOSTILE = """</script><script>document.title='taken'</script><img src=x onerror="document.title='taken'">"""


def watch(
    metrics: Metrics,
    report: Path | None = None,
    address: Address | None = None,
    *warnings: str,
    group: str = "shoal.west.east",
) -> ServedPage:
    about = About("west.example:9092", "east.example:9092", group, [*warnings])
    ui = address or Address("127.0.0.1", 0)
    return ServedPage(ui, str(report) if report else None, about, metrics)


def busy(clock: Clock = SYSTEM_CLOCK) -> Metrics:
    """A mirror of 1,200 partitions with all there can be to tell."""
    metrics = Metrics(clock=clock)
    rows = [
        partition_of(f"topic-{number // 24:02}", number % 24, end_offset=1500 + number)
        for number in range(1200)
    ]
    rows[3].update(stopped=[1000, "the destination refuses a batch: 10 (MESSAGE_TOO_LARGE)"])
    rows[7].update(waiting_for="broker 3 of the destination does not answer: timed out")
    rows[9].update(incidents=[["source-retention", "the source deleted records before they came", 200, True]])
    for task in range(4):
        metrics.apply(report_of(*rows[task::4], name=f"executor-{task}:4242"))
    follow(metrics)
    return metrics


def follow(metrics: Metrics, text: str = "") -> None:
    """Add a round over groups, configurations and ACLs, each with something to do."""
    metrics.groups = GroupsStatus(
        at=time.time() - 30,
        groups=7,
        offsets={"exact": 11, "ahead": 2, "at least": 0},
        actions={"unchanged": 11, "refused": 2},
        left_alone=("billing",),
        problems={f"shares{text}": f"share groups have no committed offsets{text}"},
        untranslated=1,
    )
    difference = f"topic orders: retention.ms=1000 at the source{text}"
    metrics.followed[Follower.CONFIGS] = FollowRound(time.time() - 200, False, 1, (difference,))
    metrics.followed[Follower.ACLS] = FollowRound(time.time() - 10, True, 0)


def url(shown: ServedPage) -> str:
    assert shown.url is not None
    return shown.url


def is_drawn(browser: Browser) -> bool:
    drawn = browser.script("return document.querySelectorAll('.chart polyline').length")
    return bool(drawn == 10)


# The live page


def test_page_shows_a_task_from_its_start_to_its_end(browser: Browser, brokers: TwoBrokers) -> None:
    orders, clicks = brokers.topic("orders", 2), brokers.topic("clicks")
    for history in (*orders, *clicks):
        history.plain(50, 70, codec=Codec.LZ4).transaction(3, ends=ABORT)
    clicks[0].holed(5, [2])
    ranges = brokers.ranges("orders", "clicks")
    metrics = expected(ranges)
    with watch(metrics) as shown:
        browser.open(url(shown))
        browser.wait_for_text("Starting", "#state")
        browser.wait_for_text("no task has reported yet", "#headline")
        brokers.run(ranges, Told(metrics))
        browser.wait_for_text("Up to date", "#state")
        browser.wait_for(is_drawn)
        assert browser.text("#title") == "west.example:9092 → east.example:9092"
        assert "group shoal.west.east" in browser.text("#about")
        assert re.search(r"records.*copied", browser.text("#headline"))
        assert "3 partitions" in browser.text("#partitions")
        assert {
            name for name in ("orders-0", "orders-1", "clicks-0") if name in browser.text("#partitions")
        } == {"orders-0", "orders-1", "clicks-0"}
        decisions = metrics.progress().decisions
        assert all(f"{name}\t{count}" in browser.text("#decisions") for name, count in decisions.items())
        assert all(topic in browser.text("#topics") for topic in ("orders", "clicks"))
        assert browser.complaints() == []
        assert {each.partition("?")[0] for each in browser.requests()} == {
            url(shown),
            url(shown) + "state.json",
        }


def test_stuck_partitions_and_reasons_are_first(browser: Browser, brokers: TwoBrokers) -> None:
    fine, foreign, gone = brokers.topic("topic", 3)
    for history in (fine, foreign, gone):
        history.plain(3)
    brokers.destination.log("topic", 1).store(memoryview(foreign.batch(1, base_offset=0)))
    leads_elsewhere(brokers.destination, "topic", 2)
    ranges = brokers.ranges()
    metrics = expected(ranges)
    control = Told(metrics)
    with watch(metrics) as shown:
        browser.open(url(shown))
        running = brokers.start(ranges, control)
        browser.wait_for_text("1 partition stopped", "#state")
        browser.wait_for_text("topic-2", "#waiting")
        reason = metrics.progress().stopped["topic-1"]
        assert reason in " ".join(browser.text("#stopped").split())
        positions = browser.script(
            "return ['stopped', 'waiting', 'tiles', 'charts'].map("
            "(id) => document.getElementById(id).getBoundingClientRect().top)"
        )
        assert positions == sorted(positions)
        control.request_stop()
        wait_until(lambda: not running.is_running)


def test_foreign_text_is_shown_and_never_executed(browser: Browser, tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.apply(
        report_of(
            partition_of("one", 0, stopped=[7, f"stopped {HOSTILE}"]),
            partition_of("two", 0, waiting_for=f"waiting {HOSTILE}"),
            partition_of("three", 0, incidents=[["source-reset", f"incident {HOSTILE}", None, True]]),
            partition_of(f"topic {HOSTILE}", 0),
            name=f"host {HOSTILE}",
        )
    )
    follow(metrics, f" text {HOSTILE}")
    report = tmp_path / "report.html"
    with watch(metrics, report, None, f"warning {HOSTILE}") as shown:
        for address in (url(shown), report.as_uri()):
            if address == report.as_uri():
                shown.end(ended(stopped={"one-0": HOSTILE}))
                shown.__exit__(None, None, None)
            browser.open(address)
            browser.wait_for(is_drawn)
            for section, word in (
                ("stopped", "stopped"),
                ("waiting", "waiting"),
                ("incidents", "incident"),
                ("warnings", "warning"),
                ("topics", "topic"),
                ("processes", "host"),
                ("consumer_groups", "text"),
                ("followed", "text"),
            ):
                assert f"{word} {HOSTILE}" in browser.text(f"#{section}"), section
            assert browser.script("return document.querySelectorAll('main img, main script').length") == 0
            assert "taken" not in browser.script("return document.title")
            assert browser.complaints() == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_sufficient_contrast(browser: Browser, scheme: str) -> None:
    with watch(busy(), None, None, "topic orders: the destination keeps less") as shown:
        browser.prefer(scheme)
        browser.open(url(shown))
        browser.wait_for(is_drawn)
        contrasts = browser.contrasts()
        assert len(contrasts) > 300
        assert contrasts[0][0] >= READABLE, contrasts[:5]
        assert (ground(browser) < 100) == (scheme == "dark")


def ground(browser: Browser) -> int:
    """Return how bright the page is, from 0 to 255."""
    colour = browser.script("return getComputedStyle(document.body).backgroundColor")
    return int(str(colour).strip("rgb()").split(",")[0])


@pytest.mark.parametrize("width", [320, 400])
def test_phone_shows_names_and_reasons_whole(browser: Browser, width: int) -> None:
    metrics = busy()
    with watch(metrics, group="shoal.6T2mNd54Q4ynrv90gIcyJQ.CC29KmyHThSI3pfkijjc3Q" * 2) as shown:
        browser.resize(width)
        browser.open(url(shown))
        browser.wait_for(is_drawn)
        assert browser.script("return document.documentElement.scrollWidth") <= width
        for section in ("stopped", "waiting", "incidents"):
            cells = browser.script(
                "return [...document.querySelectorAll(`#${arguments[0]} td.reason`)].map((cell) => {"
                " const {left, right} = cell.getBoundingClientRect();"
                " return [left, right, cell.scrollWidth <= cell.clientWidth] })",
                section,
            )
            assert cells
            for left, right, fits in cells:
                assert (left >= 0, right <= width, fits) == (True, True, True), section
                assert right - left > width / 2
        assert browser.script("return document.querySelector('#stopped table').getAttribute('role')")


def test_cluster_that_does_not_answer_makes_the_page_red(browser: Browser) -> None:
    metrics = busy()
    down = ClusterSilence("destination", 1_700_000_000.0, "Connection refused")
    with watch(metrics) as shown:
        browser.open(url(shown))
        browser.wait_for_text("1 partition stopped", "#state")
        metrics.set_clusters({"source": None, "destination": down})
        browser.wait_for_text("Destination down", "#state")
        assert "bad" in browser.script("return document.getElementById('state').className")
        sentence = (
            "The destination cluster does not answer since 2023-11-14 22:13:20 UTC: Connection refused."
        )
        assert browser.text("#headline") == sentence
        metrics.set_clusters({"source": None, "destination": None})
        browser.wait_for_text("1 partition stopped", "#state")


def test_groups_and_differences_have_the_age_of_their_last_round(browser: Browser, tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.apply(report_of(partition_of("topic", 0)))
    report = tmp_path / "report.html"
    with watch(metrics, report) as shown:
        browser.open(url(shown))
        browser.wait_for(is_drawn)
        for section in ("consumer_groups", "followed"):
            assert browser.script("return document.getElementById(arguments[0]).hidden", section)
        follow(metrics)
        browser.wait_for_text("7 groups, translated", "#consumer_groups")
        groups = browser.text("#consumer_groups")
        assert re.search(r"translated [\d.]+ s", groups)
        assert all(each in groups for each in ("11 exact", "2 ahead", "11 unchanged", "2 refused"))
        assert all(each in groups for each in ("left alone: billing", "shares: share groups"))
        followed = browser.text("#followed")
        assert "retention.ms=1000" in followed
        assert re.search(r"configurations: 1 .* 3 min", followed), followed
        assert re.search(r"ACLs, synced: no .* [\d.]+ s", followed), followed
        metrics.groups = replace(metrics.groups or GroupsStatus(), failure="no answer")
        browser.wait_for_text("The last translation failed: no answer", "#consumer_groups")
        assert browser.complaints() == []
        shown.end(ended())
    browser.open(report.as_uri())
    browser.wait_for_text("before the end; 11 exact", "#consumer_groups")
    assert "before the end" in browser.text("#followed")
    assert "retention.ms=1000" in browser.text("#followed")
    assert browser.complaints() == []


def test_1200_partitions_are_shown_on_demand_sorted_and_searched(browser: Browser) -> None:
    with watch(busy()) as shown:
        browser.open(url(shown))
        browser.wait_for_text("100 of 1,200 partitions", "#partitions")
        assert re.search(r"0.*1,198.*1.*waiting", browser.text("#tiles"))
        assert first_cells(browser, 2) == ["topic-00-3", "topic-00-7"]
        browser.click("#all")
        browser.wait_for(lambda browser: rows(browser) == 1200)
        browser.click("#all")
        browser.wait_for(lambda browser: rows(browser) == 100)
        sort = (
            "const buttons = document.querySelectorAll('#partitions th button');"
            "[...buttons].find((each) => each.textContent === arguments[0]).click()"
        )
        for heading, order in (
            ("Lag, records", ["topic-49-23", "topic-49-22"]),
            ("Lag, records", ["topic-00-0", "topic-00-1"]),
            ("Partition", ["topic-00-0", "topic-00-1"]),
            ("Partition", ["topic-49-23", "topic-49-22"]),
        ):
            browser.script(sort, heading)
            assert first_cells(browser, 2) == order
        for words, count in (("topic-07", 24), ("TOPIC-07-1 behind", 11), ("nothing", 0)):
            browser.script(
                "const search = document.getElementById('search'); search.value = arguments[0];"
                "search.dispatchEvent(new Event('input'))",
                words,
            )
            assert rows(browser) == count


def first_cells(browser: Browser, count: int) -> list[str]:
    """Return the texts of the first column of the first partitions."""
    found = browser.script(
        "const cells = document.querySelectorAll('#partitions tbody td:first-child');"
        "return [...cells].map((each) => each.innerText)"
    )
    return list(found)[:count]


def rows(browser: Browser) -> int:
    return int(browser.script("return document.querySelectorAll('#partitions tbody tr').length"))


def test_page_warns_while_the_mirror_does_not_answer(browser: Browser) -> None:
    with watch(busy()) as shown:
        browser.open(url(shown))
        browser.wait_for_text("1 partition stopped", "#state")
    browser.wait_for_text("Not answering", "#state")
    assert re.search(r"data.*below", browser.text("#headline"))
    with watch(Metrics(), None, shown.address):
        browser.wait_for_text("Starting", "#state")


def test_page_warns_if_no_task_reports(browser: Browser) -> None:
    passed_s = 0.0
    metrics = busy(Clock(wall=lambda: time.time() + passed_s))
    with watch(metrics) as shown:
        browser.open(url(shown))
        browser.wait_for_text("1 partition stopped", "#state")
        passed_s = 45.0
        browser.wait_for_text("Silent", "#state")
        assert re.search(r"task.*reported", browser.text("#headline"))


# The report


def ended(**changes: Any) -> Summary:
    known: dict[str, Any] = {
        "group": "shoal.west.east",
        "topics": {"topic": "topic"},
        "ended": "stopped by SIGTERM",
        "elapsed_s": 10.0,
        "python_cpu_s": 2.5,
        "jvm_cpu_s": 4.0,
        "partitions": 1200,
        "stopped": {},
        "warnings": (),
        "records": 1_200_000,
        "batches": 25_200,
        "bytes_in": 480_000,
        "bytes_out": 132_000_000,
        "decisions": {"copied": 24_000},
        "retries": 0,
    }
    return Summary(**{**known, **changes})


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_report_has_the_charts_and_sends_no_request(browser: Browser, report: Path, scheme: str) -> None:
    incident = Incident(IncidentKind.SOURCE_RETENTION, "deleted", 200, True, "topic-00-9")
    with watch(busy(), report) as shown:
        shown.end(ended(stopped={"topic-00-3": "refused"}, incidents=(incident,)))
    browser.prefer(scheme)
    browser.open(report.as_uri())
    browser.wait_for(is_drawn)
    assert browser.text("#charts h2") == "Lag, records"
    assert max(browser.script("return latest.history.worker_rss_bytes")) == 320_000_000
    assert "Ended with problems" in browser.text("#state")
    assert re.search(r"1,200,000.*25,200.*1.*1,200", browser.text())
    conversions = browser.text("#conversions")
    assert conversions.startswith("24,000 batches ")
    assert all(
        each in conversions for each in ("copied unchanged", "1,200 were decoded", "3,600 were dropped")
    )
    assert "95.2 %" in browser.text("#tiles")
    assert rows(browser) == 100
    assert browser.contrasts()[0][0] >= READABLE, browser.contrasts()[:5]
    assert browser.requests() == [report.as_uri()]
    assert browser.complaints() == []


def test_report_s_content_policy_forbids_requests(browser: Browser, report: Path) -> None:
    with watch(busy()) as elsewhere:
        with watch(busy(), report) as shown:
            shown.end(ended())
        browser.open(report.as_uri())
        browser.wait_for(is_drawn)
        outcome = browser.driver.execute_async_script(
            "const [url, done] = arguments;"
            "fetch(url, { mode: 'no-cors' }).then(() => done('answered'), () => done('refused'))",
            url(elsewhere) + "state.json",
        )
        assert outcome == "refused"
        assert any("Content Security Policy" in each for each in browser.complaints())


# With a token


def test_browser_with_token_shows_the_page(browser: Browser, tmp_path: Path) -> None:
    """A browser answers the challenge with the address's credentials; fetch refuses such addresses."""
    token = "0123456789abcdef0123456789abcdef"
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    about = About("west.example:9092", "east.example:9092", "shoal.west.east")
    ui = Address("127.0.0.1", 0)
    with ServedPage(ui, None, about, busy(), token_file=tmp_path / "token") as shown:
        assert shown.url is not None
        for wrong in (shown.url, shown.url.replace("//", "//me:wrong@")):
            browser.open(wrong)
            assert browser.text() == ""  # a password prompt would wait for ever
        browser.open(shown.url.replace("//", f"//me:{token}@"))
        browser.wait_for_text("1,198 behind")
        browser.wait_for(is_drawn)
        assert browser.complaints() == []
        assert token not in browser.script("return document.documentElement.outerHTML + document.cookie")
        # The browser keeps it for this server, so a bookmark without it is enough.
        browser.open(shown.url)
        browser.wait_for_text("1,198 behind")
        assert browser.complaints() == []
