"""The role of a member in its cluster, as a table: which event leads from which role to which other."""

from __future__ import annotations

import enum

from phalanx.common.transitions import TransitionTable


class Role(enum.StrEnum):
    """The role of a member: exactly one of these at any time."""

    JOINING = "joining"
    """In no cluster yet."""
    SLAVE = "slave"
    """In a view, following a master: the oldest of the view, or an older claimer that it agreed with."""
    CLAIMING = "claiming"
    """In a view in which it suspects every older member; it follows itself, and decides nothing yet."""
    MASTER = "master"
    """The oldest of its view: it alone admits, removes and publishes."""
    HANDING_OVER = "handing over"
    """Was the master, has made a view without itself, and stays until all in it have it."""
    OVER = "over"
    """This incarnation has ended; a process on the same address is another member."""


class RoleEvent(enum.StrEnum):
    """What changes a role."""

    FORMS = "forms a cluster, there being none to join"
    ADMITTED = "is admitted by a master"
    CLAIMS = "suspects everybody older"
    AGREES = "agrees with the claim of an older member"
    WINS = "has asked everybody it knows"
    SUCCEEDS = "installs a list of which it is the oldest"
    HANDS_OVER = "has handed over its replicas"
    ENDS = "has left, failed to join, or others went on without it"


ROLE_CHANGES = TransitionTable[Role, RoleEvent](
    "a role",
    {
        (Role.JOINING, RoleEvent.FORMS): Role.MASTER,
        (Role.JOINING, RoleEvent.ADMITTED): Role.SLAVE,
        (Role.JOINING, RoleEvent.ENDS): Role.OVER,
        (Role.SLAVE, RoleEvent.CLAIMS): Role.CLAIMING,
        (Role.SLAVE, RoleEvent.AGREES): Role.SLAVE,
        (Role.SLAVE, RoleEvent.SUCCEEDS): Role.MASTER,
        (Role.SLAVE, RoleEvent.ENDS): Role.OVER,
        (Role.CLAIMING, RoleEvent.AGREES): Role.SLAVE,
        (Role.CLAIMING, RoleEvent.WINS): Role.MASTER,
        (Role.CLAIMING, RoleEvent.ENDS): Role.OVER,
        (Role.MASTER, RoleEvent.HANDS_OVER): Role.HANDING_OVER,
        (Role.MASTER, RoleEvent.ENDS): Role.OVER,
        (Role.HANDING_OVER, RoleEvent.ENDS): Role.OVER,
    },
)
