"""How this member enters a cluster: it joins (`joining`), comes back (`rejoin`), or forms one."""

from __future__ import annotations

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView, only_special, pack_releases
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, SeedsFound
from phalanx.machine.local_context import LocalContext
from phalanx.membership.claim.accession import Accession
from phalanx.membership.incarnation import Incarnation
from phalanx.membership.join.discovering import Discovering
from phalanx.membership.join.joining import Joining, JoinOutcome
from phalanx.membership.join.surroundings import JoinSurroundings
from phalanx.membership.merge.rejoin import Rejoining
from phalanx.wire.join_events import Joined, JoinGivenUp
from phalanx.wire.messages import JoinRedirect, JoinRefused, JoinRequest, JoinResponse, MembersAck, ReachAnswer


class Entry:
    """Drives the joining, and turns its outcome into this member's first view."""

    def __init__(
        self, local: LocalContext, incarnation: Incarnation, surroundings: JoinSurroundings, accession: Accession
    ) -> None:
        self._local = local
        self._incarnation = incarnation
        self._surroundings = surroundings
        self._accession = accession
        self._joining: Joining | None = None

    def __repr__(self) -> str:
        return f"Entry({self._joining})"

    @property
    def is_joining(self) -> bool:
        return self._joining is not None

    def start(self, now: Millis, past: FormerIncarnation | None = None) -> None:
        """Begin to join, or form a cluster if this member is the seed; with a past: come back."""
        local = self._local
        memory = self._incarnation.begin(past, now)
        if past is None:
            way_in = Discovering if local.config.has_seed_sources else Joining
            self._joining = way_in(local, now, memory)
        else:
            self._surroundings.version_before = past.cluster_version
            self._joining = Rejoining(local, now, past, memory)
        self._follow_join(self._joining.begin(now), now)

    def end(self) -> None:
        """End with this incarnation."""
        self._joining = None
        self._surroundings.forget()

    def next_deadline(self) -> Millis | None:
        return self._joining.next_deadline() if self._joining is not None else None

    def on_time(self, now: Millis) -> None:
        if self._joining is not None and now >= self._joining.next_deadline():
            self._incarnation.note_time(now)
            self._follow_join(self._joining.on_time(now), now)

    def on_link(self, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        self._surroundings.on_link(event)
        if self._joining is not None and not isinstance(event, LinkUp):
            self._follow_join(self._joining.on_unreachable(event, now), now)

    def on_seeds(self, event: SeedsFound, now: Millis) -> None:
        """Take what sources of seeds have answered: a joiner asks there, and a master looks there for other sides."""
        self._surroundings.on_seeds(event)
        if self._joining is not None:
            self._follow_join(self._joining.on_seeds(event.addresses, event.failures, now), now)

    def on_joiner(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        """Note a joiner's request, which can come while this member is in no cluster itself."""
        if self._joining is not None:
            self._surroundings.note_looking(sender, message.release)
            self._follow_join(self._joining.on_joiner(sender, message, now), now)

    def expects(self, message: JoinResponse) -> bool:
        """Return whether an answer is the one that this member waits for."""
        return self._joining is not None and self._joining.expects(message.request_id)

    def enter(self, sender: MemberId, message: JoinResponse, now: Millis) -> None:
        """Join the cluster whose master has admitted this member."""
        view = message.view
        self._joining = None
        self._surroundings.forget()
        self._local.adopt_clock(message.clock, now)
        self._accession.enter(message, now)
        self._record_joined(view)
        self._surroundings.learn(message, now)
        # A view that admits the next joiner can wait for this member, which could not take it before.
        self._local.out.send(sender, MembersAck(view.version, view.maker))

    def on_join_redirect(self, sender: MemberId, message: JoinRedirect, now: Millis) -> None:
        if self._joining is not None:
            self._follow_join(self._joining.on_redirect(sender, message, now), now)

    def on_join_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> None:
        joining = self._joining
        if joining is None:
            return
        if message.come_back and joining.expects(message.request_id):
            self._incarnation.end("was removed before it knew that it had been admitted", rejoin=(sender,))
        else:
            if message.retry and not message.in_cluster and message.release is not None:
                self._surroundings.note_looking(sender, message.release)
            self._follow_join(joining.on_refused(sender, message, now), now)

    def on_reach_answer(self, sender: MemberId, message: ReachAnswer) -> None:
        if self._joining is not None:
            self._joining.on_reach_answer(sender, message)

    def _follow_join(self, outcome: JoinOutcome, now: Millis) -> None:
        joining, local = self._joining, self._local
        if outcome is JoinOutcome.WAITING or joining is None:
            return
        self._joining = None
        if outcome is JoinOutcome.FAILED:
            self._local.out.record(JoinGivenUp(joining.failure))
            self._incarnation.end(joining.failure, failed=True)
            return
        version = self._surroundings.version_to_begin_with(joining.seeds, joining.heard_of, now)
        special = only_special([(local.this, joining.traits)])
        packed = pack_releases((local.this,), {local.this: local.release})
        stores = ((local.this, local.store),) if local.store is not None else ()
        view = MembersView(1, local.this, (local.this,), special, version, *packed, stores=stores)
        self._accession.found(view, joining.forms_by, now)
        self._record_joined(view)

    def _record_joined(self, view: MembersView) -> None:
        self._local.out.record(Joined(view.version, view.master, view.members))
