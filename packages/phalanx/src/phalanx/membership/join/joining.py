"""How a starting member joins a cluster (docs/protocol/joining.md).

An attempt lasts at most `join_timeout_ms`. In it every seed is asked. A seed that is not reachable or not ready is
asked again after a pause; one that knows the master redirects to it. The joining ends when

* a master admits this member, or
* there is no other seed to ask: this member is the seed, and forms the cluster at once, or
* this member is the first of several seeds, and each of the others said in one attempt that it has no cluster either,
  or could not be reached twice in a row (only the first does so: two that start together must not form two clusters;
  and where one has a cluster that is just not ready, a restarted first seed must not form another), or
* a member refuses for good (another cluster's name, another protocol). Where the cluster has a secret, only a member
  that has proved to know it: any process can listen at the address of a seed, and is passed over, or
* all attempts have failed.

Members that each name all others, and not themselves, are seeds of each other (`mutual_seeds`): the one with the
smallest address forms the cluster when all have asked it, and said that they have none.

A master can tell a joiner to reach some members first, to which its links were broken before. Until it can, it waits,
and asks that master repeatedly; such an attempt does not fail.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from phalanx.common.config import NodeConfig
from phalanx.common.departure import Departures
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, Millis, address_of, incarnation_of, parse_address
from phalanx.common.quorum import VoterHistory
from phalanx.common.versions import agree, range_words, this_release
from phalanx.common.words import counted
from phalanx.machine.inputs import LinkLost, LinkRefused
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.mutual_seeds import MutualSeeds
from phalanx.wire.join_events import JoinAttemptFailed, JoinWaits
from phalanx.wire.messages import (
    JoinRedirect,
    JoinRefused,
    JoinRequest,
    ReachAnswer,
    ReachProbe,
)


def refusal_of(
    sender: MemberId, request: JoinRequest, this: MemberId, config: NodeConfig, partition_count: int, has_data: bool
) -> str:
    """Return why this member can never grant a request; empty: it can.

    `partition_count`: what the cluster has; the count with which this member was configured is accepted as well.
    `has_data`: whether the cluster's partitions are assigned.
    """
    if sender == this:
        return f"it is this member itself under another name; as a seed, give it as {address_of(this)}"
    if request.member != sender:
        return f"{sender} asks for another, {request.member}: each member asks for itself"
    try:
        parse_address(address_of(sender))
    except UsageError as error:
        return str(error)
    if not incarnation_of(sender):
        return f"{sender!r} names no incarnation: the peer is no member of this version"
    if address_of(sender) == address_of(this):
        return (
            f"this member itself listens at {address_of(this)}: give each member an address of its own that all "
            f"others can reach"
        )
    if request.cluster != config.cluster:
        return f"this member belongs to cluster {config.cluster!r}, not to {request.cluster!r}"
    if agree(this_release(), request.release) is None:
        return f"this cluster speaks {range_words(this_release())}, not {range_words(request.release)}: upgrade the older side"
    if request.lease_ms != config.lease_ms:
        return (
            f"this cluster has leases of {config.lease_ms} ms, the joiner is configured for {request.lease_ms}: set lease_ms "
            f"to the same number"
        )
    # Once there is data the count of the cluster holds, and the joiner takes it: one from before a division will do.
    is_former = has_data and request.partition_count > 0 and partition_count % request.partition_count == 0
    # A folder can also know of a division that this cluster, or this member alone, has not heard of.
    if request.stored_root and request.partition_count > 0:
        is_former = max(partition_count, request.partition_count) % min(partition_count, request.partition_count) == 0
    if request.partition_count not in (config.partition_count, partition_count) and not is_former:
        return (
            f"this cluster has {counted(partition_count, 'partition')}, the joiner is configured for "
            f"{request.partition_count}: set partition_count to the same number"
        )
    return ""


class JoinOutcome(enum.Enum):
    """What follows from an input."""

    WAITING = enum.auto()
    FORM = enum.auto()
    FAILED = enum.auto()


class Joining:
    """The joining of one member; made when it starts, dropped when it has joined."""

    forms_by = "EL-05 the seed forms the cluster"
    """The rule by which this member forms a cluster, if it does."""
    can_be_mutual = True
    """Whether this kind of joining looks for members that are seeds of each other."""

    def __init__(
        self, local: LocalContext, now: Millis, memory: VoterHistory | None = None, departures: Departures = ()
    ) -> None:
        """`departures`: what this process knows of members that went."""
        config = local.config
        self._local = local
        self._departures = departures
        self._memory = memory
        self.traits = config.traits._replace(lite=config.lite and not local.brings_data)
        own = address_of(local.this)
        self._seeds = [seed for seed in dict.fromkeys(config.seed_addresses) if seed != own]
        self._known = tuple(self._seeds)
        """Where members of the cluster can be: the master that admits this member looks there too."""
        self._first_seed = bool(config.seeds) and config.seeds[0] == own
        is_mutual = self.can_be_mutual and bool(self._seeds) and own not in config.seed_addresses
        self._mutual = MutualSeeds(own, self._seeds) if is_mutual else None
        self._retry_pause_ms = config.join_retry_pause_ms
        self._attempt = 0
        self._request_id = 0
        self._attempt_ends = now
        self._ask_at: dict[Address | MemberId, Millis] = {}
        """The address to ask next to the time: seeds, and masters to which a seed redirected."""
        self._waiting_for: set[Address | MemberId] = set()
        self._without_cluster: set[Address] = set()
        """Seeds that, in this attempt, were in no cluster or did not run."""
        self._unreachable: set[Address] = set()
        """Seeds that could not be reached when they were last asked in this attempt."""
        self._found_cluster = False
        """Whether a process was found in this attempt that is in a cluster, or can be."""
        self._reasons: dict[str, str] = {}
        self._to_reach: frozenset[MemberId] = frozenset()
        """Members that this one must reach before the master admits it."""
        self._reached: set[MemberId] = set()
        """The members among `_to_reach` that have answered since the last request to the master."""
        self._held_back_by: MemberId | None = None
        self._named: frozenset[MemberId] = frozenset()
        """Members that the last request named as reached."""
        self._asks_at_once = False
        """Whether it asks the master again as soon as they have answered, and not at the next beat."""
        self.failure = ""

    @property
    def heard_of(self) -> Collection[Address]:
        """Return addresses that only other members have named: a forming member looks for a cluster there."""
        return ()

    @property
    def seeds(self) -> Collection[Address]:
        """Return the addresses that are asked."""
        return self._seeds

    def __repr__(self) -> str:
        return f"Joining(attempt={self._attempt}, waiting_for={sorted(self._waiting_for)}, reasons={self._reasons})"

    def begin(self, now: Millis) -> JoinOutcome:
        if not self._seeds:
            return JoinOutcome.FORM
        self._begin_attempt(now)
        return JoinOutcome.WAITING

    def next_deadline(self) -> Millis:
        return min([self._attempt_ends, *self._ask_at.values()])

    def expects(self, request_id: int) -> bool:
        """Return whether an answer belongs to this member's present request (others are ignored)."""
        return request_id == self._request_id

    def on_time(self, now: Millis) -> JoinOutcome:
        if now >= self._attempt_ends:
            return self._attempt_failed(now)
        for target in [target for target, at in self._ask_at.items() if at <= now]:
            self._ask(target)
        return JoinOutcome.WAITING

    def on_seeds(self, addresses: tuple[Address, ...], failures: tuple[str, ...], now: Millis) -> JoinOutcome:
        """Take the addresses that sources of seeds have given. Without sources nothing is to do."""
        return JoinOutcome.WAITING

    def on_joiner(self, sender: MemberId, message: JoinRequest, now: Millis) -> JoinOutcome:
        """Note a request to this member, which is in no cluster yet either."""
        if self._mutual is None or message.cluster != self._local.config.cluster:
            return JoinOutcome.WAITING
        self._mutual.on_joiner(address_of(sender), message.known, may_found=message.may_found)
        return self._outcome()

    def on_redirect(self, sender: MemberId, message: JoinRedirect, now: Millis) -> JoinOutcome:
        """Ask the master that a seed named. The seed is asked again in a while: that master can be dead."""
        if self.expects(message.request_id):
            self._answered(sender)
            self._note_cluster(address_of(sender))
            self._ask_later(address_of(sender), now)
            if message.master not in self._waiting_for:
                self._ask(message.master)
        return JoinOutcome.WAITING

    def on_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> JoinOutcome:
        if not self.expects(message.request_id):
            return JoinOutcome.WAITING
        if message.waits:
            return self._wait(sender, message, now)
        if message.ends:
            self.failure = f"{address_of(sender)} refuses: {message.reason}"
            return JoinOutcome.FAILED
        if not message.retry and self._gives_up(sender, message.reason):
            return JoinOutcome.FAILED
        self._answered(sender)
        seed = address_of(sender)
        self._reasons[seed] = message.reason
        self._ask_later(seed, now)
        if message.in_cluster:
            self._note_cluster(seed)
        else:
            self._unreachable.discard(seed)
            self._without_cluster.add(seed)
            if self._mutual is not None and message.retry:
                self._mutual.on_answer(seed)
        return self._outcome()

    def _wait(self, sender: MemberId, message: JoinRefused, now: Millis) -> JoinOutcome:
        """Reach the members that the master names first, and ask it again when they have answered."""
        self._answered(sender)
        self._note_cluster(address_of(sender))
        if self._held_back_by != sender or self._to_reach != frozenset(message.reach):
            self._local.out.record(JoinWaits(sender, message.reach, message.reason))
        self._held_back_by, self._to_reach = sender, frozenset(message.reach)
        self._attempt = 0
        self._attempt_ends = now + self._local.config.join_timeout_ms
        self._ask_at = {sender: now + self._local.config.heartbeat_interval_ms}
        # A joiner that has said that it reaches them all, and waits for something else, does not ask at the speed of the network.
        self._asks_at_once = not self._named.issuperset(self._to_reach)
        if self._asks_at_once and self._reached.issuperset(self._to_reach):
            # Another request, sent before they had answered, was refused by this.
            self._ask(sender)
            return JoinOutcome.WAITING
        self._reached.clear()
        for member in message.reach:
            self._local.out.send(member, ReachProbe(self._request_id))
        return JoinOutcome.WAITING

    def on_reach_answer(self, sender: MemberId, message: ReachAnswer) -> None:
        """Note that the sender got the probe, and this member its answer."""
        if self.expects(message.request_id) and sender in self._to_reach:
            self._reached.add(sender)
            if self._asks_at_once and self._reached == self._to_reach and self._held_back_by in self._ask_at:
                self._ask(self._held_back_by)

    def on_unreachable(self, event: LinkLost | LinkRefused, now: Millis) -> JoinOutcome:
        """Note that a seed, or the master that one named, cannot be reached, or refuses to talk with this member."""
        target = next((asked for asked in self._waiting_for if asked == event.peer), None)
        if target is None:
            return JoinOutcome.WAITING
        self._waiting_for.discard(target)
        seed = address_of(target)
        self._ask_later(seed, now)
        if isinstance(event, LinkLost):
            # That the connection broke says nothing about whether the seed has a cluster.
            self._reasons[seed] = "the connection was lost"
            return JoinOutcome.WAITING
        self._reasons[seed] = event.reason
        if event.final and target in self._seeds and self._gives_up(target, event.reason):
            return JoinOutcome.FAILED
        if event.is_unproved and self._may_be_cluster():
            self._note_cluster(seed)
        elif target in self._unreachable:
            self._without_cluster.add(seed)
        elif target == seed:
            self._unreachable.add(seed)
        return self._outcome()

    def _gives_up(self, target: MemberId | Address, reason: str) -> bool:
        """Return whether a final refusal ends the joining."""
        self.failure = f"{address_of(target)} refuses: {reason}"
        return True

    def _may_be_cluster(self) -> bool:
        """Return whether processes that refuse to talk, and have not proved the cluster's secret, can be its members.

        1. The first seed is restarted with a wrong secret. 2. The others, which are a cluster, refuse it, and cannot
        prove to it that they are one. 3. Were they counted as unreachable, it would form another cluster.
        """
        return True

    def _note_cluster(self, seed: Address) -> None:
        self._found_cluster = True
        self._unreachable.discard(seed)
        self._without_cluster.discard(seed)

    def _ask_later(self, seed: Address, now: Millis) -> None:
        if seed in self._seeds:
            self._ask_at[seed] = now + self._retry_pause_ms

    def _outcome(self) -> JoinOutcome:
        if self._first_seed and self._without_cluster.issuperset(self._seeds) and not self._waiting_for:
            return JoinOutcome.FORM
        if self._mutual is not None and not self._found_cluster and self._mutual.is_founder():
            self.forms_by = "PX-53 the smallest of mutual seeds forms the cluster"
            return JoinOutcome.FORM
        return JoinOutcome.WAITING

    def _begin_attempt(self, now: Millis) -> None:
        self._attempt_ends = now + self._local.config.join_timeout_ms
        self._request_id += 1
        self._ask_at.clear()
        self._waiting_for.clear()
        self._without_cluster.clear()
        self._unreachable.clear()
        self._found_cluster = False
        self._reasons.clear()
        if self._mutual is not None:
            self._mutual.begin_attempt()
        for seed in self._seeds:
            self._ask(seed)

    def _ask(self, target: Address | MemberId) -> None:
        self._ask_at.pop(target, None)
        self._waiting_for.add(target)
        config = self._local.config
        self._named = frozenset(self._reached)
        request = JoinRequest(
            self._request_id, self._local.this, config.cluster, self._local.release.oldest, config.partition_count, self.traits,
            tuple(sorted(self._reached)), config.lease_ms, self._memory, self._known, self._local.release,
            self._departures, self._mutual is None, self._local.voter, self._local.stored_root, self._local.store,
        )  # fmt: skip
        self._local.out.send(target, request)

    def _answered(self, sender: MemberId) -> None:
        self._waiting_for.discard(sender)
        self._waiting_for.discard(address_of(sender))

    def _note_failed_attempt(self) -> None:
        for target in sorted(self._waiting_for):
            self._reasons.setdefault(address_of(target), f"no answer within {self._local.config.join_timeout_ms} ms")
        for seed in self._seeds:
            reason = self._reasons.get(seed, "no answer")
            self._local.out.record(JoinAttemptFailed(self._attempt, seed, reason))
        self._attempt += 1

    def _attempt_failed(self, now: Millis) -> JoinOutcome:
        self._note_failed_attempt()
        if self._attempt < self._local.config.join_attempts:
            self._begin_attempt(now)
            return JoinOutcome.WAITING
        if self._first_seed and not self._found_cluster:
            return JoinOutcome.FORM
        told = "; ".join(f"{seed}: {self._reasons.get(seed, 'no answer')}" for seed in self._seeds)
        self.failure = (
            f"Unable to join the cluster after {self._attempt} attempts ({told}). Start the seed first, or check the "
            f"addresses given as seeds{self._mutual.why_not() if self._mutual is not None else ''}"
        )
        return JoinOutcome.FAILED
