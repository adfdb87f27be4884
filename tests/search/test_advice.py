"""What is recommended, and in which words: from figures alone."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from phalanx.common.errors import UsageError
from phalanx_proof.search.advice import Advice, Trial, advise
from phalanx_proof.search.advice_chart import write_chart, write_page
from phalanx_proof.search.findings import COUNTED, SUMMED, SearchFindings, ViolationGroup
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.settings import Configuration


def group(
    timeout_ms: int, removed: int, found_ms: int, *, pauses: int = 6_000, hangs: int = 10, detector: str = "phi"
) -> ViolationGroup:
    counted = {kind: Counter[str]() for kind in COUNTED}
    counted["counts"].update({"pauses": pauses, "hangs": hangs, "removed while running": removed})
    settings = (("failure_detector", detector), ("heartbeat_timeout_ms", timeout_ms))
    return ViolationGroup(
        Configuration(Profile.TIMEOUTS, settings), 10, 0, dict.fromkeys(SUMMED, 0.0), counted, [],
        [found_ms] * hangs,
    )  # fmt: skip


def advice(*groups: ViolationGroup, accepted: float = 0.0) -> Advice:
    return advise(SearchFindings(list(groups), [], 0, "", []), accepted_per_thousand=accepted)


def chosen(made: Advice) -> int | None:
    return made.recommended.timeout_ms if made.recommended is not None else None


USUAL = (group(1_500, 90, 1_100), group(3_000, 0, 2_900), group(5_000, 0, 4_800))


def test_the_shortest_timeout_that_removes_nobody_is_recommended_with_its_figures() -> None:
    made = advice(*USUAL)
    assert chosen(made) == 3_000
    said = " ".join(made.because)
    assert "Set heartbeat_timeout_ms to 3000 (phi)" in said
    assert "None of 6,000 pauses and stalls" in said
    assert "fewer than 0.5 of a thousand do, with 95 % confidence" in said
    assert "after 2.9 s in 99 of 100 (10 of 10 hangs found)" in said
    assert "At 1.5 s, 90 members that ran were removed (15.00 of a thousand)" in said
    assert "At 5 s a hung member stays for 4.8 s" in said


def test_a_lucky_short_timeout_below_a_bad_one_is_not_trusted() -> None:
    assert chosen(advice(group(1_000, 0, 900), group(2_000, 5, 1_900), group(3_000, 0, 2_900))) == 3_000


def test_what_is_accepted_counts() -> None:
    assert chosen(advice(*USUAL, accepted=15.0)) == 1_500
    assert chosen(advice(*USUAL, accepted=14.0)) == 3_000


def detector(given: Advice) -> str:
    assert given.recommended is not None
    return given.recommended.detector


def test_the_detector_that_finds_hung_members_sooner_is_preferred_and_else_the_usual_one() -> None:
    phi, deadline = group(3_000, 0, 2_500), group(3_000, 0, 2_900, detector="deadline")
    assert detector(advice(deadline, phi)) == "phi"
    assert detector(advice(group(3_000, 0, 2_600, detector="deadline"), group(3_000, 0, 2_900))) == "deadline"
    assert detector(advice(deadline, group(3_000, 0, 2_900))) == "phi"


def test_where_none_is_long_enough_it_says_so() -> None:
    made = advice(group(1_500, 90, 1_100), group(3_000, 2, 2_900))
    assert chosen(made) is None
    assert "None of these timeouts is long enough: 3 s still removed 2 members" in made.because[0]


def test_a_timeout_with_which_no_hung_member_was_found_is_not_recommended() -> None:
    never = group(60_000, 0, 0, hangs=0)
    assert chosen(advice(never)) is None
    assert "longer histories" in advice(never).because[0]


@pytest.mark.parametrize("groups", [USUAL, (group(1_500, 90, 1_100),)])
def test_page_and_chart_show_it(tmp_path: Path, groups: tuple[ViolationGroup, ...]) -> None:
    made = advice(*groups)
    page, chart = tmp_path / "advice.html", tmp_path / "advice.png"
    write_page(made, {"longest_pause": "2s <&>"}, "phalanx advise timeouts", page)
    write_chart(made, chart)
    text = page.read_text()
    assert made.because[0] in text
    assert "2s &lt;&amp;&gt;" in text
    for trial in made.trials:
        assert f"{trial.timeout_ms:,} ms" in text
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    drawn = " ".join(node.text or "" for node in svg.iter())
    assert "heartbeat timeout (s)" in drawn
    assert "per 1,000 pauses and stalls" in drawn
    assert "http" not in text.replace("http://www.w3.org", ""), "it needs nothing from elsewhere"
    assert chart.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="cannot write"):
        write_chart(made, tmp_path / "nowhere" / "advice.png")


def test_rates_are_of_pauses_and_stalls() -> None:
    trial = Trial(timeout_ms=1, detector="phi", histories=1, troubles=0, removed=0, hangs=0, found=0, found_after_ms={})
    assert trial.removed_per_thousand == 0
    assert trial.most_per_thousand == 1_000
