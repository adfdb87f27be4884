"""The checker of protected maps: an answer counts by the list that was installed when it left."""

from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.map_settings import Protection
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.machine.effects import Record, Send
from phalanx.machine.inputs import TimePassed
from phalanx.wire.messages import ValueReply
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.protection_checker import ProtectionChecker

A = MemberId("A")
LITE = ((MemberId("C"), Traits(lite=True)),)


def view(version: int, names: str, *, lite: bool = False) -> MembersView:
    return MembersView(version, A, tuple(map(MemberId, names)), LITE if lite else ())


def found(before: str, story: str, *, lite: bool = False) -> int:
    """One input of A: `AB!AC` are two lists, with an answer between them. How many answers are held against it."""
    lists = [part for part in story.replace("!", " ! ").split() if part != "!"]
    effects: list[Any] = []
    for number, part in enumerate(story.replace("!", " ! ").split()):
        if part == "!":
            effects.append(Send("client/1", ValueReply(number, None)))  # type: ignore[arg-type]  # a client's id
        else:
            effects.append(Record(ViewInstalled(number, A, A, tuple(map(MemberId, part)), "")))
    membership = SimpleNamespace(view=view(1, before, lite=lite))

    def handle(event: object, now: int) -> list[Any]:
        membership.view = view(9, lists[-1], lite=lite) if lists else membership.view
        return effects

    node: Any = SimpleNamespace(this=A, membership=membership, handle=handle)
    findings = Findings()
    ProtectionChecker(findings, Protection(minimum=3)).watch(node)
    node.handle(TimePassed(), 1)
    return len(findings.violations)


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize(
    ("before", "story", "answers"),
    [
        ("ABC", "!", 0),
        ("AB", "!", 1),
        ("ABC", "!AB", 0),
        ("ABC", "AB!", 1),
        ("AB", "ABC!", 0),
        ("ABCD", "ABC!AB", 0),
        ("ABCD", "AB!ABC", 1),
        ("ABCD", "ABC!AB!", 1),
    ],
)
def test_an_answer_counts_by_the_list_that_was_installed_when_it_left(before: str, story: str, answers: int) -> None:
    assert found(before, story) == answers


def test_members_without_data_do_not_count() -> None:
    assert found("ABCD", "ABC!AB", lite=True) == 1
