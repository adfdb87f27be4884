"""The console in a browser: what an operator sees while members die, with a keyboard, in light and dark; and what an attacker does not get.

All tests here share one Chromium and one cluster of four members in processes of their own; the last one kills one of them.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Browser, Page, expect, sync_playwright

from support.processes import Cluster, free_port

TOKEN = "a token that nobody guesses"
NASTY = "<img src=x onerror=window.hurt=1><script>window.hurt=2</script>'\"&"
VIEWS = ("cluster", "partitions", "maps", "story", "safety")
SHOWS = {
    "cluster": ".ring",
    "partitions": ".cells a >> nth=270",
    "maps": "table a >> nth=0",
    "story": ".time-line",
    "safety": ".judgement >> nth=0",
}

PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

HIDDEN = """() => [...document.querySelectorAll(".scroll > .stacked, .time-line")]
    .filter(each => each.parentElement.scrollWidth > each.parentElement.clientWidth + 1).map(each => each.className.baseVal || each.className)"""
"""What of tables and time lines stands outside of its place."""
OVERLAPPING = """() => { const boxes = [...document.querySelectorAll(".ring .name, .ring .small")].map(each => [each.textContent, each.getBoundingClientRect()]);
    return boxes.flatMap(([said, one], i) => boxes.slice(i + 1).filter(([, other]) => one.left < other.right && other.left < one.right
        && one.top < other.bottom - 3 && other.top < one.bottom - 3).map(([other]) => `${said} and ${other}`)); }"""
"""Names in the ring that cover each other."""
ROWS = """(which) => new Set([...document.querySelectorAll(which)].map(each => { const box = each.getBoundingClientRect();
    return Math.round((box.top + box.bottom) / 40); })).size"""
"""In how many rows these stand."""
CUT_OFF = """() => [...document.querySelectorAll(".tile p, .tile .ends span")].filter(each => { const text = document.createRange();
    text.selectNodeContents(each); const tile = each.closest(".tile"), edge = parseFloat(getComputedStyle(tile).paddingRight);
    return text.getBoundingClientRect().right > tile.getBoundingClientRect().right - edge + 1 || each.scrollWidth > each.clientWidth + 1 && each.clientWidth; })
    .map(each => each.textContent)"""
"""What in tiles has no room."""
FAINT = """() => [...document.querySelectorAll(".ring text")].filter(each => { for (let at = each; at; at = at.parentElement)
    if (getComputedStyle(at).opacity !== "1") return true; }).map(each => each.textContent)"""
"""Words in the ring that are paler than others."""
TELLS = """window.EventSource = class extends EventTarget {
    constructor() { super(); this.again = setInterval(() => { for (const [name, data] of Object.entries(told))
        this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) })); }, 200); }
    close() { clearInterval(this.again); } };"""
"""A stream that goes on and tells the same again and again: `told`."""

pytestmark = pytest.mark.timeout(240)


class Served(NamedTuple):
    cluster: Cluster
    ports: list[int]
    """The HTTP ports of the members, in the order of `cluster.members`: the last one may change settings."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("console")
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    cluster, ports = Cluster(folder), []
    try:
        for may_change in ("false", "false", "false", "true"):
            port = free_port()
            given = (
                "--http-port",
                str(port),
                "--set",
                f"http_token_file={token}",
                "--set",
                f"http_allow_changes={may_change}",
            )
            cluster.start(options=given, wait=False)
            ports.append(port)
        cluster.wait_views()
        with cluster.client() as grid:
            grid.map("flights").put_all({f"UA{number}": {"price": number} for number in range(200)})
            grid.map(NASTY).put(NASTY, {"note": NASTY})
        cluster.wait_redundant()
        yield Served(cluster, ports)
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not there: apt-get install chromium")
    with sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=60_000
        )
        yield found
        found.close()


class Opened(NamedTuple):
    page: Page
    complaints: list[str]
    """Errors and warnings of the browser: of scripts, and of what the content security policy has refused."""

    def show(self, view: str) -> None:
        self.page.evaluate("view => location.hash = `#/${view}`", view)
        self.page.wait_for_selector(SHOWS[view.partition("/")[0]])


def opened(browser: Browser, port: int, **options: Any) -> Opened:
    context = browser.new_context(http_credentials={"username": "operator", "password": TOKEN}, **options)
    page, complaints = context.new_page(), []  # type: Page, list[str]
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_selector(SHOWS["cluster"])
    return Opened(page, complaints)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_each_view_is_usable_by_all_without_serious_findings(served: Served, browser: Browser, colours: Any) -> None:
    seen = opened(
        browser, served.ports[3], color_scheme=colours, viewport={"width": 1300, "height": 900}, bypass_csp=True
    )
    seen.page.add_script_tag(path=AXE_FILE_PATH)  # which the policy forbids, so it is left out here, and only here
    for view in (*VIEWS, "maps/flights", "partitions/7"):
        seen.show(view)
        if view == "maps/flights":
            seen.page.get_by_role("button", name="Change…").click()
        # One cell is as another, and colours are all that is different in the dark.
        found = seen.page.evaluate(
            "rules => axe.run({exclude: ['.cell:nth-child(n+12)']}, rules)",
            {"runOnly": ["color-contrast"]} if colours == "dark" else {},
        )
        serious = [
            (view, each["id"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert len(found["passes"]) > (0 if colours == "dark" else 10)
    seen.page.context.close()


@pytest.mark.parametrize(("wide", "high"), [(390, 844), (1024, 768), (1200, 750), (1600, 900)])
def test_each_view_fits_a_phone_and_a_screen_and_keeps_the_policy(
    served: Served, browser: Browser, wide: int, high: int
) -> None:
    seen = opened(browser, served.ports[0], viewport={"width": wide, "height": high})
    for view in (*VIEWS, "maps/flights", "partitions/7"):
        seen.show(view)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= wide, view
        assert seen.page.evaluate(HIDDEN) == [], view
    seen.show("cluster")
    expect(seen.page.locator(".tile")).to_have_count(6)
    expect(seen.page.locator(".ring .name")).to_have_count(4)
    assert seen.page.evaluate(OVERLAPPING) == []
    assert seen.page.evaluate(CUT_OFF) == []
    if wide > 1100:
        assert [seen.page.evaluate(ROWS, each) for each in ("header > *", ".tile")] == [1, 1]
    assert seen.complaints == []
    refused = seen.page.evaluate(
        "() => new Promise(done => { addEventListener('securitypolicyviolation', e => done(e.violatedDirective));"
        " const made = document.createElement('img'); made.src = 'http://127.0.0.2:1/x.png'; document.body.append(made); })"
    )
    assert refused == "img-src", "the policy is in force"
    seen.page.context.close()


def test_what_users_store_is_shown_as_text(served: Served, browser: Browser) -> None:
    seen = opened(browser, served.ports[0])
    seen.show("maps")
    link = seen.page.get_by_role("link", name=NASTY)
    expect(link).to_have_text(NASTY)
    link.click()
    seen.page.get_by_role("button", name="Look", exact=True).click()
    entry = seen.page.locator(".entries tbody tr")
    expect(entry.locator("th")).to_have_text(NASTY)
    expect(entry.locator("td").first).to_contain_text("<script>window.hurt=2</script>")
    seen.page.get_by_role("textbox", name="Condition").fill(NASTY)
    seen.page.get_by_role("button", name="Look", exact=True).click()
    expect(seen.page.locator("#look-problem")).to_contain_text("condition")
    assert seen.page.evaluate("window.hurt") is None
    assert [each for each in seen.complaints if "400" not in each] == []
    seen.page.context.close()


def test_a_map_is_looked_into_page_by_page_and_copied(served: Served, browser: Browser) -> None:
    seen = opened(browser, served.ports[0], permissions=["clipboard-read", "clipboard-write"])
    seen.show("maps/flights")
    seen.page.get_by_role("button", name="Look", exact=True).click()
    rows = seen.page.locator(".entries tbody tr")
    expect(rows).to_have_count(100)
    first = rows.first.locator("th code").inner_text()
    rows.first.get_by_role("button", name="Copy value").click()
    expect(rows.first.get_by_role("button", name="Copy value")).to_have_text("✓")
    assert json.loads(seen.page.evaluate("navigator.clipboard.readText()")) == {"price": int(first.removeprefix("UA"))}
    seen.page.get_by_role("button", name="Next page").click()
    expect(seen.page.locator(".pages")).to_contain_text("entries 101 to 200")
    expect(rows.first.locator("th code")).not_to_have_text(first)
    seen.page.get_by_role("button", name="Copy all shown").click()
    expect(seen.page.get_by_role("button", name="Copy all shown")).to_contain_text("✓")
    copied = [json.loads(line) for line in seen.page.evaluate("navigator.clipboard.readText()").splitlines()]
    assert len(dict(copied)) == 100
    seen.page.get_by_role("button", name="Page before").click()
    expect(rows.first.locator("th code")).to_have_text(first)
    seen.page.context.close()


def test_all_is_reached_with_a_keyboard(served: Served, browser: Browser) -> None:
    page = opened(browser, served.ports[0]).page
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        page.wait_for_selector(SHOWS[view])
        expect(page.locator("nav [aria-current]")).to_contain_text(view.capitalize())
    page.keyboard.press("1")
    page.locator(".link-group").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="What if it were cut?").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".what-if")).to_contain_text("FULL CUT: both sides continue")
    expect(page.locator(".what-if .facts")).to_have_count(2)
    expect(page.locator(".dot.removed")).to_have_count(1)
    page.keyboard.press("2")
    page.locator(".cell").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Partition 2")).to_be_visible()
    expect(page.locator("section[aria-label='Partition 2']")).not_to_contain_text("asking all members")
    page.keyboard.press("4")
    page.get_by_label("Time up to which the story is shown").focus()
    page.keyboard.press("PageDown")
    expect(page.get_by_role("heading", name=re.compile("Story as of"))).to_be_visible()
    page.context.close()


def test_settings_are_changed_where_that_is_allowed_alone(served: Served, browser: Browser) -> None:
    page = opened(browser, served.ports[0]).page
    page.evaluate("location.hash = '#/maps/flights'")
    expect(page.locator("#settings-title ~ p")).to_contain_text("http_allow_changes")
    expect(page.get_by_role("button", name="Change…")).to_have_count(0)
    status = page.evaluate(
        "fetch('/console/settings', {method: 'POST', headers: {'content-type': 'application/json'},"
        " body: JSON.stringify({map: 'flights', max_entries: 7})}).then(found => found.status)"
    )
    assert status == 403
    page.context.close()
    page = opened(browser, served.ports[3]).page
    page.evaluate("location.hash = '#/maps/flights'")
    page.get_by_role("button", name="Change…").click()
    page.get_by_label("Entries at most").fill("5000")
    page.get_by_role("button", name="Change the settings of flights").click()
    expect(page.get_by_text("the cluster has the new settings")).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("5,000")
    page.context.close()


def cluster_of(names: list[str]) -> dict[str, Any]:
    """What a console is told of a cluster of these members, the first of which is the master and says it."""
    member = {
        "zone": "", "weight": 1, "lite": False, "answers": True, "silent_since": None, "view_version": 3, "table_version": 9,
        "owned": 2, "backups": 1, "entries": 5, "bytes": 9, "memory_used": 1, "memory_limit": 10, "kept_entries": 0,
        "calls_per_s": None, "p99_ms": None, "clients": None, "processor": None, "event_log_problem": "", "disk": None,
    }  # fmt: skip
    return {
        "at": int(time.time() * 1000), "this": names[0], "against_ready": [], "restart_wait": None, "view_version": 3, "table_version": 9,
        "master": names[0], "suspicions": [], "late": [],
        "members": [member | {"member": f"{name}/x", "address": name} for name in names],
    }  # fmt: skip


def looking_at(browser: Browser, served: Served, told: dict[str, Any], width: int) -> Page:
    """A console whose member tells this, again and again."""
    context = browser.new_context(
        http_credentials={"username": "operator", "password": TOKEN}, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    page.add_init_script(f"const told = {json.dumps(told)}; {TELLS}")
    page.goto(f"http://127.0.0.1:{served.ports[0]}/")
    page.wait_for_selector(SHOWS["cluster"])
    return page


def test_who_suspects_whom_is_drawn_one_way_and_both(served: Served, browser: Browser) -> None:
    """The stream is one that no healthy cluster would give: A does not hear B, C and D do not hear each other, A waits for C."""
    names = [f"127.0.0.1:{port}" for port in (1, 2, 3, 4)]
    a, b, c, d = names
    told = {
        "cluster": cluster_of(names) | {"suspicions": [{"by": by, "of": of, "reason": ""} for by, of in ((a, b), (c, d), (d, c))], "late": [c]},
        "partitions": {
            "assigned": True, "table_version": 9, "members": names, "present": [True] * 4, "rows": [[0, 1], [1], [2, 3]],
            "wanted": 2, "configured": 2, "lacking": {"1": int(time.time() * 1000) - 60_000}, "without_owner": [],
        },
        "moves": {"known": False, "under_way": []},
        "news": {"key": "view 3", "at": int(time.time() * 1000), "level": "bad", "said": f"{b} crashed, hangs or is cut off: 3 members"},
    }  # fmt: skip
    page = looking_at(browser, served, told, width=1300)
    arrows = {
        link: page.get_by_role("button", name=f"Link {link}:").locator(".arrow")
        for link in ("1 – 2", "3 – 4", "1 – 3", "2 – 3")
    }
    for link, count in (("1 – 2", 1), ("3 – 4", 2), ("1 – 3", 0), ("2 – 3", 0)):
        expect(arrows[link]).to_have_count(count)
    expect(page.get_by_role("button", name="Link 1 – 2: 1 suspects 2", exact=True)).to_be_visible()
    expect(page.locator(".news.bad")).to_contain_text("✕ 2 crashed, hangs or is cut off: 3 members.")
    page.get_by_role("button", name="Put this aside").click()
    expect(page.locator(".news.bad")).to_have_count(0)
    expect(page.get_by_role("button", name="Link 1 – 3: late").locator(".link.late")).to_have_count(1)
    if folder := os.environ.get("CONSOLE_SHOTS"):
        page.screenshot(path=f"{folder}/suspicions.png")
    page.evaluate("location.hash = '#/partitions'")
    expect(page.locator("#lacking")).to_contain_text(re.compile(r"1 partition lacks a replica, the first for \d"))
    expect(page.locator(".cell.lacking")).to_have_attribute(
        "aria-label", re.compile("Partition 1: owner 2, backups none, lacks")
    )
    page.context.close()


@pytest.mark.parametrize("width", [390, 800, 1024, 1180, 1200, 1241, 1280, 1440])
def test_large_figures_and_trouble_have_room(served: Served, browser: Browser, width: int) -> None:
    """A hangs, B suspects it and is behind, and each figure is as long as in a large cluster."""
    names = [f"127.0.0.1:{port}" for port in (24401, 24402, 24403, 24404)]
    told = cluster_of(names)
    for each in told["members"]:
        each |= {
            "entries": 12_345_678, "bytes": 45 << 30, "memory_used": 123 << 30, "memory_limit": 512 << 30, "calls_per_s": 45_678,
            "p99_ms": 408.8, "clients": 1_234, "processor": 2.5, "owned": 12_345, "backups": 12_345, "zone": "eu-north-1a",
            "view_version": 123, "table_version": 123_456,
        }  # fmt: skip
    told["members"][1] |= {"answers": False, "silent_since": told["at"] - 600_000}
    told |= {"view_version": 124, "suspicions": [{"by": names[2], "of": names[1], "reason": ""}]}
    row = [None, *[1.0] * 150]
    activity = {
        "at": told["at"], "end": told["at"], "every_ms": 3_000, "silent": [names[1]], "uncounted": [],
        "reads": [*row, 912_345], "writes": [*row, 212_345], "errors": [*row, 12_345], "p99_ms": [*row, 408.8],
        "entries": [*row, 123_456_789], "memory": [*row, 123 << 30], "clients": [*row, 1_234], "moves": [*row, 12_345.0],
    }  # fmt: skip
    page = looking_at(browser, served, {"cluster": told, "activity": activity}, width)
    expect(page.locator(".tile .most").nth(1)).to_have_text("most 408.8 ms")
    expect(page.locator(".tile")).to_have_count(6)
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(HIDDEN) == []
    assert page.evaluate(OVERLAPPING) == []
    assert page.evaluate(FAINT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.get_by_role("button", name="Link 24401 – 24402: unknown").locator(".link.unknown")).to_have_count(1)
    assert page.locator(".stacked tbody th").first.evaluate("each => each.clientHeight") < 60, (
        "letter and name are in one row"
    )
    page.context.close()


@pytest.mark.parametrize("width", [390, 1500])
def test_who_is_awaited_after_a_restart_and_how_disks_do_is_shown(served: Served, browser: Browser, width: int) -> None:
    names, missing = ["127.0.0.1:1", "127.0.0.1:2"], "127.0.0.1:3"
    said = f"the cluster was switched off and waits for {missing}: no member that is here has all of 90 partitions; start it with its folder"
    cluster = cluster_of(names) | {
        "restart_wait": {
            "said": said, "members": [missing], "lacking": 90, "lacks_majority": False, "last_seen": int(time.time() * 1000) - 120_000,
            "clusters": [],
        },
        "against_ready": [said],
    }  # fmt: skip
    disk = {
        "state": "ok", "why": "", "unsynced_bytes": 0, "unsynced_ms": 0, "log_bytes": 192 << 20, "segments": 3, "room_bytes": 40 << 30,
    }  # fmt: skip
    cluster["members"][0]["disk"] = disk | {"unsynced_bytes": 2048, "unsynced_ms": 150}
    cluster["members"][1]["disk"] = disk | {"state": "full", "why": "there is room for 90 MiB, and must be for 128 MiB"}
    page = looking_at(browser, served, {"cluster": cluster}, width)
    expect(page.locator("#verdict.bad")).to_contain_text("waits for 1 member: nothing is served")
    expect(page.locator("#awaited-title")).to_contain_text("Waits for 1 member")
    expect(page.get_by_text(re.compile(rf"{missing}, last seen 2 min.* ago: start it with its folder"))).to_be_visible()
    disks = page.get_by_role("region", name="Disks").locator("tbody tr")
    for text in ("✓ ok", "192 MiB", "2.0 KiB", "40 GiB"):
        expect(disks.nth(0)).to_contain_text(text)
    expect(disks.nth(1)).to_contain_text("▲ full: there is room for 90 MiB, and must be for 128 MiB")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("CONSOLE_SHOTS"):
        page.screenshot(path=f"{folder}/awaited-{width}.png", full_page=True)
    page.context.close()


@pytest.mark.parametrize("width", [390, 1500])
def test_members_with_the_data_of_several_clusters_are_shown_by_cluster(
    served: Served, browser: Browser, width: int
) -> None:
    names = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    told = {
        "said": "nothing is served", "members": [], "lacking": 0, "lacks_majority": True, "last_seen": None,
        "clusters": [names[:2], names[2:]],
    }  # fmt: skip
    page = looking_at(
        browser, served, {"cluster": cluster_of(names) | {"restart_wait": told, "against_ready": []}}, width
    )
    expect(page.locator("#verdict.bad")).to_contain_text("has the data of 2 clusters: nothing is served")
    expect(page.locator("#awaited-title")).to_contain_text("Has the data of 2 clusters")
    listed = page.get_by_role("region", name="Has the data of 2 clusters").locator("li")
    expect(listed).to_have_text(["… 127.0.0.1:1, 127.0.0.1:2", "… 127.0.0.1:3"])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if folder := os.environ.get("CONSOLE_SHOTS"):
        page.screenshot(path=f"{folder}/several-{width}.png", full_page=True)
    page.context.close()


def test_a_cluster_too_small_for_its_backups_is_not_called_whole(served: Served, browser: Browser) -> None:
    told = {
        "cluster": cluster_of(["127.0.0.1:1"]),
        "partitions": {
            "assigned": True, "table_version": 9, "members": ["127.0.0.1:1"], "present": [True], "rows": [[0]],
            "wanted": 1, "configured": 2, "lacking": {}, "without_owner": [],
        },
        "moves": {"known": True, "at_rest": True, "under_way": []},
    }  # fmt: skip
    page = looking_at(browser, served, told, width=390)
    expect(page.locator("#verdict.warn")).to_contain_text("1 of 2 replicas: start another member")
    page.context.close()


def test_a_view_begins_at_its_top(served: Served, browser: Browser) -> None:
    seen = opened(browser, served.ports[0], viewport={"width": 390, "height": 600})
    seen.page.evaluate("scrollTo(0, 900)")
    assert seen.page.evaluate("scrollY") > 500
    seen.show("partitions")
    seen.page.wait_for_function("scrollY === 0")
    seen.page.context.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_names_in_the_ring_are_short_and_letters_where_they_would_cover_each_other(
    served: Served, browser: Browser, width: int
) -> None:
    for count, is_named in ((3, True), (14, width > 700), (40, False)):
        names = [f"phalanx-{number}.phalanx.default.svc.cluster.local:5701" for number in range(count)]
        page = looking_at(browser, served, {"cluster": cluster_of(names)}, width)
        expect(page.locator(".ring .dot")).to_have_count(count)
        expect(page.locator(".ring .name")).to_have_count(count if is_named else 0)
        assert page.evaluate(OVERLAPPING) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        marks = page.locator(".ring .dot .mark").all_text_contents()
        if is_named:
            assert page.locator(".ring .name").all_text_contents()[:2] == ["phalanx-0 (this)", "phalanx-1"]
        else:
            assert marks[:3] == ["A", "B", "C"]
        expect(page.locator(".stacked tbody th").first).to_contain_text(f"A {names[0]}")
        page.context.close()


def test_a_member_that_is_killed_is_told_to_who_looks_on(served: Served, browser: Browser) -> None:
    """The page is that of another member, where the line stays for a minute; then that of the member that dies itself."""
    cluster = served.cluster
    victim, other = cluster.members[0], cluster.members[1]
    seen, own = opened(browser, served.ports[1]), opened(browser, served.ports[0])
    seen.page.wait_for_selector("#verdict.good")
    cluster.kill(victim)
    name = victim.address.rpartition(":")[2]
    expect(seen.page.locator(".news.good")).to_contain_text(f"s after {name} went.")
    own.page.get_by_text("This member does not answer").wait_for()
    seen.show("story")
    crash = seen.page.locator(".line.bad").filter(has_text=f"{name} crashed, hangs or is cut off; ")
    expect(crash).to_contain_text("is the master now: 3 members")
    expect(crash.get_by_text("(CS-").first).to_be_hidden()
    crash.locator("summary").click()
    for words in (f"suspects {name}", "claims to be the master", "(CS-"):
        expect(crash.locator(".event").get_by_text(words, exact=False).first).to_be_visible()
    repair = seen.page.locator(".line.good").filter(has_text=f"s after {name} went")
    repair.locator("summary").click()
    expect(repair.get_by_text(f"takes {name} out of the table")).to_be_visible()
    expect(seen.page.locator(".step-repair rect")).to_have_count(1)
    seen.page.wait_for_selector("#verdict.good")
    seen.show("safety")
    expect(seen.page.locator(".judgement")).to_have_count(3)
    expect(seen.page.locator(".judgement").first).to_contain_text(other.address)
    assert seen.complaints == []
    seen.page.context.close()
    own.page.context.close()
