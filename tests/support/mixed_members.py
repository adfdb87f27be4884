"""Members beside those of another release: lists that say what members speak, and a master of members that tell it."""

from typing import Any

from phalanx.common.ids import ClientId
from phalanx.common.versions import FIRST_PROTOCOL_VERSION, PROTOCOL_VERSION, Release, this_release
from phalanx.common.view import MembersView, pack_releases
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m

from .harness import Lone, lone_id

OLD, NEW = FIRST_PROTOCOL_VERSION, PROTOCOL_VERSION
INTERVAL = 1_000


def view_of(members: str, version: int, new: str = "", cluster_version: int = OLD, maker: str = "") -> MembersView:
    """A list of which the members `new` have told that they are of this build."""
    ids = tuple(lone_id(name) for name in members)
    packed = pack_releases(ids, {lone_id(name): this_release() for name in new})
    return MembersView(version, lone_id(maker or members[0]), ids, (), cluster_version, *packed)


class Master(Lone):
    """The master A of some slaves: the mastership was handed over to it by Z, of the first release."""

    def __init__(self, names: str, view: MembersView | None = None, **settings: Any) -> None:
        super().__init__("A", f"Z{names}", 5, **settings)
        self.names = names.replace("A", "")
        self.hear("Z", m.MembersUpdate(view or view_of(names, 6, maker="Z")))
        assert self.membership.is_master
        self.sent.clear()

    def tell(self, names: str, release: Release | None = None) -> None:
        """These slaves say what their builds speak."""
        for name in names:
            view = self.membership.state.joined()
            told = m.MasterConfirmation(view.version, view.maker, -1, release=release or this_release(), departures=())
            self.hear(name, told)

    def beats(self, count: int, hearing: str | None = None) -> None:
        self.advance(count * INTERVAL, hearing=self.names if hearing is None else hearing)

    @property
    def present(self) -> MembersView:
        return self.membership.state.joined()

    @property
    def waits_for(self) -> str:
        return self.membership.cluster_version.why_not_raised(self.now)


def ask(a: Lone, request: Any) -> Any:
    a.sent.clear()
    a.feed(Received(ClientId("client/operator"), request))
    return a.sent[-1][1]
