"""The commands of a scenario that are about data: what programs at members ask for, what administrators change, and what replicas hold.

Each call is one of the program that embeds the member. A command waits for the answer for a moment; one that comes later, `answers`
shows. It shows nothing where the answer is the expected one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.backups import BackupCount
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.common.map_settings import JournalSettings, MapChange, Protection
from phalanx.machine.inputs import Call, TimePassed
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import MAP
from phalanx_proof.sim.scenario import entries, parsing, wording
from phalanx_proof.sim.scenario.errors import wrong
from phalanx_proof.sim.scenario.programs import ScenarioCall
from phalanx_proof.sim.scenario.replicas import JournalReader, replicas
from phalanx_proof.sim.scenario.stage import Stage

PATIENCE_MS: Millis = 200
"""How long a command waits for the answer to a call."""
ADMIN_PATIENCE_MS: Millis = 20_000
"""How long an administrator asks again what the master is not ready for."""
LEASE_MS: Millis = 30_000
"""The lease of a lock where the scenario does not say."""

Lines = list[str]
Parsed = tuple[str, list[str], dict[str, str]]


class DataCommands:
    """Carries out the commands about data."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._programs = stage.programs
        self._journals = JournalReader(stage)

    # --- calls -----------------------------------------------------------------------------------------------------

    def put(self, text: str) -> Lines:
        """`put A x=1 k1..20=v [for 30s] [idle 5s] [in MAP] [token t1] [together]`."""
        name, words, options = self._parse(text, "for idle in token", "together")
        pairs = entries.pairs(words)
        map_name, ttl_ms, idle_ms = options.get("in", MAP), _ms(options, "for"), _ms(options, "idle")
        keys, values = zip(*((entries.encode(key), entries.encode(value)) for key, value in pairs), strict=True)
        if "together" in options:
            fields: tuple[Any, ...] = (map_name, keys, values, ttl_ms, idle_ms)
            return _unexpected(
                [("all", self._ask(name, "put", " ".join(words), "", keys[0], _done, m.PutAll, *fields))]
            )
        calls = []
        for (key, value), stored in zip(pairs, values, strict=True):
            data = entries.encode(key)
            if "token" in options:
                fence = self._programs.token(options["token"])
                call = self._ask(
                    name, "put", key, f"={value}", data, _done, m.WriteFenced, map_name, data, stored, ttl_ms, fence
                )
            else:
                call = self._ask(
                    name, "put", key, f"={value}", data, _done, m.Put, map_name, data, stored, ttl_ms, 0, 0, idle_ms
                )
            calls.append((key, call))
        return _unexpected(calls)

    def get(self, text: str) -> Lines:
        """`get A x k1..20 [in MAP]`; shows the values."""
        name, words, options = self._parse(text, "in")
        found = []
        for key in entries.keys(words):
            data = entries.encode(key)
            call = self._ask(name, "get", key, "", data, _value, m.Get, options.get("in", MAP), data)
            found.append((key, call.answer if isinstance(call.reply, m.ValueReply) else f": {call.answer}"))
        return [entries.shown(found)]

    def remove(self, text: str) -> Lines:
        """`remove A x k1..20 [in MAP] [token t1]`."""
        name, words, options = self._parse(text, "in token")
        map_name, calls = options.get("in", MAP), []
        for key in entries.keys(words):
            data = entries.encode(key)
            if "token" in options:
                fence = self._programs.token(options["token"])
                call = self._ask(name, "remove", key, "", data, _done, m.WriteFenced, map_name, data, None, 0, fence)
            else:
                call = self._ask(name, "remove", key, "", data, _done, m.Remove, map_name, data)
            calls.append((key, call))
        return _unexpected(calls)

    def clear(self, text: str) -> Lines:
        """`clear A [in MAP]`."""
        name, words, options = self._parse(text, "in")
        _no_words(words)
        count = self._node(name).installed_table.table.partition_count
        fields = [(options.get("in", MAP), (partition,), count) for partition in range(count)]
        calls = [
            self._call(name, "clear partition", f"{each[1][0]}", "", each[1][0], _done, m.ClearPartitions, *each)
            for each in fields
        ]
        return _unexpected([(f"partition {partition}", call) for partition, call in enumerate(calls)])

    def data(self, text: str) -> Lines:
        """Let the program at a member store an entry: its cluster has data from then on."""
        for name in parsing.hosts(text, self._stage.names.hosts):
            key, value = entries.encode("key"), entries.encode("value")
            call = self._programs.note(f"{name} data", "key", "", _done)
            self._feed(name, Call(0, m.Put(call.number, "scenario", key, value, 0)))
        self._step(1)
        return []

    def _parse(self, text: str, with_value: str = "", flags: str = "") -> Parsed:
        """Split `A x y for 30s together` into the host, the words, and the options."""
        name, *rest = text.split() or [""]
        parsing.host(name, self._stage.names.hosts)
        self._node(name)
        known, alone = with_value.split(), flags.split()
        words: list[str] = []
        options: dict[str, str] = {}
        while rest:
            word = rest.pop(0)
            if word in alone:
                options[word] = ""
            elif word in known:
                if not rest:
                    raise wrong(f"something behind {word!r}")
                options[word] = rest.pop(0)
            elif options:
                raise wrong(f"nothing more, or one of: {', '.join([*known, *alone])}", word)
            else:
                words.append(word)
        return name, words, options

    def _node(self, name: str) -> Node:
        node = self._stage.host(name).node
        if node is None:
            raise wrong("a host where a member runs", name)
        return node

    def _ask(
        self, name: str, verb: str, key: str, behind: str, data: bytes,
        words: Callable[[m.Reply], str], make: Callable[..., m.Request], *fields: Any,
    ) -> ScenarioCall:  # fmt: skip
        """Make a call about a serialised key, and wait for its answer for a moment."""
        partition = partition_of(data, self._node(name).installed_table.table.partition_count)
        return self._call(name, verb, key, behind, partition, words, make, *fields)

    def _call(
        self, name: str, verb: str, key: str, behind: str, partition: int,
        words: Callable[[m.Reply], str], make: Callable[..., m.Request], *fields: Any,
    ) -> ScenarioCall:  # fmt: skip
        call = self._programs.note(f"{name} {verb}", key, behind, words)
        self._feed(name, Call(partition, make(call.number, *fields)))
        return self._await(call)

    def _feed(self, name: str, call: Call) -> None:
        stage = self._stage
        stage.queue.call_at(stage.now, stage.feed, stage.host(name), self._node(name).this, call)

    def _await(self, call: ScenarioCall, at_most: Millis = PATIENCE_MS) -> ScenarioCall:
        """Let time pass until a call is answered."""
        began = self._stage.now
        while call.reply is None and self._stage.now - began < at_most:
            self._step(1)
        call.is_shown = call.reply is not None
        return call

    def _step(self, ms: Millis) -> None:
        self._stage.run_until(self._stage.now + ms)

    def answers(self, text: str) -> Lines:
        """Show the answers that came since the command that asked; those alike once."""
        _no_words(text.split())
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for call in self._programs.not_shown():
            alike.setdefault((call.who, call.answer), []).append((call.key, call.behind))
        return [f"{who} {entries.shown(asked)}: {answer}" for (who, answer), asked in alike.items()] or ["nothing"]

    # --- locks -----------------------------------------------------------------------------------------------------

    def lock(self, text: str) -> Lines:
        """`lock A x by one [for 10s] [wait 5s] [permits 2] [in MAP]`; shows the token."""
        name, key, options = self._parse_lock(text, "for wait permits in")
        permits = parsing.number(options.get("permits", "0"), "how many can hold it")
        lease_ms, wait_ms = _ms(options, "for", LEASE_MS), _ms(options, "wait")
        fields = (options.get("in", MAP), entries.encode(key), options["by"], permits, lease_ms, wait_ms, 0)
        call = self._ask(
            name, "lock", key, f" by {options['by']}", entries.encode(key), self._granted, m.AcquireLock, *fields
        )
        return ["waits"] if call.reply is None else [call.answer]

    def _granted(self, reply: m.Reply) -> str:
        if not isinstance(reply, m.LockReply):
            return str(reply)
        waited = f" after {reply.waited_ms} ms" if reply.waited_ms else ""
        return f"granted {self._programs.name_of(reply.token)}{waited}" if reply.token else f"not granted{waited}"

    def unlock(self, text: str) -> Lines:
        """`unlock A x by one [permit] [in MAP]`."""
        return self._ask_of_holder("unlock", text, m.ReleaseLock)

    def renew(self, text: str) -> Lines:
        """`renew A x by one [permit] [in MAP]`."""
        return self._ask_of_holder("renew", text, m.RenewLock)

    def _ask_of_holder(self, what: str, text: str, make: Callable[..., m.Request]) -> Lines:
        """Ask the owner of a lock for what its holder can do with it."""
        name, key, options = self._parse_lock(text, "in", "permit")
        data = entries.encode(key)
        fields = (options.get("in", MAP), data, options["by"], "permit" in options)
        call = self._ask(name, what, key, f" by {options['by']}", data, _had_it, make, *fields)
        return _unexpected([(key, call)])

    def holders(self, text: str) -> Lines:
        """`holders A x [permit] [in MAP]`: who holds the lock of a key, and how many wait, as its owner says."""
        name, words, options = self._parse(text, "in", "permit")
        if len(words) != 1:
            raise wrong("a key", " ".join(words))
        data = entries.encode(words[0])
        fields = (options.get("in", MAP), data, "permit" in options)
        return [self._ask(name, "holders", words[0], "", data, self._holders, m.GetLock, *fields).answer]

    def _holders(self, reply: m.Reply) -> str:
        if not isinstance(reply, m.LockStateReply):
            return str(reply)
        held = [
            f"{holder} ({self._programs.name_of(token)})"
            for holder, token in zip(reply.holders, reply.tokens, strict=True)
        ]
        return wording.names_or_nobody(held) + (f", {reply.waiting} waiting" if reply.waiting else "")

    def _parse_lock(self, text: str, with_value: str, flags: str = "") -> tuple[str, str, dict[str, str]]:
        name, words, options = self._parse(text, f"by {with_value}", flags)
        if len(words) != 1 or "by" not in options:
            raise wrong("a key and who asks, such as x by one", " ".join(words))
        return name, words[0], options

    # --- administrators --------------------------------------------------------------------------------------------

    def map(self, text: str) -> Lines:
        """`map A max_entries=3 eviction=lru [in MAP]`: the master of A's side changes settings of a map."""
        name, words, options = self._parse(text, "in")
        change = _change(words)
        return self._administer(self._master_of(name), "map", m.ChangeMap, options.get("in", MAP), change)

    def partitions(self, text: str) -> Lines:
        """`partitions A 4`: the master of A's side divides the partitions."""
        name, words, _ = self._parse(text)
        count = parsing.number(" ".join(words), "a number of partitions")
        return self._administer(self._master_of(name), "partitions", m.ChangePartitionCount, count)

    def lite(self, text: str) -> Lines:
        """`lite A`: A is to hold no data; `lite A no`: it is to hold data again."""
        name, words, _ = self._parse(text)
        if words not in ([], ["no"]):
            raise wrong("nothing more, or no", " ".join(words))
        return self._administer(name, "lite", m.ChangeLite, not words)

    def move(self, text: str) -> Lines:
        """`move 0: B A`: the master plans that these hold the partition, owner first; `until row …` waits for it."""
        left, colon, row = text.partition(":")
        if not colon:
            raise wrong("a partition, a colon and its replicas, such as 0: B A", text)
        partition = parsing.number(left.strip(), "a partition and its replicas, such as 0: B A")
        names = parsing.hosts(row, self._stage.names.hosts)
        master = self._stage.host(self._master_of(names[0]))
        node, wanted = master.running_node, tuple(MemberId(self._node(name).this) for name in names)
        table = node.installed_table.table
        if partition >= table.partition_count or not node.installed_table.is_assigned:
            raise wrong(
                f"one of the {table.partition_count} partitions, which are assigned when something is stored", left
            )
        rows = [wanted if number == partition else table.slots(number) for number in range(table.partition_count)]
        self._stage.queue.call_at(self._stage.now, self._plan, master, node, rows)
        self._step(1)
        return []

    def _plan(self, master: Host, node: Node, rows: list[tuple[MemberId | None, ...]]) -> None:
        coordinator, table = node.coordinator, node.installed_table.table
        coordinator.migrations.plan(table, rows, len(rows[0]), "the scenario wants it")
        coordinator._go_on(self._stage.now)
        node.alarms.follow()
        self._stage.feed(master, node.this, TimePassed())

    def _master_of(self, name: str) -> str:
        master = self._node(name).membership.master
        if master is None:
            raise wrong("a member of a cluster", name)
        return self._stage.names[master].rstrip("0123456789")

    def _administer(self, name: str, text: str, make: Callable[..., m.Request], *fields: Any) -> Lines:
        """Ask a member until it is done, as administrators do while the answer is that it is not ready."""
        began = self._stage.now
        while True:
            call = self._programs.note(name, text, "", _done)
            self._feed(name, Call(0, make(call.number, *fields), to=self._node(name).this))
            self._await(call, ADMIN_PATIENCE_MS)
            is_early = isinstance(call.reply, m.ErrorReply) and call.reply.code is ErrorCode.NOT_READY
            if not is_early or self._stage.now - began >= ADMIN_PATIENCE_MS:
                return _unexpected([(name, call)])
            self._step(PATIENCE_MS)

    # --- looking ---------------------------------------------------------------------------------------------------

    def replicas(self, text: str) -> Lines:
        """Show who holds what of each partition: version and row, and the last write and the content of each replica."""
        _no_words(text.split())
        return replicas(self._stage)

    def journal(self, text: str) -> Lines:
        """Show what the journals of the map have recorded since the last `journal`."""
        _no_words(text.split())
        return self._journals.read()


def _ms(options: dict[str, str], name: str, usual: Millis = 0) -> Millis:
    return parsing.duration(options[name]) if name in options else usual


def _no_words(words: list[str]) -> None:
    if words:
        raise wrong("nothing more in this line", " ".join(words))


def _done(reply: m.Reply) -> str:
    return "done"


def _value(reply: m.Reply) -> str:
    value = reply.value if isinstance(reply, m.ValueReply) else None
    return "=none" if value is None else f"={entries.decode(value)}"


def _had_it(reply: m.Reply) -> str:
    return "done" if isinstance(reply, m.FlagReply) and reply.flag else "it is not held by that one"


def _unexpected(calls: list[tuple[str, ScenarioCall]]) -> Lines:
    """Return the answers that are not the expected one, those alike once."""
    found = [(key, f": {call.answer}") for key, call in calls if call.answer != "done"]
    return [entries.shown(found)] if found else []


def _backups(text: str) -> BackupCount:
    """Parse `2`, or `1+1`: one synchronous backup and an asynchronous one."""
    synchronous, _, asynchronous = text.partition("+")
    what = "a number of backups, such as 1 or 1+1"
    return BackupCount(parsing.number(synchronous, what), parsing.number(asynchronous or "0", what))


_SETTINGS: dict[str, Callable[[str], MapChange]] = {
    "backups": lambda value: MapChange(backups=_backups(value)),
    "eviction": lambda value: MapChange(eviction=value),
    "journal": lambda value: MapChange(journal=JournalSettings(parsing.number(value, "a number of events"))),
    "majority": lambda value: MapChange(protection=Protection(majority=value == "yes")),
    "max_bytes": lambda value: MapChange(max_bytes=parsing.number(value, "a number of bytes")),
    "max_entries": lambda value: MapChange(max_entries=parsing.number(value, "a number of entries")),
    "max_idle": lambda value: MapChange(max_idle_ms=parsing.duration(value)),
    "merge_policy": lambda value: MapChange(merge_policy=value),
    "minimum": lambda value: MapChange(protection=Protection(parsing.number(value, "a number of members"))),
}


def _change(words: list[str]) -> MapChange:
    change = MapChange()
    for word in words:
        name, _, value = word.partition("=")
        if name not in _SETTINGS or not value:
            raise wrong(f"settings such as max_entries=3, one of: {', '.join(_SETTINGS)}", word)
        change = _SETTINGS[name](value).over(change)
    return change


DATA_COMMANDS: dict[str, Callable[[DataCommands, str], Lines]] = {
    name: getattr(DataCommands, name)
    for name in (
        "answers", "clear", "data", "get", "holders", "journal", "lite", "lock", "map", "move", "partitions", "put", "remove", "renew",
        "replicas", "unlock",
    )
}  # fmt: skip
