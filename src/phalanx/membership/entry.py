"""A member's way in, seen from inside: it joins (`joining`), comes back (`rejoin`), or forms a cluster, and begins."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.config import NodeConfig
from phalanx.common.departure import HowGone
from phalanx.common.former_incarnation import Past
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.versions import FIRST_RELEASE, Release
from phalanx.common.view import MembersView, only_special, pack_releases
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, SeedsFound
from phalanx.machine.outbox import Outbox
from phalanx.membership.heartbeats.ticker import Ticker
from phalanx.membership.incarnation_end import end_incarnation
from phalanx.membership.join.discovering import Discovering
from phalanx.membership.join.former_members import REMEMBERED, lasting
from phalanx.membership.join.joining import Joining, JoinOutcome, release_of
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.merge.rejoin import Rejoining
from phalanx.membership.role import RoleTurn
from phalanx.membership.state import MembershipState
from phalanx.membership.view_installation import install_view
from phalanx.wire import events
from phalanx.wire.messages import JoinRedirect, JoinRefused, JoinRequest, JoinResponse, MembersAck, ReachAnswer


class Entry:
    """Drives the joining, and turns its end into this member's first view."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        state: MembershipState,
        divergence: Divergence,
        ticker: Ticker,
        outbox: Outbox,
    ) -> None:
        self._this = this
        self._config = config
        self._state = state
        self._divergence = divergence
        self._ticker = ticker
        self._out = outbox
        self._joining: Joining | None = None
        self._version_before = 0
        """The cluster version that the incarnation before this one had; 0: there was none."""
        self._also_looking: dict[MemberId, Release] = {}
        """Processes that were found in no cluster either, as long as this member joins, and what they speak."""
        self._explained: set[Address] = set()
        """Addresses at which somebody answered, or no process listens, when they were last tried."""

    def __repr__(self) -> str:
        return f"Entry({self._joining})"

    @property
    def is_joining(self) -> bool:
        return self._joining is not None

    def start(self, now: Millis, past: Past | None = None) -> None:
        """Begin to join, or form a cluster where this member is the seed; with a past: come back."""
        memory = self._state.quorum.memory()
        self._state.gone.note_time(now)
        if past is None:
            way_in = Discovering if self._config.has_seed_sources else Joining
            self._joining = way_in(self._this, self._config, self._out, now, memory, self._state.release)
        else:
            self._state.gone.come_back(past, now)
            self._state.come_back(past)
            self._state.lite_before = past.lite
            self._version_before = past.cluster_version
            self._joining = Rejoining(self._this, self._config, self._out, now, past, memory, self._state.release)
        self._follow_join(self._joining.begin(now), now)

    def end(self) -> None:
        """This incarnation is over."""
        self._joining = None
        self._forget_found()

    def _forget_found(self) -> None:
        self._also_looking.clear()
        self._explained.clear()

    def next_deadline(self) -> Millis | None:
        return self._joining.next_deadline() if self._joining is not None else None

    def on_time(self, now: Millis) -> None:
        if self._joining is not None and now >= self._joining.next_deadline():
            self._state.gone.note_time(now)
            self._follow_join(self._joining.on_time(now), now)

    def on_link(self, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        if isinstance(event, LinkRefused):
            is_explained = event.is_deserted or event.final
            (self._explained.add if is_explained else self._explained.discard)(address_of(MemberId(event.peer)))
        if self._joining is not None and not isinstance(event, LinkUp):
            self._follow_join(self._joining.on_unreachable(event, now), now)

    def on_seeds(self, event: SeedsFound, now: Millis) -> None:
        """Sources of seeds have answered: a joiner asks there, and a master looks there for other sides of its cluster."""
        former = self._state.gone.former
        if (former.found, former.not_found) != (event.addresses, event.failures):
            former.found, former.not_found = event.addresses, event.failures
            self._out.record(events.SeedsChanged(event.addresses, event.failures))
        if self._joining is not None:
            self._follow_join(self._joining.on_seeds(event.addresses, event.failures, now), now)

    def on_joiner(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        """Somebody asks to be admitted, perhaps while this member is in no cluster itself."""
        if self._joining is not None:
            self._note_looking(sender, release_of(message))
            self._follow_join(self._joining.on_joiner(sender, message, now), now)

    def on_join_response(self, sender: MemberId, message: JoinResponse, now: Millis) -> None:
        is_expected = self._joining is not None and self._joining.expects(message.request_id)
        if not self._divergence.is_admission(sender, message, is_expected=is_expected):
            return
        state, view = self._state, message.view
        self._joining = None
        self._forget_found()
        state.follow(view.master, RoleTurn.ADMITTED)
        state.adopt_clock(message.clock, now)
        state.founded_at = now - message.age_ms
        self._begin(view, "EL-13 admitted", now, message)
        state.gone.former.learn(message.former, now)
        # A view that admits the next joiner may wait for this member, which could not take it before.
        self._out.send(sender, MembersAck(view.version, view.maker))

    def on_join_redirect(self, sender: MemberId, message: JoinRedirect, now: Millis) -> None:
        if self._joining is not None:
            self._follow_join(self._joining.on_redirect(sender, message, now), now)

    def on_join_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> None:
        joining = self._joining
        if joining is None:
            return
        if message.come_back and joining.expects(message.request_id):
            end_incarnation(self._state, "was removed before it knew that it had been admitted", rejoin=(sender,))
        else:
            if message.retry and not message.in_cluster:
                self._note_looking(sender, message.release or FIRST_RELEASE)
            self._follow_join(joining.on_refused(sender, message, now), now)

    def _note_looking(self, sender: MemberId, release: Release) -> None:
        if len(self._also_looking) < REMEMBERED:
            self._also_looking[sender] = release
            self._explained.add(address_of(sender))

    def on_reach_answer(self, sender: MemberId, message: ReachAnswer) -> None:
        if self._joining is not None:
            self._joining.on_reach_answer(sender, message)

    def _follow_join(self, outcome: JoinOutcome, now: Millis) -> None:
        joining, state = self._joining, self._state
        if outcome is JoinOutcome.WAITING or joining is None:
            return
        self._joining = None
        if outcome is JoinOutcome.FAILED:
            self._out.record(events.JoinGivenUp(joining.failure))
            end_incarnation(state, joining.failure, failed=True)
            return
        state.follow(self._this, RoleTurn.FORMS)
        state.gone.former.remember(joining.heard_of, now)
        state.lease.reign((), now, 0, inherits=False)
        if state.founded_at is None:
            state.founded_at = now
        special = only_special([(self._this, joining.traits)])
        version = self._version_before or self._version_to_begin_with(joining.seeds, now)
        release = state.release
        packed = pack_releases((self._this,), {self._this: release})
        view = MembersView(1, self._this, (self._this,), special, version, *packed)
        self._begin(view, joining.forms_by, now)

    def _version_to_begin_with(self, seeds: Collection[Address], now: Millis) -> int:
        """Return the newest version that this build speaks, if no process of an older release may be there that has data.

        1. X, of the older release, keeps its data aside, or is another side of the cluster. 2. All others end, and are started
        with the newer release. 3. A finds X in no cluster, or does not reach it, and forms the cluster. 4. X is refused for good.
        """
        state = self._state
        state.gone.departures.learn_unknown(lasting(self._config, [s for s in seeds if s not in self._explained]), now)
        for member, its in self._also_looking.items():
            state.gone.departures.note(member, HowGone.CUT_OFF, its.newest, now)
        state.gone.former.remember(map(address_of, self._also_looking), now)
        self._forget_found()
        newest = state.release.newest
        is_safe = self._config.raise_cluster_version and not state.gone.departures.awaited(newest, now)
        return newest if is_safe else state.release.oldest

    def _begin(self, view: MembersView, rule: str, now: Millis, told: JoinResponse | None = None) -> None:
        install_view(self._state, view, rule, now, told)
        self._ticker.begin(now)
        self._out.record(events.Joined(view.version, view.master, view.members))
