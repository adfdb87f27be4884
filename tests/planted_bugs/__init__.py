"""Bugs to plant, to prove that the simulator finds them: each takes one rule out of every member of a history.

A canary replaces a piece of a member's machines as they are composed, so that the product itself has no hooks. A seed
under which its rule matters must end in a violation; without any, the simulator is blind for that rule. In the folder of
the project `phalanx simulate --canary tests.planted_bugs:NAME` plants one.
"""

from __future__ import annotations

from phalanx_proof.sim.planted_bug import PlantedBug

from .cuts import CUT_CANARIES
from .disk import DISK_CANARIES
from .driver import DRIVER_CANARIES
from .eviction import EVICTION_CANARIES
from .folders import DISK_WORLDS
from .general import GENERAL_CANARIES
from .idle import IDLE_CANARIES
from .journals import JOURNAL_CANARIES
from .leases import LEASE_CANARIES
from .leaving import LEAVING_CANARIES
from .locks import LOCK_CANARIES
from .losses import LOSS_CANARIES
from .membership import MEMBERSHIP_CANARIES
from .memory import MEMORY_CANARIES
from .migrations import MIGRATION_CANARIES
from .staging import STAGING_CANARIES

MODULE = "tests.planted_bugs"
"""As the command line imports it, in the folder of the project."""
_IN_MEMBERS = (
    GENERAL_CANARIES | CUT_CANARIES | DISK_CANARIES | EVICTION_CANARIES | IDLE_CANARIES | JOURNAL_CANARIES | LEASE_CANARIES | LOCK_CANARIES
    | LOSS_CANARIES | LEAVING_CANARIES | MEMORY_CANARIES | MIGRATION_CANARIES | MEMBERSHIP_CANARIES | STAGING_CANARIES
)  # fmt: skip

CANARIES = {name: PlantedBug(f"{MODULE}:{name}", plant) for name, plant in _IN_MEMBERS.items()} | {
    name: PlantedBug(f"{MODULE}:{name}", world=world) for name, world in (DRIVER_CANARIES | DISK_WORLDS).items()
}
"""Name to the bug."""
