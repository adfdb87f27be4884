"""The commands of a scenario: what each does to the stage, and what it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Millis
from phalanx.machine.inputs import LeaveWanted, SeedsFound
from phalanx.wire.messages import Message
from phalanx_proof.sim.scenario import parsing, wording
from phalanx_proof.sim.scenario.conditions import Since, check, log_lines, role_of, suspected_by
from phalanx_proof.sim.scenario.data_commands import DATA_COMMANDS, DataCommands
from phalanx_proof.sim.scenario.errors import ScenarioError, wrong
from phalanx_proof.sim.scenario.facts import CITED
from phalanx_proof.sim.scenario.stage import FOREVER, Dropping, Stage

UNTIL_AT_MOST: Millis = 120_000
"""How long `until` waits when the scenario does not say."""
OF_NO_INTEREST = frozenset(
    {
        *("cluster", "protocol", "partition_count", "request_id", "claim_id", "has_started"),
        *("clock", "footing", "memory", "bound_ms", "former", "departures", "known", "question", "answers"),
    }
)
"""Fields of messages that `held` does not show."""

SOURCE = "dns"
"""Instead of seeds: the process has a source of seeds, and `find` says what that gives."""

Lines = list[str]


class Player:
    """Carries out one command after another. Each takes one millisecond, so that its effect is seen by the next one."""

    def __init__(self, hosts: list[str]) -> None:
        self.stage = Stage(hosts)
        self.since = Since(self.stage)
        self.data = DataCommands(self.stage)
        self.failures: list[str] = []
        """Expectations that do not hold, of the present command."""
        self.expected_rows: set[str] = set()
        self._events_shown = 0
        """How many facts the last `events` has shown."""
        self._counted: Counter[tuple[str, str, str]] = Counter()

    def run(self, line: str) -> Lines:
        """Carry out a command. Returns what it shows; what does not hold is in `failures`."""
        self.failures = []
        word, _, rest = line.strip().partition(" ")
        if word in COMMANDS:
            lines = COMMANDS[word](self, rest.strip())
        elif word in DATA_COMMANDS:
            lines = DATA_COMMANDS[word](self.data, rest.strip())
        else:
            raise wrong(f"a command, one of: {', '.join(sorted([*COMMANDS, *DATA_COMMANDS]))}", word)
        self.failures += self.stage.problems
        self.failures += [f"{found.what}: {found.story}" for found in self.stage.findings.violations]
        return lines

    @property
    def hosts(self) -> list[str]:
        return self.stage.names.hosts

    def act(self, function: Callable[..., None], *arguments: Any) -> None:
        self.stage.queue.call_at(self.stage.now, function, *arguments)

    def step(self, ms: Millis = 1) -> Lines:
        self.stage.run_until(self.stage.now + ms)
        return []

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, text: str) -> Lines:
        """Start processes at the same time."""
        for name in self._to_start(text):
            self.act(self.stage.start, self.stage.host(name))
        return self.step()

    def cluster(self, text: str) -> Lines:
        """Start processes, each when the one before is admitted: the first is the oldest. Nothing of that is shown."""
        names = self._to_start(text)
        for name in names:
            self.act(self.stage.start, self.stage.host(name))
            self.step()
            self._wait_for(f"whole {' '.join(names[: names.index(name) + 1])}", UNTIL_AT_MOST)
        self.step(2 * NodeConfig(**self.stage.settings).heartbeat_interval_ms)
        self.mark("")
        return []

    def _to_start(self, text: str) -> list[str]:
        names, seeds = names_to_start(text)
        for name in names:
            if self.stage.host(name).node is not None:
                raise wrong("a host where nothing runs", name)
            self.stage.finds_seeds.discard(name)
            if seeds == SOURCE:
                self.stage.finds_seeds.add(name)
            elif seeds is not None:
                self.stage.seeds[name] = tuple(parsing.hosts(seeds, self.hosts))
        return names

    def set(self, text: str) -> Lines:
        """Change a setting of the processes that start from now on."""
        name, _, value = text.partition(" ")
        if name not in NodeConfig.__struct_fields__ or name == "seeds":
            raise wrong("a setting of a member such as heartbeat_timeout_ms", name)
        try:
            given = msgspec.convert(self.stage.settings | {name: value.strip()}, NodeConfig, strict=False)
        except msgspec.ValidationError as error:
            raise wrong(f"a value for {name} ({error})", value.strip()) from None
        self.stage.settings[name] = getattr(given, name)
        return []

    def crash(self, text: str) -> Lines:
        for name in parsing.hosts(text, self.hosts):
            self.act(self._crash, name)
        return self.step()

    def _crash(self, name: str) -> None:
        host = self.stage.host(name)
        host.comes_back = None  # A process that is about to come back with another incarnation does not.
        if host.node is not None:
            self.stage.crash(host, 0)

    def restart(self, text: str) -> Lines:
        """Crash processes, and start the next ones on their addresses at once."""
        for name in parsing.hosts(text, self.hosts):
            self.act(self._crash, name)
            self.act(self.stage.start, self.stage.host(name))
        return self.step()

    def leave(self, text: str) -> Lines:
        for name in parsing.hosts(text, self.hosts):
            host = self.stage.host(name)
            if host.member is None:
                raise wrong("a host where a member runs", name)
            self.act(self.stage.feed, host, host.member, LeaveWanted())
        return self.step()

    def find(self, text: str) -> Lines:
        """Give what a source of seeds finds. `A B: A C`: A and B get the addresses of A and C; `A: nobody`, and `A: failure`."""
        names, colon, given = text.partition(":")
        given = given.strip()
        if not colon or not given:
            raise wrong("who finds whom, such as A B: C, or A: nobody, or A: failure", text)
        is_nobody = given in ("nobody", "failure")
        found = () if is_nobody else sorted(self.stage.host(name).address for name in parsing.hosts(given, self.hosts))
        event = SeedsFound(tuple(found), ("dns:members:5701: no answer",) if given == "failure" else ())
        for name in parsing.hosts(names, self.hosts):
            host = self.stage.host(name)
            if host.member is None or name not in self.stage.finds_seeds:
                raise wrong("a host where a member runs that was started with seeds=dns", name)
            self.act(self.stage.feed, host, host.member, event)
        return self.step()

    def pause(self, text: str) -> Lines:
        for name in parsing.hosts(text, self.hosts):
            self.act(self.stage.pause, self.stage.host(name), FOREVER)
        return self.step()

    def resume(self, text: str) -> Lines:
        for name in parsing.hosts(text, self.hosts):
            self.act(self.stage.wake, self.stage.host(name))
        return self.step()

    # --- the network -----------------------------------------------------------------------------------------------

    def cut(self, text: str) -> Lines:
        """Cut the network. `A | B`: connections break and cannot be opened. `A > B`: what A sends B vanishes, without a trace."""
        network = self.stage.network
        if ">" in text:
            network.one_way.update(parsing.one_way(text, self.hosts))
        else:
            for one, other in parsing.sides(text, self.hosts):
                self.act(network.cut, self.stage.host(one), self.stage.host(other), FOREVER)
        return self.step()

    def split(self, text: str) -> Lines:
        """Cut as `cut` does, `A B | C D`, and let time pass until each side is whole. Nothing of that is shown."""
        for one, other in parsing.sides(text, self.hosts):
            self.act(self.stage.network.cut, self.stage.host(one), self.stage.host(other), FOREVER)
        self.step()
        for side in text.split("|"):
            self._wait_for(f"whole {side}", UNTIL_AT_MOST)
        return []

    def lose(self, text: str) -> Lines:
        """Break the connections between two sides once."""
        for one, other in parsing.sides(text, self.hosts):
            self.act(self.stage.network.lose, self.stage.host(one), self.stage.host(other))
        return self.step()

    def slow(self, text: str) -> Lines:
        """Let messages from and to some hosts take so much longer: `A B 400ms`."""
        names, _, lasts = text.rpartition(" ")
        ms = parsing.duration(lasts)
        for name in parsing.hosts(names, self.hosts):
            for other in self.hosts:
                if other != name:
                    self.act(self.stage.network.lag, self.stage.host(name), self.stage.host(other), ms, FOREVER)
        return self.step()

    def heal(self, text: str) -> Lines:
        """End all cuts, lags and drops; `A | B`: only the cuts between these. What is held back stays so."""
        if text:
            for one, other in parsing.sides(text, self.hosts):
                self.act(self.stage.network.mend, self.stage.host(one), self.stage.host(other))
            return self.step()
        self.act(self.stage.network.heal)
        self.stage.network.one_way.clear()
        self.stage.dropping.clear()
        return self.step()

    def drop(self, text: str) -> Lines:
        """`drop MembersUpdate A > B [next 2]`: such messages vanish."""
        way, _, following = text.partition(" next ")
        left = parsing.number(following.strip(), "how many") if following else -1
        self.stage.dropping.append(self._messages(way, left))
        return []

    def hold(self, text: str) -> Lines:
        """`hold [MembersUpdate] A > B`: such messages wait until they are delivered one by one, or released."""
        self.stage.holding.append(self._messages(text, -1))
        return []

    def _messages(self, text: str, left: int) -> Dropping:
        left_side, arrow, right = text.partition(">")
        parts = parsing.words(left_side)
        kinds = [part for part in parts if parsing.is_message_kind(part)]
        senders = [part for part in parts if part not in kinds]
        ways = parsing.one_way(f"{' '.join(senders)} {arrow} {right}", self.hosts)
        return Dropping(frozenset(kinds), frozenset(ways), left)

    def held(self, text: str) -> Lines:
        """Show what is held back, numbered for `deliver`, oldest first on each way."""
        _nothing_more(text)
        lines = []
        for way in dict.fromkeys(self._way(waiting.channel) for waiting in self.stage.held):
            for number, waiting in enumerate(self._held_on(way), 1):
                fields = ", ".join(self.stage.names.shown(value) for value in _of_interest(waiting.message))
                lines.append(f"{way[0]} > {way[1]} {number}: {type(waiting.message).__name__}({fields})")
        return lines or ["nothing is held back"]

    def _way(self, channel: Any) -> tuple[str, str]:
        names = self.stage.names
        return names[channel.opener.address], names[channel.receiver.address]

    def _held_on(self, way: tuple[str, str]) -> list[Any]:
        return [waiting for waiting in self.stage.held if self._way(waiting.channel) == way]

    def deliver(self, text: str) -> Lines:
        """`deliver A > B 2 1`: of what is held back on this way, the second, then the first; without numbers: all."""
        left, _, right = text.partition(">")
        receiver, *numbers = parsing.words(right) or [""]
        (way,) = parsing.one_way(f"{left} > {receiver}", self.hosts)
        waiting = self._held_on(way)
        order = [parsing.number(number, "the number of a held message") for number in numbers]
        if not waiting or any(not 1 <= number <= len(waiting) for number in order):
            raise wrong(f"one of the {len(waiting)} messages held back from {way[0]} to {way[1]}", " ".join(numbers))
        for each in [waiting[number - 1] for number in order] or waiting:
            self.act(self.stage.let_through, each)
        return self.step()

    def release(self, text: str) -> Lines:
        """Hold nothing back any more; what waits arrives in the order in which it came."""
        _nothing_more(text)
        self.stage.holding.clear()
        for waiting in list(self.stage.held):
            self.act(self.stage.let_through, waiting)
        return self.step()

    # --- time ------------------------------------------------------------------------------------------------------

    def advance(self, text: str) -> Lines:
        return self.step(parsing.duration(text))

    def until(self, text: str) -> Lines:
        """`until CONDITION [within 30s]`; shows how long it took."""
        condition, _, limit = text.partition(" within ")
        took = self._wait_for(condition, parsing.duration(limit) if limit else UNTIL_AT_MOST)
        return [f"after {wording.duration(took)}"]

    def _wait_for(self, condition: str, at_most: Millis) -> Millis:
        began = self.stage.now
        while unmet := check(condition, self.since):
            if self.stage.now - began >= at_most:
                self.failures.append(f"not within {wording.duration(at_most)}: {condition}; it is: {unmet}")
                break
            self.step()
        return self.stage.now - began

    # --- looking ---------------------------------------------------------------------------------------------------

    def views(self, text: str) -> Lines:
        """Show who has which view and follows whom; what is alike is said once."""
        stage = self.stage
        named = parsing.hosts(text, self.hosts) if text else self.hosts
        alike: dict[str, list[str]] = {}
        for host in (stage.host(name) for name in named):
            if not host.incarnations:
                continue
            alike.setdefault(self._state(host), []).append(stage.name(host))
        return [f"{' '.join(names)}: {state}" for state, names in alike.items()] or ["nothing runs"]

    def _state(self, host: Any) -> str:
        membership = host.node.membership if host.node is not None else None
        view = membership.view if membership is not None else None
        if membership is None or view is None:
            return role_of(host)
        follows = "" if membership.master == view.master else f", follows {self.stage.names[membership.master]}"
        claims = ", claims the mastership" if membership.is_claiming else ""
        return self.stage.names.view(view) + follows + claims + (", paused" if host.paused_until else "")

    def suspicions(self, text: str) -> Lines:
        stage = self.stage
        found = {stage.name(host): suspected_by(host, stage) for host in stage.running()}
        return [f"{name} suspects {' '.join(are)}" for name, are in found.items() if are] or ["nobody suspects anybody"]

    def events(self, text: str) -> Lines:
        """`events [A B] [data] [Kind …]`: what happened since the last `events`, in the order in which it first did."""
        asked = parsing.words(text)
        hosts = [word for word in asked if word in self.hosts]
        kinds = {word for word in asked if word not in hosts and word != "data"}
        if "data" in asked:
            kinds |= wording.OF_DATA
        new, self._events_shown = self.stage.facts[self._events_shown :], len(self.stage.facts)
        shown = [
            fact
            for fact in new
            if (not hosts or fact.who.rstrip("0123456789") in hosts)
            and (fact.kind in kinds if kinds else wording.is_shown(fact))
        ]
        return wording.tell(shown) or ["nothing"]

    def messages(self, text: str) -> Lines:
        """`messages [Kind …]`: how many were sent on which way since the last `messages` or `mark`."""
        kinds = parsing.message_kinds(text)
        sent = self.stage.network.sent
        counts = {each: sent[each] - self._counted[each] for each in sorted(sent)}
        self._counted = sent.copy()
        lines = [
            f"{kind} {sender} > {receiver}: {count}"
            for (kind, sender, receiver), count in counts.items()
            if count and (not kinds or kind in kinds)
        ]
        return lines or ["none"]

    def log(self, text: str) -> Lines:
        """`log A [legacy]`: the member list as A's log shows it."""
        name, _, form = text.partition(" ")
        if form not in ("", "legacy"):
            raise wrong("nothing, or legacy", form)
        return log_lines(self.stage, parsing.host(name, self.hosts), legacy=bool(form))

    # --- judging ---------------------------------------------------------------------------------------------------

    def mark(self, text: str) -> Lines:
        """Let facts and messages before this not count for `expect`, `until`, `events` and `messages`."""
        _nothing_more(text)
        self.since.mark()
        self._events_shown = len(self.stage.facts)
        self._counted = self.stage.network.sent.copy()
        return []

    def expect(self, text: str) -> Lines:
        """`expect CS-72 view B: [B,D,E]`: must hold whatever the shown output says."""
        while CITED.fullmatch(text.partition(" ")[0]):
            row, _, text = text.partition(" ")
            self.expected_rows.add(row)
        instead = check(text, self.since)
        if instead:
            self.failures.append(f"does not hold; it is: {instead}")
        return []


def _of_interest(message: Message) -> list[object]:
    """Return the fields of a message that `held` shows; of data, which has many, those that say something."""
    values = [getattr(message, name) for name in message.__struct_fields__ if name not in OF_NO_INTEREST]
    if not hasattr(message, "partition"):
        return values
    return [value for value in values if value and not isinstance(value, msgspec.Struct)]


def names_to_start(text: str) -> tuple[list[str], str | None]:
    """Parse the hosts in `5`, `A B C` or `C seeds=A,B`, and the seeds."""
    left, _, seeds = text.partition(" seeds=")
    names = parsing.words(left)
    if len(names) == 1 and names[0].isdecimal():
        names = parsing.letters(int(names[0]))
    if not names or not all(parsing.NAME.fullmatch(name) for name in names):
        raise wrong("how many to start, or their names (letters only)", left)
    return names, seeds or None


def _nothing_more(text: str) -> None:
    if text:
        raise wrong("nothing more in this line", text)


COMMANDS: dict[str, Callable[[Player, str], Lines]] = {
    name: getattr(Player, name)
    for name in (
        "advance", "cluster", "crash", "cut", "deliver", "drop", "events", "expect", "find", "heal", "held", "hold",
        "leave", "log", "lose", "mark", "messages", "pause", "release", "restart", "resume", "set", "slow", "split", "start",
        "suspicions", "until", "views",
    )
}  # fmt: skip

__all__ = ["COMMANDS", "Player", "ScenarioError", "names_to_start"]
