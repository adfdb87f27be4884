"""A client as a state machine: the members, the newest partition table, and the calls under way.

The blocking and the asyncio client drive it; it does no I/O. Any member can send the table. The client asks for it when
a call finds no owner, and from time to time while calls are made, so that it knows members which joined later when the
present ones are gone. A member that refuses a call because the partition has moved is asked at once: it knows the new
owner. An idle client sends nothing. `cluster_affinity` decides whose table the client believes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from phalanx.calls.call_router import CallRouter, why_no_owners
from phalanx.client.core.cluster_affinity import ClusterAffinity, ClusterState, Contact
from phalanx.client.core.detours import QUIET_MS, Detours
from phalanx.client.core.seeds import SeedCheck
from phalanx.client.core.staleness import Staleness
from phalanx.client.core.two_clusters import side_of
from phalanx.common.errors import ConnectError, ErrorCode, TwoClusters
from phalanx.common.ids import Address, MemberId, Millis, Target, address_of
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine.effects import Effect, Send
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import ErrorReply, GetTable, Reply, TableReply

ASK_PAUSE_MS = 10
"""The pause between two requests for the table while a call waits for a newer one; doubles up to `ASK_PAUSE_MAX_MS`."""
ASK_PAUSE_MAX_MS = 40
ASK_TIMEOUT_MS = 1_000
"""The time after which the client asks another member for the table: the one that it asked can hang."""

MOVED = (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)
"""The errors of a member whose table names another owner."""

QUESTIONS_FROM = 1 << 62
"""Ids above this are the core's own requests. Ids of calls count up from 1, those of repeated tries down from -1."""
NEWS_AFTER_MS = 5_000
"""A call also asks for the table if the last answer is older than this."""
DOUBT_AFTER_MS = 300
"""While a call has waited this long, the core keeps asking for the table: the owner can hang, or be replaced."""


class ClientCore:
    """What one client knows about the cluster, and its calls."""

    def __init__(
        self,
        seeds: Sequence[Address],
        call_timeout_ms: Millis,
        cluster: str = "phalanx",
        contact: Contact | None = None,
    ) -> None:
        """`contact`: when the client's cluster was heard last, shared by all cores of the client."""
        self._out = Outbox()
        self._router = CallRouter(call_timeout_ms, self._out, tells_links=True)
        self._seeds = list(seeds)
        self._cluster = cluster
        self._affinity = ClusterAffinity(cluster, seeds, contact or Contact())
        self._contact = self._affinity.contact
        self.detours = Detours(self._contact.through)
        self.state = ClusterState()
        self.wants_assignment = False
        """Whether the client waits for `table` although no call does."""
        self.problems: dict[str, str] = {}
        """Member to the problem with the last request for its table."""
        self._candidates: list[Target] = []
        """The members to ask for the table next, in this order."""
        self._names: dict[Target, MemberId] = {}
        """Address or member to the incarnation that answered there, while the connection to it lasts."""
        self.check: SeedCheck | None = None
        """The check whether the seeds belong to one cluster; None: it was not begun, or is over."""
        self._silent: set[Address] = set()
        """Addresses of members of `view` that could not be reached last, and have not answered since."""
        self._refused: tuple[Target, int] | None = None
        """The member last asked for its table after it refused a call, and the table version of that call."""
        self._asked: Target | None = None
        self._asked_id = QUESTIONS_FROM
        self._ask_deadline = 0
        self._ask_at = 0
        self._pause_ms = ASK_PAUSE_MS
        self.news_at = 0
        """When a call next asks also for the table."""
        self._doubt_at = 0
        """When the core next asks for the table because a call waits for long."""

    @property
    def view(self) -> MembersView | None:
        """Return the newest view known."""
        return self.state.view

    @property
    def table(self) -> PartitionTable | None:
        """Return the newest partition table known."""
        return self.state.table

    @property
    def partition_count(self) -> int | None:
        """Return how many partitions the cluster has, if that is known."""
        return self.state.partition_count

    @property
    def wants_table(self) -> bool:
        """Return whether a call, or the connecting client, waits for a newer table."""
        return (
            self.state.partition_count is None
            or bool(self._router.waiting)
            or (self.wants_assignment and self.table is None)
        )

    @property
    def no_owners(self) -> str:
        """Return why no partition has an owner or will get one without an operator; empty: it has, or it is unknown."""
        return self._router.no_owners or self._affinity.conflict

    def take_remarks(self) -> list[str]:
        """Return what to log since the last call."""
        remarks, self._affinity.remarks = self._affinity.remarks + self.detours.remarks, []
        self.detours.remarks.clear()
        return remarks

    def is_refused_by_all(self, refusals: Mapping[str, str]) -> bool:
        """Return whether all seeds have refused. A single one can be a foreign process at a former member's address."""
        return refusals.keys() >= set(self._seeds)

    def _why_not_ready(self, refusals: Mapping[str, str], timeout_s: float) -> str:
        """Say in words why no member has answered: the reasons of refusals, else each address's problem."""
        problems = refusals or self.problems
        causes = "; ".join(f"{target}: {text}" for target, text in sorted(problems.items())) or "no answer"
        if refusals:
            return f"cannot connect: {causes}"
        return f"no member was ready within {timeout_s:g} s: {causes}; check the addresses, and that members run there"

    @property
    def is_asking(self) -> bool:
        """Return whether a request for the table is under way."""
        return self._asked is not None

    def refresh(self, now: Millis) -> list[Effect]:
        """Ask for a newer table although no call waits for one: a bulk request was refused and must be split again."""
        self._ask_at = min(self._ask_at, now)
        self._ask(now)
        return self._out.take()

    def learn_seeds(self, addresses: Sequence[Address]) -> None:
        """Take other seeds: sources of seeds give other addresses than before. With none it keeps those that it has."""
        if addresses and list(addresses) != self._seeds:
            self._seeds, self._candidates = list(addresses), []
            self._affinity.learn_seeds(addresses)

    def connect(self, now: Millis) -> list[Effect]:
        """Ask the seeds until one answers. Then ask the seeds outside its view, which can belong to another cluster."""
        self.check = SeedCheck(self._cluster, self._seeds)
        return self.time_passed(now)

    @property
    def is_connected(self) -> bool:
        """Return whether a member has answered and the check of the seeds is over, so that calls can begin."""
        return self.partition_count is not None and (self.check is None or self.check.is_over)

    def why_not_connected(self, refusals: Mapping[str, str], timeout_s: float) -> ConnectError | None:
        """Return the error to raise if this client cannot be used; None: it can. Ends the check of the seeds."""
        conflict, self.check = self.check.conflict if self.check is not None else "", None
        if self.partition_count is None:
            return ConnectError(self._why_not_ready(refusals, timeout_s))
        return TwoClusters(conflict) if conflict else None

    def call(self, call: Call, now: Millis) -> list[Effect]:
        """Begin a call. Its one `Answer` is among the returned effects or later ones."""
        self._router.begin_call(call, now)
        if self._router.waiting or now >= self.news_at:
            self._ask(now)
        if self._contact.through:
            self.detours.look_back(now)
        return self._out.take()

    def owner_for_only_call(self, partition: int, now: Millis) -> MemberId | None:
        """Return the owner to ask if nothing else is under way; None: use `call`.

        The core does not record such a call: the next message from the owner is its answer. If something else happens,
        `was_sent` records it.
        """
        if self._asked is not None or now >= self.news_at:
            return None
        return self._router.owner_for_only_call(partition)

    def was_sent(self, call: Call, target: Target, at: Millis) -> None:
        """Record a call that was sent to its owner at time `at`, and whose answer was not the next message."""
        self._router.was_sent(call, target, at)

    def is_current_try(self, message: Any) -> bool:
        """Return whether a message that was queued until a connection is open must still be sent."""
        return message.id > QUESTIONS_FROM or self._router.is_current_try(message.id)

    def end(self, reason: str) -> list[Effect]:
        """End all calls under way with an error."""
        self._router.end(reason)
        return self._out.take()

    def adopt(self, state: ClusterState, now: Millis) -> list[Effect]:
        """Take over what another core of the same client has learned: it has judged that as this one would have."""
        if state.view is not None and state.view != self.view:
            self._silent &= set(map(address_of, state.view.members))
            self._follow(state.view, now)
        is_newer = state.table is not None and state.table is not self.table
        self.state = state
        if is_newer and state.table is not None:
            self._use(state.table, now)
        return self._out.take()

    def received(self, sender: Target, reply: Any, now: Millis) -> list[Effect]:
        """Handle a member's answer to a call, or to a request for the table."""
        self.detours.heard[sender] = now  # type: ignore[index]  # members answer
        if self._silent and self.view is not None and sender in self.view.members:
            self._silent.discard(_where(sender))
        if reply.id > QUESTIONS_FROM:
            if sender == self._asked and reply.id == self._asked_id:
                self._on_table_answer(sender, reply, now)
            elif self.check is not None:
                self.check.on_answer(reply)
        else:
            router, contact = self._router, self._contact
            router.on_reply(sender, reply, now)
            if router.answered_at > contact.heard_at:
                contact.heard_at = router.answered_at
            if type(reply) is ErrorReply:
                self._on_refusal(sender, reply, now)
            else:
                contact.served[sender] = now  # type: ignore[index]  # members answer
                if router.waiting:
                    self._ask(now)
        return self._out.take()

    def _on_refusal(self, sender: Target, refusal: ErrorReply, now: Millis) -> None:
        if refusal.code is ErrorCode.NOT_ENOUGH_MEMBERS:
            self._contact.served.pop(MemberId(sender), None)  # its side is of no use: another one can be
        if refusal.code in MOVED:
            self._on_moved(sender, now)
        elif self._router.waiting:
            self._ask(now)

    def _heard_at(self, member: MemberId) -> Millis:
        return max(self.detours.heard.get(member, 0), self._contact.served.get(member, 0))

    def _on_moved(self, sender: Target, now: Millis) -> None:
        """Ask a member for its table first: it refused a call because it does not own the partition.

        It is asked at once, even if another member is being asked, which can hang. But it is asked once only for each
        version of this client's table: a member that lacks its own table refuses again and again.
        """
        if self._asked == sender:
            return  # Its answer comes after the refusal, so it is new enough.
        refused = (sender, self.table.version if self.table is not None else 0)
        if refused != self._refused:
            self._refused = refused
            self._asked = None
            self._ask_at = now
        self._candidates = [sender, *self._candidates]
        self._ask(now)

    def cannot_send(self, effect: Send, reason: str, code: ErrorCode = ErrorCode.TOO_LARGE) -> list[Effect]:
        """End the call of a request that cannot be sent: it is too long, or too many bytes wait for its owner."""
        reply = ErrorReply(getattr(effect.message, "id", 0), code, reason)
        self._router.on_reply(effect.to, reply, 0)
        return self._out.take()

    def known_as(self, target: Target, member: MemberId, through: MemberId | None = None) -> None:
        """Note that a connection is open, and which member answered at the address: its answers carry its identity.

        `through`: the member that passes it on; None: it is direct.

        Drivers call this before they send on the connection: only requests given to an open connection may have left.
        """
        self._router.on_link_up(target)
        self._router.on_link_up(member)
        self._names[target] = self._names[address_of(member)] = member
        self.detours.opened(member, through)
        if self.view is not None and member in self.view.members:
            self._silent.discard(address_of(member))
        else:
            self._silent.add(address_of(member))
        if self._asked == target:
            self._asked = member

    def link_lost(self, event: LinkLost | LinkRefused, now: Millis) -> list[Effect]:
        """Handle a connection that broke, or could not be made."""
        reason = event.reason if isinstance(event, LinkRefused) else "the connection was lost"
        self._router.on_link(event, now)
        self.detours.lost(event.peer)
        self._contact.served.pop(MemberId(event.peer), None)
        if self.check is not None:
            self.check.on_lost(event.peer)
        if isinstance(event, LinkRefused):
            self._silent.add(_where(event.peer))
        self._names = {target: member for target, member in self._names.items() if member != event.peer}
        if event.peer == self._asked:
            self._asked = None
            self.problems[event.peer] = reason
        if self.wants_table:
            self._ask(now)
        return self._out.take()

    def time_passed(self, now: Millis) -> list[Effect]:
        self._router.on_time(now)
        if self.check is not None:
            self.check.on_time(now)
        if self._asked is not None and now >= self._ask_deadline:
            self.problems[self._asked] = f"no answer within {ASK_TIMEOUT_MS} ms"
            self._silent.add(_where(self._asked))
            self._asked = None
        doubt_at = self._next_doubt()
        if doubt_at is not None and now >= doubt_at:
            self._doubt_at = now + DOUBT_AFTER_MS
            self._doubt(now)
        elif self.wants_table:
            self._ask(now)
        for target, since in self._router.waited_for(now - QUIET_MS).items():
            if self.view is not None and self.detours.begin_probe(target, since, self.view, now):
                self._asked_id += 1
                self._out.send(target, GetTable(self._asked_id, False))
        return self._out.take()

    def _doubt(self, now: Millis) -> None:
        """Ask for the table, and last the member for which a call waits: it would not answer this either."""
        waited_for = self._router.waited_for_longest()
        if waited_for is not None:
            if self._asked == waited_for:
                self._asked = None
                self._ask_at = now
            self._fill_candidates()
            where = _where(waited_for)
            self._candidates.sort(key=lambda candidate: _where(candidate) == where)
        self._ask(now)

    def _next_doubt(self) -> Millis | None:
        """Return when the core next asks for the table because of the oldest call under way; None: no call waits."""
        since = self._router.waiting_since()
        return max(since + DOUBT_AFTER_MS, self._doubt_at) if since is not None else None

    def next_deadline(self) -> Millis | None:
        deadlines = [self._router.next_deadline(), self._next_doubt()]
        if self.check is not None:
            deadlines.append(self.check.deadline)
        if self._asked is not None:
            deadlines.append(self._ask_deadline)
        elif self.wants_table:
            deadlines.append(self._ask_at)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _ask(self, now: Millis) -> None:
        """Ask the next candidate for its table, unless a request is under way or it is too early."""
        if self._asked is not None or now < self._ask_at:
            return
        self._fill_candidates()
        candidate = self._candidates.pop(0)
        self._asked = self._names.get(candidate, candidate)
        self._asked_id += 1
        self._ask_deadline = now + ASK_TIMEOUT_MS
        self._ask_at = now + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, ASK_PAUSE_MAX_MS)
        # A client that only connects does not cause the first assignment: members that are still starting would get no
        # partitions.
        is_for_use = bool(self._router.waiting) or self.wants_assignment
        self._out.send(self._asked, GetTable(self._asked_id, is_for_use))

    def _fill_candidates(self) -> None:
        if not self._candidates:
            # Addresses, not incarnations: a newer incarnation there can answer as well.
            members = self.view.members if self.view is not None else ()
            self._candidates = list(dict.fromkeys([*map(address_of, members), *self._seeds]))

    def _on_table_answer(self, sender: Target, reply: Reply, now: Millis) -> None:
        self._asked = None
        if isinstance(reply, ErrorReply):
            self.problems[sender] = reply.text
        elif isinstance(reply, TableReply):
            standing = self._affinity.judge(self.state, sender, reply, self._silent, now)
            self._router.timeout_hint = self._affinity.conflict
            if standing is Staleness.CURRENT and (
                used := self._affinity.others_used(self.state, reply.view, self._silent, self._heard_at, now)
            ):
                # Another side of a cut: the members that this client uses are asked, and say how theirs is now.
                self._candidates = [*used, *self._candidates]
                self._ask_at = now
                self._ask(now)
                return
            if standing is Staleness.APART:
                # `news_at` stays: the next call asks another member.
                self.problems[sender] = "it is not, or no longer, in the cluster that this client knows"
                return
            self._affinity.note_table(self._ask_deadline - ASK_TIMEOUT_MS)
            self.detours.note_table(sender, now)
            self._router.timeout_hint = ""
            self.news_at = now + NEWS_AFTER_MS
            if self.table is None:
                self.state = self.state._replace(partition_count=reply.table.partition_count)
            self._take(reply, standing, now)
            if self.check is not None and not self.check.has_begun:
                self._check_seeds(sender, reply, now)
            if not self.wants_table:
                self._pause_ms = ASK_PAUSE_MS
            if not reply.table.is_assigned:
                self.problems[sender] = "the cluster has not assigned its partitions yet"

    def _check_seeds(self, sender: Target, reply: TableReply, now: Millis) -> None:
        known = {seed for seed in self._seeds if self._names.get(seed, "") in reply.view}
        for seed in self.check.begin(reply, known, self._asked_id, now) if self.check is not None else ():
            self._asked_id += 1
            self._out.send(seed, GetTable(self._asked_id, False))

    def _take(self, reply: TableReply, standing: Staleness, now: Millis) -> None:
        """Keep the newer table and the newer view.

        A table that names members that have left is staler than one that does not, whatever its version: a master may
        have published its last versions only to this client before it crashed.
        """
        view, known, table = reply.view, self.table, reply.table
        if standing is not Staleness.BEHIND:
            side = side_of(reply, self.state.side if standing is Staleness.CURRENT else None)
            if side != self.state.side:
                self.state = self.state._replace(view=view, side=side)
            self._follow(view, now)
            self._router.no_owners = why_no_owners(view, reply.restart_wait)
            addresses = set(map(address_of, view.members))
            self._silent = self._silent & addresses if standing is Staleness.CURRENT else set()
        if not table.is_assigned:
            return
        is_newer = known is None or standing is Staleness.ANOTHER or table.version > known.version
        if not is_newer and known is not None and standing is Staleness.CURRENT:
            is_newer = not set(known.members) <= set(view.members) and set(table.members) <= set(view.members)
        if is_newer:
            self.state = self.state._replace(table=table, partition_count=table.partition_count)
            self._use(table, now)

    def _follow(self, view: MembersView, now: Millis) -> None:
        self.detours.keep_to(view)
        for member in [member for member in list(self._contact.served) if member not in view]:
            self._contact.served.pop(member, None)
        self._router.no_owners = why_no_owners(view, None)
        self._router.on_view(frozenset(view.members), now)

    def _use(self, table: PartitionTable, now: Millis) -> None:
        self.problems.clear()
        self._candidates = []
        self._pause_ms = ASK_PAUSE_MS
        self._router.on_table(table, now)


def _where(target: Target) -> Address:
    """Return the address of a target, which is a member or an address."""
    return address_of(cast("MemberId", target))
