"""What a member is in its cluster, as a table: from which role which turn leads to which other.

Whatever is not in the table cannot happen; if it does, the member stops with its story rather than go on in a state
that nobody thought of. The diagrams of the documentation are drawn from this table.
"""

from __future__ import annotations

import enum

from phalanx.common.invariant import invariant


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


class Turn(enum.StrEnum):
    """What changes a role."""

    FORMS = "forms a cluster, there being none to join"
    ADMITTED = "is admitted by a master"
    CLAIMS = "suspects everybody older"
    AGREES = "agrees with the claim of an older member"
    WINS = "has asked everybody it knows"
    SUCCEEDS = "installs a list of which it is the oldest"
    HANDS_OVER = "has handed over its replicas"
    ENDS = "has left, failed to join, or others went on without it"


TRANSITIONS: dict[tuple[Role, Turn], Role] = {
    (Role.JOINING, Turn.FORMS): Role.MASTER,
    (Role.JOINING, Turn.ADMITTED): Role.SLAVE,
    (Role.JOINING, Turn.ENDS): Role.OVER,
    (Role.SLAVE, Turn.CLAIMS): Role.CLAIMING,
    (Role.SLAVE, Turn.AGREES): Role.SLAVE,
    (Role.SLAVE, Turn.SUCCEEDS): Role.MASTER,
    (Role.SLAVE, Turn.ENDS): Role.OVER,
    (Role.CLAIMING, Turn.AGREES): Role.SLAVE,
    (Role.CLAIMING, Turn.WINS): Role.MASTER,
    (Role.CLAIMING, Turn.ENDS): Role.OVER,
    (Role.MASTER, Turn.HANDS_OVER): Role.HANDING_OVER,
    (Role.MASTER, Turn.ENDS): Role.OVER,
    (Role.HANDING_OVER, Turn.ENDS): Role.OVER,
}


def next_role(role: Role, turn: Turn) -> Role:
    """The role after a turn. Raises `InvariantViolation` for a turn that this role has not."""
    invariant((role, turn) in TRANSITIONS, "a role changes as its table says", role=role, turn=turn)
    return TRANSITIONS[role, turn]
