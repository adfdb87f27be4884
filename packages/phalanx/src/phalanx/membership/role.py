"""What a member is in its cluster, as a table: from which role which turn leads to which other."""

from __future__ import annotations

import enum

from phalanx.common.transitions import TransitionTable


class Role(enum.StrEnum):
    """Exactly one of these, at any time."""

    JOINING = "joining"
    """In no cluster yet."""
    SLAVE = "slave"
    """In a view, following a master: the oldest of the view, or an older claimer that it agreed with."""
    CLAIMING = "claiming"
    """In a view in which it suspects everybody older; it follows itself, and decides nothing yet."""
    MASTER = "master"
    """The oldest of its view: it alone admits, removes and publishes."""
    HANDING_OVER = "handing over"
    """Was the master, has made a view without itself, and stays until all in it have it."""
    OVER = "over"
    """This incarnation has ended; a process on the same address is another member."""


class RoleTurn(enum.StrEnum):
    """What changes a role."""

    FORMS = "forms a cluster, there being none to join"
    ADMITTED = "is admitted by a master"
    CLAIMS = "suspects everybody older"
    AGREES = "agrees with the claim of an older member"
    WINS = "has asked everybody it knows"
    SUCCEEDS = "installs a list of which it is the oldest"
    HANDS_OVER = "has handed over its replicas"
    ENDS = "has left, failed to join, or others went on without it"


ROLE_CHANGES = TransitionTable[Role, RoleTurn](
    "a role",
    {
        (Role.JOINING, RoleTurn.FORMS): Role.MASTER,
        (Role.JOINING, RoleTurn.ADMITTED): Role.SLAVE,
        (Role.JOINING, RoleTurn.ENDS): Role.OVER,
        (Role.SLAVE, RoleTurn.CLAIMS): Role.CLAIMING,
        (Role.SLAVE, RoleTurn.AGREES): Role.SLAVE,
        (Role.SLAVE, RoleTurn.SUCCEEDS): Role.MASTER,
        (Role.SLAVE, RoleTurn.ENDS): Role.OVER,
        (Role.CLAIMING, RoleTurn.AGREES): Role.SLAVE,
        (Role.CLAIMING, RoleTurn.WINS): Role.MASTER,
        (Role.CLAIMING, RoleTurn.ENDS): Role.OVER,
        (Role.MASTER, RoleTurn.HANDS_OVER): Role.HANDING_OVER,
        (Role.MASTER, RoleTurn.ENDS): Role.OVER,
        (Role.HANDING_OVER, RoleTurn.ENDS): Role.OVER,
    },
)
