"""What a scenario can expect or wait for. Each condition says what is instead when it does not hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from phalanx.common.ids import MemberId
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.scenario import parsing
from phalanx_proof.sim.scenario.data_conditions import DATA_CONDITIONS
from phalanx_proof.sim.scenario.errors import wrong
from phalanx_proof.sim.scenario.facts import ScenarioFact
from phalanx_proof.sim.scenario.stage import Stage
from phalanx_proof.sim.scenario.wording import names_or_nobody

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "": operator.eq,
}  # fmt: skip
_AMOUNT = re.compile(r"(>=|<=|>|<|)\s*(\d+)")
_VIEW = re.compile(r"(?:v(\d+)\s*)?(?:by (\w+)\s*)?:?\s*\[([^\]]*)\]")


class Since:
    """Where facts and messages begin to count: the last `mark`, or the beginning."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.facts = 0
        self.sent = stage.network.sent.copy()

    def mark(self) -> None:
        self.facts = len(self.stage.facts)
        self.sent = self.stage.network.sent.copy()

    def happened(self) -> list[ScenarioFact]:
        return self.stage.facts[self.facts :]


def check(text: str, since: Since) -> str:
    """Return what is instead of a condition; empty: it holds. Raises `ScenarioError` for a text that is not a condition."""
    word, _, rest = text.strip().partition(" ")
    if word in CONDITIONS:
        return CONDITIONS[word](since, rest.strip())
    if word in DATA_CONDITIONS:
        return DATA_CONDITIONS[word](since.stage, rest.strip())
    raise wrong(f"a condition, one of: {', '.join(sorted([*CONDITIONS, *DATA_CONDITIONS]))}", word)


def _of(text: str, stage: Stage, what: str) -> tuple[list[Host], str]:
    """Parse `A B: something` into hosts and the rest."""
    left, colon, right = text.partition(":")
    if not colon:
        raise wrong(f"hosts, a colon and {what}", text)
    return [stage.host(name) for name in parsing.hosts(left, stage.names.hosts)], right.strip()


def _each(since: Since, text: str, what: str, look: Callable[[Host], str]) -> str:
    """Compare what each of the hosts shows with what is wanted."""
    hosts, wanted = _of(text, since.stage, what)
    found = {since.stage.name(host): look(host) for host in hosts}
    return "; ".join(f"{name}: {is_}" for name, is_ in found.items() if is_ != wanted)


def _view(since: Since, text: str) -> str:
    hosts, wanted = _of(text, since.stage, "a view such as v3 by A: [A,B,C], [A,B,C] or none")
    match = _VIEW.fullmatch(wanted)
    if match is None and wanted != "none":
        raise wrong("a view such as v3 by A: [A,B,C], [A,B,C] or none", wanted)
    names, differing = since.stage.names, []
    for host in hosts:
        view = host.node.membership.view if host.node is not None else None
        if match is None or view is None:
            fits = match is None and view is None
        else:
            version, maker, members = match.groups()
            fits = (
                [names[member] for member in view.members] == parsing.words(members)
                and version in (None, str(view.version))
                and maker in (None, names[view.maker])
            )
        if not fits:
            differing.append(f"{since.stage.name(host)}: {names.view(view) if view is not None else 'none'}")
    return "; ".join(differing)


def _version(since: Since, text: str) -> str:
    hosts, wanted = _of(text, since.stage, "a number such as 7 or > 6")
    differing = []
    for host in hosts:
        view = host.node.membership.view if host.node is not None else None
        if view is None or not _is_amount(view.version, wanted):
            differing.append(f"{since.stage.name(host)}: {view.version if view is not None else 'none'}")
    return "; ".join(differing)


def _is_amount(found: int, wanted: str) -> bool:
    match = _AMOUNT.fullmatch(wanted)
    if match is None:
        raise wrong("a number such as 3, > 3 or <= 3", wanted)
    return _COMPARISONS[match[1]](found, int(match[2]))


def _master(since: Since, text: str) -> str:
    def look(host: Host) -> str:
        master = host.node.membership.master if host.node is not None else None
        return since.stage.names[master] if master is not None else "none"

    return _each(since, text, "whom they follow", look)


def _role(since: Since, text: str) -> str:
    return _each(since, text, "a role", lambda host: role_of(host))


def role_of(host: Host) -> str:
    """Return what runs at a host, in a word."""
    if host.node is None:
        return "down"
    membership = host.node.membership
    return str(membership.state.role)


def _suspects(since: Since, text: str) -> str:
    hosts, wanted = _of(text, since.stage, "whom they suspect, or nobody")
    expected = [] if wanted == "nobody" else sorted(parsing.words(wanted))
    found = {since.stage.name(host): suspected_by(host, since.stage) for host in hosts}
    return "; ".join(f"{name}: {names_or_nobody(are)}" for name, are in found.items() if sorted(are) != expected)


def suspected_by(host: Host, stage: Stage) -> list[str]:
    """Return the names of the members that a member suspects."""
    if host.node is None:
        return []
    return [stage.names[member] for member in sorted(host.node.membership.suspicions.suspected)]


def _runs(since: Since, text: str) -> str:
    """Check that exactly these incarnations run there: `runs A2 B`."""
    stage = since.stage
    differing = []
    for name in parsing.words(text):
        host = stage.host(parsing.host(name.rstrip("0123456789"), stage.names.hosts))
        if host.member is None or stage.names[host.member] != name:
            differing.append(f"{stage.name(host)} {'runs' if host.member else 'is down'}")
    return "; ".join(differing)


def _down(since: Since, text: str) -> str:
    stage = since.stage
    found = [stage.host(name) for name in parsing.hosts(text, stage.names.hosts)]
    return "; ".join(f"{stage.name(host)} runs" for host in found if host.node is not None)


def _masters(since: Since, text: str) -> str:
    """`masters A C`: these lead a cluster, and nobody else that is not paused does."""
    stage = since.stage
    awake = [host.node for host in stage.running() if host.node is not None and not host.paused_until]
    leading = [node.this for node in awake if node.membership.is_master]
    found = [stage.names[member] for member in leading]
    return "" if sorted(found) == sorted(parsing.words(text)) else names_or_nobody(found)


def _whole(since: Since, text: str) -> str:
    """Check that all members that run (or that are named) are in one view, which has no others, and doubt nobody."""
    stage = since.stage
    named = parsing.hosts(text, stage.names.hosts) if text else None
    hosts = stage.running() if named is None else [stage.host(name) for name in named]
    unmet = [f"{stage.name(host)} will start" for host in stage.hosts if named is None and host.comes_back is not None]
    for host in hosts:
        membership = host.node.membership if host.node is not None else None
        view = membership.view if membership is not None else None
        if membership is None or view is None:
            unmet.append(f"{stage.name(host)} is {role_of(host)}")
            continue
        if {*view.members} != {other.member for other in hosts}:
            unmet.append(f"{stage.name(host)} has {stage.names.view(view)}")
        if membership.is_claiming or membership.suspicions.suspected or membership.master != view.master:
            unmet.append(f"{stage.name(host)} is {role_of(host)} and suspects {suspected_by(host, stage) or 'nobody'}")
    views = {repr(host.node.membership.view) for host in hosts if host.node is not None}
    if len(views) > 1:
        unmet.append("their views differ")
    return "; ".join(unmet) or ("" if hosts else "nobody runs")


def _merged(since: Since, text: str) -> str:
    """Check that all that run are together, their data too."""
    return _whole(since, text) or DATA_CONDITIONS["replicated"](since.stage, "")


def _event(since: Since, text: str) -> str:
    """`event [A B:] Kind field=value …`: each of them (or somebody) recorded such an event."""
    who, kind, fields = _parse_event(since, text)
    hits = [fact for fact in since.happened() if _is_such(fact, kind, fields)]
    missing = [name for name in who if all(_host_of(fact.who) != name for fact in hits)]
    if (who and not missing) or (not who and hits):
        return ""
    return f"not seen {'at ' + ' '.join(missing) if missing else 'anywhere'}"


def _no(since: Since, text: str) -> str:
    """`no event …`: nobody of those (or nobody at all) recorded one."""
    word, _, rest = text.partition(" ")
    if word != "event":
        raise wrong("no event …", text)
    who, kind, fields = _parse_event(since, rest)
    hits = [f for f in since.happened() if _is_such(f, kind, fields) and (not who or _host_of(f.who) in who)]
    return "; ".join(f"{fact.who}: {fact.kind} {fact.fields}" for fact in hits[:3])


def _host_of(incarnation: str) -> str:
    return incarnation.rstrip("0123456789")


def _parse_event(since: Since, text: str) -> tuple[list[str], str, dict[str, str]]:
    left, colon, right = text.partition(":")
    who = parsing.hosts(left, since.stage.names.hosts) if colon else []
    parts = (right if colon else left).split()
    if not parts or not all("=" in part for part in parts[1:]):
        raise wrong("an event such as MemberSuspected suspect=A rule=CS-33", text)
    return who, parts[0], dict(part.split("=", 1) for part in parts[1:])


def _is_such(fact: ScenarioFact, kind: str, fields: dict[str, str]) -> bool:
    if fact.kind != kind:
        return False
    unknown = fields.keys() - fact.fields.keys()
    if unknown:
        raise wrong(f"a field of {kind}, one of: {', '.join(fact.fields)}", sorted(unknown)[0])
    return all(
        value in fact.fields[name].split() if name == "rule" else fact.fields[name] == value
        for name, value in fields.items()
    )


def _sent(since: Since, text: str) -> str:
    """`sent Heartbeat A > B: 0`: so many messages of the kind since the mark."""
    left, colon, wanted = text.partition(":")
    kind, _, way = left.strip().partition(" ")
    if not colon or not parsing.is_message_kind(kind):
        raise wrong("a kind of message, a way, a colon and a number, for example Heartbeat A > B: 0", text)
    ways = parsing.one_way(way, since.stage.names.hosts)
    sent = since.stage.network.sent
    count = sum(sent[kind, *each] - since.sent[kind, *each] for each in ways)
    return "" if _is_amount(count, wanted.strip()) else str(count)


def _log(since: Since, text: str) -> str:
    """`log [legacy] A: line`: one line of the member list as it is logged at a member."""
    left, _, wanted = text.partition(": ")
    words = parsing.words(left)
    is_legacy = bool(words) and words[0] == "legacy"
    lines = log_lines(since.stage, parsing.host(" ".join(words[is_legacy:]), since.stage.names.hosts), legacy=is_legacy)
    return "" if wanted in lines else " / ".join(lines)


def log_lines(stage: Stage, name: str, *, legacy: bool) -> list[str]:
    """Return the member list as a member's log shows it."""
    node = stage.host(name).node
    if node is None or node.membership.view is None:
        return ["(in no cluster)"]
    return node.membership.view.log_lines(MemberId(node.this), legacy=legacy)


CONDITIONS: dict[str, Callable[[Since, str], str]] = {
    "down": _down,
    "event": _event,
    "log": _log,
    "master": _master,
    "masters": _masters,
    "merged": _merged,
    "no": _no,
    "role": _role,
    "runs": _runs,
    "sent": _sent,
    "suspects": _suspects,
    "version": _version,
    "view": _view,
    "whole": _whole,
}
