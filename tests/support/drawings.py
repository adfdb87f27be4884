"""Histories drawn in one line, `{A,B} | {C,D,E} => {C,D,E} + {A,B}`, and played from each side (docs/scenarios.md).

The first stage starts a cluster, oldest first by name (or as `ages:` says), and cuts it where bars stand. A later stage
in braces is what is to become of it; any other stage is a command of the scenario language. Where a stage with bars is
followed by one with fewer sides, the cuts heal in between.

A drawing is played once for each side (only the masters of that one look for the others of themselves) and for both
orders of the addresses: what comes of a cut must not depend on who looks first, nor on whose address is the smaller one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from phalanx.common.ids import Millis, address_of
from phalanx.wire.messages import MergeProbe, Message
from phalanx_proof.sim.cluster.host import Channel
from phalanx_proof.sim.scenario.commands import Player
from phalanx_proof.sim.scenario.errors import ScenarioError, wrong
from phalanx_proof.sim.scenario.facts import ROW
from phalanx_proof.sim.scenario.parsing import NAME, words

LIMIT: Millis = 90_000
"""How long what is drawn may take to come about."""
STAYS: Millis = 3_000
"""How long it has to stay so."""
_GROUP = re.compile(r"\{([^{}]*)\}")
_SETTING = re.compile(r"# (rows|ages|set): ?(.*)")

Sides = tuple[tuple[frozenset[str], frozenset[str]], ...]
"""Each side: those that were members of it all the time, and those that came to it."""


class Drawing(msgspec.Struct, frozen=True):
    """One line of a file, with the comments above it."""

    file: str
    number: int
    title: str
    text: str
    rows: tuple[str, ...]
    ages: tuple[str, ...]
    """All hosts, oldest first."""
    lite: frozenset[str]
    settings: tuple[str, ...]
    """`name value`, of all members."""

    @property
    def stages(self) -> list[str]:
        return [stage.strip() for stage in self.text.split("=>")]

    @property
    def sides(self) -> int:
        """How many sides it begins with."""
        return len(_sides(self.stages[0]))


class Variant(msgspec.Struct, frozen=True):
    """From where a drawing is looked at."""

    first: int
    """Which side looks for the others of itself."""
    is_reversed: bool
    """Whether the younger members have the smaller addresses."""

    def __str__(self) -> str:
        return f"side {self.first + 1} looks first, addresses {'falling' if self.is_reversed else 'rising'}"


def parse_drawings(text: str, file: str) -> list[Drawing]:
    """All drawings of a file. Raises `ScenarioError`."""
    found: list[Drawing] = []
    comments: list[str] = []
    settings: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _SETTING.fullmatch(line):
            settings.setdefault(match[1], []).append(match[2].strip())
        elif line.startswith("#"):
            comments.append(line.lstrip("# ").strip())
        elif line.strip():
            try:
                found.append(_drawing(file, number, comments, line.strip(), settings))
            except ScenarioError as error:
                raise ScenarioError(f"{file}:{number}: {error} in {line!r}") from None
            comments, settings = [], {}
        elif not settings:
            comments = []
    return found


def _drawing(file: str, number: int, comments: list[str], text: str, settings: dict[str, list[str]]) -> Drawing:
    first = text.partition("=>")[0]
    names = [name for group in _GROUP.findall(first) for name in words(group)]
    hosts = [name.rstrip("~") for name in names]
    if not hosts or not all(NAME.fullmatch(host) for host in hosts) or len(set(hosts)) != len(hosts):
        raise wrong("sides of different hosts, for example {A,B} | {C,D}; a lite member is drawn as E~", first.strip())
    ages = words(" ".join(settings.get("ages", [])))
    if ages and sorted(ages) != sorted(hosts):
        raise wrong(f"each of {' '.join(sorted(hosts))} once in ages", " ".join(ages))
    if not comments:
        raise wrong("a comment above it that says what it shows", text)
    rows = tuple(ROW.findall(" ".join(settings.get("rows", []))))
    lite = frozenset(name.rstrip("~") for name in names if name.endswith("~"))
    return Drawing(file, number, comments[0], text, rows, tuple(ages or sorted(hosts)), lite,
                   tuple(settings.get("set", [])))  # fmt: skip


def _sides(stage: str) -> Sides:
    sides = []
    for side in stage.split("|"):
        groups = [frozenset(name.rstrip("~") for name in words(group)) for group in _GROUP.findall(side)]
        if not groups or re.sub(r"[\s+]", "", _GROUP.sub("", side)):
            raise wrong("sides such as {A,B} | {C} or, with those that came to it, {A,B} + {C}", stage)
        sides.append((groups[0], frozenset[str]().union(*groups[1:])))
    return tuple(sides)


def variants(drawing: Drawing) -> Iterator[Variant]:
    """All points of view of a drawing."""
    for first in range(drawing.sides):
        for is_reversed in (False, True):
            yield Variant(first, is_reversed)


def play_drawing(
    drawing: Drawing, variant: Variant, *, watch: Callable[[Player], None] = lambda player: None
) -> list[str]:
    """Play it from one point of view. Returns what is otherwise than drawn; `watch` sees the player at the end."""
    hosts = sorted(drawing.ages, key=drawing.ages.index, reverse=variant.is_reversed)
    play = Play(drawing, Player(hosts))
    before, *stages = drawing.stages
    play.begin(_sides(before), variant.first)
    sides = len(_sides(before))
    for stage in stages:
        if not stage.startswith("{"):
            play.run(stage)
            continue
        wanted = [_sides(each) for each in stage.split(" or ")]
        if len(wanted[0]) < sides:
            play.run("heal")
        sides = len(wanted[0])
        play.expect(wanted, stage)
    watch(play.player)
    return play.failures


class Play:
    """One history, and what was otherwise than drawn."""

    def __init__(self, drawing: Drawing, player: Player) -> None:
        self.drawing = drawing
        self.player = player
        self.failures: list[str] = []
        self._first: dict[str, int] = {}
        """Host to its incarnation when the sides were apart."""
        self._silent: set[str] = set()
        """Hosts that do not look for other sides of themselves."""

    def run(self, command: str) -> None:
        self.player.run(command)
        self.failures += [f"{command!r}: {failure}" for failure in self.player.failures]
        self.player.stage.problems.clear()
        self.player.stage.findings.violations.clear()

    def begin(self, sides: Sides, first: int) -> None:
        for setting in self.drawing.settings:
            self.run(f"set {setting}")
        stage = self.player.stage
        started: list[str] = []
        for host in self.drawing.ages:
            stage.seeds[host] = self.drawing.ages
            self.run(f"set lite {'true' if host in self.drawing.lite else 'false'}")
            self.run(f"start {host}")
            started.append(host)
            self.run(f"until whole {' '.join(started)}")
        self.run("advance 2s")
        self._note(self.drawing.ages)
        if len(sides) > 1:
            self._silent = {host for number, (side, _) in enumerate(sides) if number != first for host in side}
            stage.listens = self._listens
            self.run("cut " + " | ".join(" ".join(sorted(side)) for side, _ in sides))
            self.expect([sides], self.drawing.stages[0])

    def _note(self, hosts: tuple[str, ...]) -> None:
        self._first = {host: self.player.stage.host(host).incarnations for host in hosts}

    def expect(self, wanted: list[Sides], drawn: str) -> None:
        """Within a time there are exactly these sides, or those, and they stay."""
        began = self.player.stage.now
        unmet = self._unmet_of_all(wanted)
        while unmet and self.player.stage.now - began < LIMIT:
            self.run("advance 100ms")
            unmet = self._unmet_of_all(wanted)
        if not unmet:
            self.run(f"advance {STAYS}ms")
            unmet = self._unmet_of_all(wanted)
        if unmet:
            shown = "\n    ".join(self.player.run("views"))
            self.failures.append(f"not {drawn}: {unmet}\n    {shown}")

    def _unmet_of_all(self, wanted: list[Sides]) -> str:
        unmet = [self._unmet(sides) for sides in wanted]
        return "" if "" in unmet else "; ".join(unmet)

    def _unmet(self, sides: Sides) -> str:
        stage = self.player.stage
        for stayed, came in sides:
            everybody = sorted(stayed | came)
            for host in (stage.host(name) for name in everybody):
                name = stage.names[host.address]
                view = host.node.membership.view if host.node is not None else None
                if view is None:
                    return f"{name} is in no cluster"
                found = [stage.names[address_of(member)] for member in view.members]
                if sorted(found) != everybody:
                    return f"{name} has {found}"
                if set(found[: len(stayed)]) != stayed:
                    return f"{name} has {found}: {sorted(stayed)} are not the older ones"
                if (host.incarnations != self._first[name]) != (name in came):
                    return f"{name} {'was never anew' if name in came else 'has been anew'}"
        return ""

    def _listens(self, channel: Channel, message: Message) -> bool:
        """Who looks for other sides of itself is not heard if it is to be found, until somebody has changed sides."""
        if not isinstance(message, MergeProbe) or message.about_maker:
            return True
        stage = self.player.stage
        if any(host.incarnations > self._first[stage.names[host.address]] for host in stage.hosts):
            self._silent.clear()
        return stage.names[channel.opener.address] not in self._silent
