"""The member list as a value: who is in the cluster, oldest first, which version, and which master made it.

A view is identified by its version *and* its maker: two claimers on two sides of a cut can use one version, and must
never be confused. The first member is the master; age is position, given by the master that appended the member.

It says also what is special about members, as each reported when it asked to join: a member that has a view knows who in it holds
data, and no two that have the same one disagree. And it names the version of the protocol that they all speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from phalanx.common.ids import MemberId, log_form
from phalanx.common.invariant import invariant
from phalanx.common.store import StoreStart
from phalanx.common.traits import USUAL, Traits
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION, Release

UNTOLD = Release()
"""What a member is taken to speak if its view does not say it."""


class ViewId(msgspec.Struct, frozen=True, array_like=True):
    """Which view it was."""

    version: int = 0
    """The number of the view; 0: before any view."""
    maker: str = ""

    def may_be_known_by(self, other: ViewId) -> bool:
        """Return whether a member that has the other view can know the decisions of this one.

        1. Master A removes B and C, and begins empty the partitions that only they held. 2. D, in A's list, owns one of
        them by A's table and tells its backup E, to which A's list has not come: A cannot reach it. 3. E accepts the
        claim of B, in whose list it is from now on. 4. Had it believed D, it would take a decision of A's side along:
        everything that B and C hold would seem outdated by what began empty there.
        """
        return self.version < other.version or self == other


class MembersView(msgspec.Struct, frozen=True, array_like=True):
    """An immutable member list (docs/protocol/membership.md)."""

    version: int
    maker: MemberId
    """The master that made and published this view."""
    members: tuple[MemberId, ...]
    """The members, oldest first."""
    traits: tuple[tuple[MemberId, Traits], ...] = ()
    """The traits of members that are not the usual ones, in the same order."""
    cluster_version: int = OLDEST_PROTOCOL_VERSION
    """The version of the protocol that can be used between members: every member speaks it (PX-42)."""
    releases: tuple[Release, ...] = ()
    """The releases that are there, each once."""
    release_indices: tuple[int, ...] = ()
    """By member: the place of its release in `releases`, counted from 1; 0: unknown."""
    is_version_held: bool = False
    """Whether an operator holds the cluster version back: no master raises it by itself (PX-47)."""
    stores: tuple[tuple[MemberId, StoreStart], ...] = ()
    """The folders of the members that have one, in the same order."""

    @property
    def id(self) -> ViewId:
        return ViewId(self.version, self.maker)

    @property
    def master(self) -> MemberId:
        """The oldest member: the only one that admits, removes and publishes."""
        return self.members[0]

    def __contains__(self, member: object) -> bool:
        return member in self.members

    def traits_of(self, member: MemberId) -> Traits:
        """Return what a member said of itself when it asked to join."""
        return next((traits for special, traits in self.traits if special == member), USUAL)

    def speaks(self, version: int) -> bool:
        """Return whether messages and fields that came with this version can be sent to members of this view.

        Builds that speak it can wait for long with an older cluster version, until nobody of the former release can come back.
        """
        return self.cluster_version >= version or all(each.newest >= version for each in self.all_releases().values())

    def all_releases(self) -> dict[MemberId, Release]:
        """Return what each member's build speaks, oldest member first."""
        places = dict(enumerate(self.releases, 1))
        indices = dict(zip(self.members, self.release_indices, strict=False))
        return {member: places.get(indices.get(member, 0), UNTOLD) for member in self.members}

    @property
    def data_members(self) -> tuple[MemberId, ...]:
        """Return the members that can hold replicas, oldest first."""
        lite = {member for member, traits in self.traits if traits.lite}
        return tuple(member for member in self.members if member not in lite) if lite else self.members

    def others(self, member: MemberId) -> tuple[MemberId, ...]:
        """List all members but one, oldest first."""
        return tuple(other for other in self.members if other != member)

    def older_than(self, member: MemberId) -> tuple[MemberId, ...]:
        """List the members that are older than this one, oldest first."""
        invariant(member in self.members, "only a member has older members", member=member, view=self)
        return self.members[: self.members.index(member)]

    def younger_than(self, member: MemberId) -> tuple[MemberId, ...]:
        """List the members that are younger than this one, oldest first."""
        invariant(member in self.members, "only a member has younger members", member=member, view=self)
        return self.members[self.members.index(member) + 1 :]

    def keeps_order_of(self, earlier: MembersView) -> bool:
        """Return whether the members of an earlier list that are still here stand in front, in the order that they had.

        Age never changes within one history of lists, so a list of another order comes from another history.
        """
        present = set(self.members)
        stayed = tuple(member for member in earlier.members if member in present)
        return self.members[: len(stayed)] == stayed

    def with_change(
        self,
        maker: MemberId,
        removed: frozenset[MemberId],
        added: tuple[MemberId, ...],
        traits: Iterable[tuple[MemberId, Traits]] = (),
        releases: Mapping[MemberId, Release] | None = None,
        stores: Iterable[tuple[MemberId, StoreStart]] = (),
    ) -> MembersView:
        """Make the next version: remove members, and add members as the youngest. `traits`, `releases`, `stores`: those of added members."""
        kept = tuple(member for member in self.members if member not in removed)
        special = (*(pair for pair in self.traits if pair[0] not in removed), *only_special(traits))
        members = kept + added
        packed = pack_releases(members, self.all_releases() | dict(releases or {}))
        folders = (*(pair for pair in self.stores if pair[0] not in removed), *stores)
        return MembersView(
            self.version + 1, maker, members, special, self.cluster_version, *packed, self.is_version_held, folders
        )

    def with_lite(self, maker: MemberId, member: MemberId, *, lite: bool) -> MembersView:
        """Make the next version, in which a member can hold data from now on, or (`lite`) no longer can."""
        traits = [(each, self.traits_of(each)) for each in self.members]
        changed = [(each, its._replace(lite=lite) if each == member else its) for each, its in traits]
        changes = {"version": self.version + 1, "maker": maker, "traits": only_special(changed)}
        return msgspec.structs.replace(self, **changes)

    def with_version(
        self, maker: MemberId, cluster_version: int, folders: Mapping[MemberId, StoreStart], *, is_held: bool
    ) -> MembersView:
        """Make the next version, with another cluster version, held back or not. `folders`: those of members, also such as it names."""
        known = {**folders, **dict(self.stores)}
        stores = tuple((member, known[member]) for member in self.members if member in known)
        changes = {"version": self.version + 1, "maker": maker, "stores": stores}
        changes |= {"cluster_version": cluster_version, "is_version_held": is_held}
        return msgspec.structs.replace(self, **changes)

    def log_lines(self, this: MemberId | None = None, *, legacy: bool = False) -> list[str]:
        """Return the lines that show the list in a log. `this`: the member to mark. `legacy`: without size and version."""
        head, foot = (
            (f"Members [{len(self.members)}] {{", "}")
            if legacy
            else (f"Members {{size:{len(self.members)}, ver:{self.version}}} [", "]")
        )
        lines = [f"    {log_form(member)}{' this' if member == this else ''}" for member in self.members]
        return [head, *lines, foot]


def only_special(traits: Iterable[tuple[MemberId, Traits]]) -> tuple[tuple[MemberId, Traits], ...]:
    """Return the traits that are not the usual ones, as a view has them."""
    return tuple((member, its) for member, its in traits if its != USUAL)


def pack_releases(
    members: Iterable[MemberId], known: Mapping[MemberId, Release]
) -> tuple[tuple[Release, ...], tuple[int, ...]]:
    """Return the releases and, by member, the places of theirs, as a view has them."""
    places: dict[Release, int] = {}
    releases = [known.get(each, UNTOLD) for each in members]
    indices = [places.setdefault(release, len(places) + 1) if release != UNTOLD else 0 for release in releases]
    return tuple(places), tuple(indices) if places else ()
