"""Members beside those of another release: lists that say what members speak, and a master of members that tell it."""

from typing import Any

from phalanx.common.ids import ClientId
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Release, this_release
from phalanx.common.view import MembersView, pack_releases
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m

from . import released
from .harness import Lone, lone_id

OLD, NEW = OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
OLD_RELEASE = Release(released.PROTOCOL, released.OLDEST)
"""What members of the release before tell of theirs."""
INTERVAL = 1_000


def view_of(members: str, version: int, new: str = "", cluster_version: int = OLD, maker: str = "") -> MembersView:
    """A list of which the members `new` are of this build, and the others of the release before."""
    ids = tuple(lone_id(name) for name in members)
    packed = pack_releases(ids, dict.fromkeys(ids, OLD_RELEASE) | {lone_id(name): this_release() for name in new})
    return MembersView(version, lone_id(maker or members[0]), ids, (), cluster_version, *packed)


class Master(Lone):
    """The master A of some slaves: the mastership was handed over to it by Z, of the release before."""

    def __init__(self, names: str, view: MembersView | None = None, *, old: str = "", **settings: Any) -> None:
        """`old`: slaves that are of the release before, too."""
        super().__init__("A", f"Z{names}", 5, **settings)
        self.names = names.replace("A", "")
        new = "".join(name for name in names if name not in old)
        self.hear("Z", m.MembersUpdate(view or view_of(names, 6, new, maker="Z")))
        assert self.membership.is_master
        self.sent.clear()

    def tell(self, names: str) -> None:
        """These slaves say that they have seen nobody go."""
        for name in names:
            view = self.membership.state.joined()
            self.hear(name, m.MasterConfirmation(view.version, view.maker, -1, departures=()))

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
