"""How the master admits members (docs/protocol/joining.md).

Joiners that ask while the view that admitted others is still being acknowledged wait for that, and are then admitted
together: many members that start at once need few views, and a single one does not wait. A joiner is answered when all
members that existed before have acknowledged the view, or when the time for that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from phalanx.common.evacuation import Link
from phalanx.common.ids import MemberId, Millis, address_of, incarnation_of
from phalanx.common.restored_cluster import stay_apart
from phalanx.common.versions import DORMANT_FROM, Release, range_words
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.join.copied_folders import CopiedFolders
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.join.joining import refusal_of
from phalanx.membership.join.links_to_prove import BrokenLinks
from phalanx.membership.majority import Majority
from phalanx.membership.outgoing import Heartbeats
from phalanx.membership.state import MembershipState
from phalanx.membership.table_news import TableNews
from phalanx.membership.view_installation import ViewInstallation
from phalanx.membership.views.acknowledgements import PendingView, PendingViews
from phalanx.membership.wishes import OwnWishes
from phalanx.wire.join_events import JoinAnswered, JoinHeldBack, JoinRequestRefused, MemberAdmitted
from phalanx.wire.messages import JoinRedirect, JoinRefused, JoinRequest, JoinResponse, MembersAck

FULL = "CS-09 max_members"
VERSION = "PX-45"
OTHER_DATA = "DU-24"
COPIED = "DU-22"
WITHOUT_FOLDER = "DU-57"
DORMANT = "DU-32"


class JoinRefusals:
    """Refuses joiners that can never be admitted as they are."""

    def __init__(
        self,
        local: LocalContext,
        state: MembershipState,
        table: TableNews,
        gone: GoneMembers,
        founders: Callable[[], tuple[MemberId, ...]],
    ) -> None:
        """`founders`: returns who founded this cluster, and those that have merged into it."""
        self._local = local
        self._state = state
        self._table = table
        self._gone = gone
        self._founders = founders
        self._copied = CopiedFolders(2 * local.config.heartbeat_timeout_ms)

    def refuse(
        self, sender: MemberId, message: JoinRequest, queued: Mapping[MemberId, JoinRequest], now: Millis
    ) -> bool:
        """Refuse the joiner if it can never be admitted, or not while a member has its folder. Return whether it was.

        `queued`: joiners that wait for the next view.
        """
        state, out = self._state, self._local.out
        refusal, rule = self._refusal(sender, message, queued)
        if refusal:
            out.record(JoinRequestRefused(sender, refusal, rule))
            # Only a refusal because it is full, or too new, says that this is the joiner's own cluster.
            is_its_own = state.view is not None and rule in (FULL, VERSION)
            out.send(sender, JoinRefused(message.request_id, False, refusal, is_its_own))
            return True
        if not state.is_master:
            return False
        if message.member in self._gone.former.removed:
            # 1. J asks, and hangs. 2. It is admitted and, silent, removed. 3. Its repeated request arrives: the same
            # incarnation would be a member again, at another age than those know that saw it before (EL-20).
            reason = "this incarnation was a member and has been removed"
            out.record(JoinRequestRefused(sender, reason, "EL-20 EL-21"))
            out.send(sender, JoinRefused(message.request_id, True, reason, True, come_back=True))
            return True
        view = state.joined()
        if refusal := self._why_later(message.release):
            out.record(JoinRequestRefused(sender, refusal, DORMANT))
            out.send(sender, JoinRefused(message.request_id, True, refusal, True))
            return True
        if refusal := _why_without_folder(message, view):
            out.record(JoinRequestRefused(sender, refusal, WITHOUT_FOLDER))
            out.send(sender, JoinRefused(message.request_id, False, refusal, True))
            return True
        copied = self._copied.refuse(message, view, queued, now)
        if copied is not None:
            ends = copied.is_final
            out.record(JoinRequestRefused(sender, copied.reason, COPIED))
            out.send(sender, JoinRefused(message.request_id, not ends, copied.reason, True, ends=ends))
        return copied is not None

    def _refusal(self, sender: MemberId, message: JoinRequest, queued: Collection[MemberId]) -> tuple[str, str]:
        """Return why the request can never be granted, and by which rule; empty: it can."""
        state, table, config = self._state, self._table, self._local.config
        has_data = table.has_data or bool(self._local.stored_root)
        if refusal := refusal_of(sender, message, self._local.this, config, table.partition_count, has_data):
            return refusal, "CS-09"
        if state.is_master and (refusal := self._why_not_spoken(message.release)):
            return refusal, VERSION
        if refusal := self._why_other_data(message):
            return refusal, OTHER_DATA
        joiner = message.member
        identity, address = incarnation_of(joiner), address_of(joiner)
        for member in (*state.members, *queued):
            if incarnation_of(member) == identity and address_of(member) != address:
                return f"a member of the same identity runs at {address_of(member)}: start this one anew", "EL-21"
        most = config.max_members
        if state.is_master and most and joiner not in state.members:
            others = {address_of(member) for member in (*state.members, *queued)} - {address}
            if len(others) >= most:
                return f"the cluster has its maximum of {most} members (max_members)", FULL
        return "", ""

    def _why_other_data(self, message: JoinRequest) -> str:
        """Say why the data of a joiner's folder would be lost here; empty: it has none, or it is this cluster's.

        1. The first seed has lost its folder, founds a cluster and is used. 2. The others start with theirs, which have the data of
        the cluster before. 3. Did they join, they would drop it for what is here.
        """
        has_data, root = self._table.has_data, message.stored_root
        founders = self._founders()
        known = message.memory.footing.founders if message.memory is not None else ()
        others = (root,) if root else known
        if not founders or not others or not set(others).isdisjoint(founders):
            return ""
        is_of_backup = stay_apart(founders, others)
        waits = not has_data and bool(self._local.stored_root)
        if not (is_of_backup or has_data or waits):
            return ""
        if root:
            # What was restored, and the cluster of the backup, are both to go on; so are two that wait for their members.
            advice = (
                "give the joiner the seeds of its own cluster"
                if is_of_backup or waits
                else "stop this cluster and start the other one without it"
            )
            return (
                f"the joiner's data_dir has the data of the cluster that {root} founded, and this one was founded by {founders[0]}"
                f"{' and has data of its own' if has_data else ''}: {advice}, or give the joiner an empty folder"
            )
        if is_of_backup:
            return (
                f"the joiner was in the cluster that {others[0]} founded, and this one was founded by {founders[0]}: one of them was "
                f"restored from backups, so they never become one: start the joiner again, with an empty folder if it has one"
            )
        return ""

    def _why_later(self, joiner: Release) -> str:
        """Say why a joiner has to wait whose release would forget dormant partitions, were it the master; empty: it has not."""
        awaited = self._table.awaited_holders() if joiner.newest < DORMANT_FROM else ()
        if not awaited:
            return ""
        return (
            f"partitions wait for what {', '.join(map(address_of, awaited))} has in its folder, and the joiner's release does not know that "
            f"they do: start these members first, or the joiner with the release of the other members"
        )

    def _why_not_spoken(self, joiner: Release) -> str:
        """Say why the joiner's build does not fit the cluster, though this member's speaks with it; empty: it fits."""
        version = self._state.joined().cluster_version
        if joiner.newest < version:
            return (
                f"the cluster version is {version}, and the joiner speaks {range_words(joiner)}: start it with the release of "
                f"the other members, or a newer one"
            )
        if joiner.oldest > version:
            return (
                f"the cluster version is {version}, and the joiner speaks {range_words(joiner)}: upgrade the members first to the "
                f"release before the joiner's, and raise the cluster version"
            )
        return ""


def _why_without_folder(message: JoinRequest, view: MembersView) -> str:
    """Say why a joiner cannot hold data without a folder; empty: it can.

    A cluster gets folders one member after another. So it only matters when all have one; and whoever was a member before, for
    example on another side, comes back as it was.
    """
    is_new = message.memory is None and not message.voter
    if message.store is not None or message.traits.lite or not is_new or not view.data_members:
        return ""
    if not {member for member, _ in view.stores}.issuperset(view.data_members):
        return ""
    return "all members of this cluster that hold data keep it in folders, and the joiner has none: set data_dir, or make it a lite member"


class JoinRedirects:
    """Answers joiners where this member does not admit them itself."""

    def __init__(self, local: LocalContext, state: MembershipState, wishes: OwnWishes, heartbeats: Heartbeats) -> None:
        self._local = local
        self._state = state
        self._wishes = wishes
        self._heartbeats = heartbeats

    @property
    def admits(self) -> bool:
        """Whether this member admits joiners itself: it is the master, and stays."""
        return self._state.is_master and self._wishes.stays_for_others

    def redirect(self, sender: MemberId, message: JoinRequest) -> None:
        """Tell a joiner who the master is, or why it is to ask again."""
        if (master := self._heartbeats.trusted_master()) is not None:
            self._local.out.send(sender, JoinRedirect(message.request_id, master))
            return
        has_joined, release = self._state.view is not None, self._local.release
        refusal = JoinRefused(message.request_id, True, self._not_now(), has_joined, release=release)
        self._local.out.send(sender, refusal)

    def _not_now(self) -> str:
        if self._wishes.to_leave:
            return "this member leaves"
        if self._state.view is None:
            return "this member has not joined a cluster itself yet"
        return "the master is suspected, or being replaced"


class Newcomers:
    """Exchanges what joiners and the cluster know."""

    def __init__(self, local: LocalContext, state: MembershipState, majority: Majority, gone: GoneMembers) -> None:
        self._local = local
        self._state = state
        self._majority = majority
        self._gone = gone

    def admit(self, requests: Mapping[MemberId, JoinRequest], version: int, replaced: Collection[MemberId]) -> None:
        """Record the joiners of the view with this version, and the incarnations that they replace."""
        view = self._state.joined()
        for joiner, request in requests.items():
            start = request.store.start if request.store is not None else 0
            self._majority.quorum.learn_history(joiner, request.memory, request.voter, start)
            at = address_of(joiner)
            before = tuple(member for member in view.members if member in replaced and address_of(member) == at)
            rejoins = bool(before) or self._gone.former.addresses.pop(at, None) is not None
            self._local.out.record(MemberAdmitted(joiner, version, before, rejoins))

    def learn(self, requests: Iterable[JoinRequest], now: Millis) -> None:
        """Take over what the joiners' processes know from earlier incarnations."""
        for request in requests:
            self._gone.learn_from_joiner(request, now)

    def response(self, request_id: int, view: MembersView, now: Millis) -> JoinResponse:
        """Return the answer that admits a joiner, with what members know."""
        state = self._state
        clock, footing = self._local.read_clock(now), self._majority.quorum.footing
        former, departures = self._gone.to_send()
        return JoinResponse(request_id, view, state.has_started, clock, footing, former, state.age_ms(now), departures)


class JoinRequests:
    """Takes the requests of joiners."""

    def __init__(self, refusals: JoinRefusals, redirects: JoinRedirects, admission: Admission) -> None:
        self._refusals = refusals
        self._redirects = redirects
        self._admission = admission

    def on_join_request(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        """Refuse a joiner, admit it, or say where to ask."""
        if self._refusals.refuse(sender, message, self._admission.queued, now):
            return
        if self._redirects.admits:
            self._admission.admit(message, now)
        else:
            self._redirects.redirect(sender, message)


class Admission:
    """Admits joiners with the next view, and answers them when others have it."""

    def __init__(
        self, local: LocalContext, state: MembershipState, newcomers: Newcomers, installation: ViewInstallation
    ) -> None:
        self._local = local
        self._state = state
        self._newcomers = newcomers
        self._installation = installation
        self.pending_views = PendingViews()
        self.queued: dict[MemberId, JoinRequest] = {}
        """Joiner that waits for the next view to its request."""
        self._successors: MembersView | None = None
        """The view of the next master, once this member has handed the mastership over."""
        self._links = BrokenLinks(local.config)
        """Links for which reachable members were removed, and which they must prove before they come back."""

    def __repr__(self) -> str:
        return f"Admission(pending_views={self.pending_views}, queued={list(self.queued)})"

    def note_broken(self, links: Iterable[Link], now: Millis) -> None:
        """Note links that members must prove before they come back, because they are removed for them."""
        self._links.note([(address_of(one), address_of(other)) for one, other in links], now)

    def admit(self, message: JoinRequest, now: Millis) -> None:
        """Admit a joiner now, or with the next view; answer a member again."""
        state, joiner = self._state, message.member
        if joiner not in state.members:
            if self._hold_back(message, now):
                return
            # A joiner that waits there under an older identity is dead: the address is taken.
            at = address_of(joiner)
            self.queued = {waits: asked for waits, asked in self.queued.items() if address_of(waits) != at}
            self.queued[joiner] = message
            self._admit_queued(now)
        elif not self.pending_views.renew(joiner, message.request_id):
            self._local.out.send(joiner, self._newcomers.response(message.request_id, state.joined(), now))

    def _hold_back(self, message: JoinRequest, now: Millis) -> bool:
        """Return whether the joiner was told to wait because it must reach some members first (the two-way check)."""
        out, joiner = self._local.out, message.member
        held = self._links.check(joiner, message.reaches, (*self._state.joined().members, *self.queued), now)
        if held is None:
            return False
        if held.is_news:
            out.record(JoinHeldBack(joiner, held.reach, held.reason, "PD-24 PD-28"))
        out.send(joiner, JoinRefused(message.request_id, True, held.reason, True, waits=True, reach=held.reach))
        return True

    def _admit_queued(self, now: Millis) -> None:
        """Admit the queued joiners, and remove the earlier incarnations on their addresses, which are dead."""
        this, state = self._local.this, self._state
        if not self.queued or self.pending_views.is_waiting or not state.is_master:
            return
        requests, self.queued = self.queued, {}
        joiners = {joiner: request.request_id for joiner, request in requests.items()}
        addresses = {address_of(joiner) for joiner in joiners}
        view = state.joined()
        replaced = frozenset(member for member in view.members if address_of(member) in addresses)
        existing = [member for member in view.others(this) if member not in replaced]
        traits = ((joiner, request.traits) for joiner, request in requests.items())
        releases = {joiner: request.release for joiner, request in requests.items()}
        stores = [(joiner, request.store) for joiner, request in requests.items() if request.store is not None]
        new = view.with_change(this, replaced, tuple(joiners), traits, releases, stores)
        self._newcomers.admit(requests, new.version, replaced)
        self._installation.install(new, "CS-10 joined", now)
        self._newcomers.learn(requests.values(), now)
        deadline = now + self._local.config.join_acknowledgement_ms
        self.pending_views.add(PendingView(new, existing, deadline, joiners))
        self._installation.tell(skip=joiners)
        self.answer_joiners(now)

    def publish(self, view: MembersView, rule: str, now: Millis) -> None:
        """Publish a view, and answer joiners that waited only for members that are not in it."""
        self._installation.publish(view, rule, now)
        self.answer_joiners(now)

    def publish_anew(self, rule: str, now: Millis) -> None:
        """Publish the present view with the next version, because its footing has changed."""
        new = self._state.joined().with_change(self._local.this, frozenset(), ())
        self._installation.publish(new, rule, now)

    def send_view(self) -> None:
        """Send the present view to all members of it."""
        self._installation.tell()

    def next_publication(self, now: Millis) -> Millis:
        """Return when to publish the view again."""
        return now + self._local.config.publish_interval_ms

    def on_unreachable(self, peer: MemberId) -> None:
        """Do not admit a joiner that cannot be reached any more."""
        self.queued.pop(peer, None)

    def on_ack(self, sender: MemberId, message: MembersAck) -> None:
        """Note that a member has a view."""
        self.pending_views.on_ack(sender, message.version)

    def answer_joiners(self, now: Millis) -> None:
        """Answer the joiners of views that all members have, or whose time is over; then admit the next ones."""
        if not self.pending_views.is_waiting:
            return
        state, out = self._state, self._local.out
        for pending in self.pending_views.take_ended(state.members, now):
            view = self._successors if self._successors is not None else state.view
            late = tuple(sorted(pending.waiting_for))
            for joiner, request_id in pending.joiners.items():
                if view is None or joiner not in view:
                    continue
                if self._successors is not None:
                    # The list is the next master's, which answers for itself.
                    out.send(joiner, JoinRedirect(request_id, view.master))
                else:
                    out.record(JoinAnswered(joiner, view.version, late))
                    out.send(joiner, self._newcomers.response(request_id, view, now))
        self._admit_queued(now)

    def leave_to(self, successors: MembersView) -> None:
        """Admit no more joiners, because the master of this view does."""
        self.queued.clear()
        self._successors = successors

    def end(self) -> None:
        """End with this incarnation."""
        self.pending_views.clear()
        self.queued.clear()
        self._successors = None
