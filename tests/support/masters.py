"""A master's side of the partition table by itself: the other members are in the hands of the test.

    a = Master("ABCD", "BC", targets=["DC"])     # A leads and has found this table; all know it; it has ordered a MOVE
    order = a.order(0)                           # what B, the owner, was told last of partition 0
    a.ready(0)                                   # B says that D holds everything: D is told to commit
    a.answer(0, accepted=True)                   # D has committed

Rows are written by replica index: `A-C` is owned by A, its first backup is missing, C is the second.
"""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from phalanx.common.backups import BackupCount
from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.common.table import PartitionTable, Slots, build_table, unassigned_table
from phalanx.common.versions import PROTOCOL_VERSION, this_release
from phalanx.common.view import MembersView
from phalanx.machine.effects import Record, Send
from phalanx.machine.facts import MembershipChanged, ReplicasHandedOver, TableConfirmed
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.coordinator import CoordinatorQuestions, PartitionCoordinator
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.planner import plan_migrations
from phalanx.wire import messages as m

from .harness import lone_id, lone_view, name_of


def slots_of(row: str) -> Slots:
    return tuple(None if name == "-" else lone_id(name) for name in row)


def row_of(slots: Sequence[MemberId | None]) -> str:
    return "".join("-" if member is None else name_of(member) for member in slots)


def table_of(
    *rows: str, versions: Sequence[int] = (), births: Sequence[int] = (), backups: int = 1
) -> PartitionTable:  # fmt: skip
    plan = MapPlan(0, MapSettings(BackupCount(backups)))
    return build_table([slots_of(row) for row in rows], versions or [1] * len(rows), births or None, plan)


def rows_of(table: PartitionTable) -> list[str]:
    return [row_of(table.slots(partition)) for partition in range(table.partition_count)]


def step_of(current: str, target: str) -> Any:
    """The only migration from one row to the other."""
    length = max(len(current), len(target))
    (step,) = plan_migrations(slots_of(current.ljust(length, "-")), slots_of(target.ljust(length, "-")))
    return step


class HeldReplicas:
    """What the member holds, as far as its installed table asks: nothing that is not decided."""

    def __init__(self, config: NodeConfig) -> None:
        self.table = unassigned_table(config.partition_count, config.map_plan)

    def stored(self) -> None:
        """Return nothing: there is no folder."""

    def undecided(self) -> tuple[tuple[m.ActiveMigration, ...], tuple[m.OwnerEpoch, ...]]:
        return (), ()

    def on_migration_order(self, sender: MemberId, message: m.MigrationOrder, now: int) -> None:
        """Masters of these tests order nothing of themselves."""

    def refusal_to_commit(self, message: m.MigrationCommit) -> str | None:
        return None


def follower(name: str, master: str, **settings: Any) -> InstalledTable:
    """The installed table of a member that follows the master, and has no table yet."""
    config = NodeConfig(**({"partition_count": 1} | settings))
    local = LocalContext(lone_id(name), config, this_release(), Outbox())
    installed_table = InstalledTable(local, HeldReplicas(config))
    installed_table.on_membership(membership_of(lone_view(master + name, 1), lone_id(master), leads=False), 0)
    return installed_table


def membership_of(
    view: MembersView, master: MemberId, *, leads: bool, leaving: Sequence[MemberId] = ()
) -> MembershipChanged:
    """What the machines of a member are told of its membership."""
    return MembershipChanged(view, master, leads, tuple(leaving), None, True)


class Master:
    """The installed table and the coordinator of the first member; what it sends and records is kept."""

    def __init__(
        self,
        members: str,
        *rows: str,
        versions: Sequence[int] = (),
        targets: Sequence[str] | None = None,
        silent: str = "",
        cluster_version: int = PROTOCOL_VERSION,
        **settings: Any,
    ) -> None:
        """The member has found a table of these rows; `targets`: where it wants the replicas, if not where they are.

        `silent`: members that have not answered its search yet.
        """
        if len(members) == 1:
            raise ValueError("nobody tells a lone master a table")
        usual: dict[str, Any] = {"partition_count": len(rows), "backup_count": max(len(row) for row in rows) - 1}
        config = NodeConfig(**(usual | settings))
        self.now = 100_000
        self.this = lone_id(members[0])
        self.targets = targets
        self.sent: list[tuple[str, Any]] = []
        self.events: list[Any] = []
        self.told: list[Any] = []
        """What it has sent and recorded, in one order."""
        self._out = Outbox()
        local = self._local = LocalContext(self.this, config, this_release(), self._out, GridClock())
        self.installed_table = InstalledTable(local, HeldReplicas(config))
        self.coordinator = PartitionCoordinator(local, self.installed_table, CoordinatorQuestions())
        self._view_version, self._cluster_version = 0, cluster_version
        self.view(members)
        found = table_of(*rows, versions=versions, backups=config.backup_count)
        for name in [name for name in members[1:] if name not in silent]:
            self.hear(name, m.FetchedTable(1, found))

    def update(self, *completed: m.CompletedMigration) -> m.TableUpdate:
        """What it publishes now as a whole."""
        return m.TableUpdate(self.table, completed, self.installed.id, self._local.read_clock(self.now))

    # --- inputs ----------------------------------------------------------------------------------------------------

    def view(self, members: str, *, leaving: str = "") -> None:
        """The members are these, and some of them want to leave."""
        self._view_version += 1
        self.members, self._leaving = members, leaving
        self.installed = lone_view(members, self._view_version, cluster_version=self._cluster_version)
        leavers = [lone_id(name) for name in leaving]
        fact = membership_of(self.installed, self.this, leads=True, leaving=leavers)
        self.installed_table.on_membership(fact, self.now)
        self._input(self.coordinator.on_membership, fact, self._out.facts[TableConfirmed], self.now)

    def want(self, *targets: str) -> None:
        """Other targets from now on; what makes it plan anew is that one who holds nothing wants to leave, or not any more."""
        self.targets = targets
        self.view(self.members, leaving="" if self._leaving else "Z")

    def hear(self, name: str, message: m.Message) -> None:
        sender = lone_id(name)
        match message:
            case m.FetchedTable():
                self._input(self.coordinator.on_fetched_table, sender, message, self.now)
            case m.TableRequest():
                self._input(self.coordinator.on_table_request, sender, message, self.now)
            case m.MigrationReady():
                self._input(self.coordinator.on_migration_ready, sender, message, self.now)
            case m.MigrationAnswer():
                self._input(self.coordinator.on_migration_answer, sender, message, self.now)
            case m.TableAck():
                self._input(self.coordinator.on_table_ack, sender, message, self.now)
            case m.KeptReport():
                self._input(self.coordinator.on_kept_report, sender, message, self.now)
            case _:
                raise ValueError(f"a master does not hear this about its table: {message}")

    def confirm(self, name: str, version: int) -> None:
        """A heartbeat tells which table a member has."""
        confirmation = m.MasterConfirmation(self.installed.version, self.installed.maker, version)
        self._input(self.coordinator.on_master_confirmation, lone_id(name), confirmation, self.now)

    def acknowledge(self, names: str) -> None:
        """These members say that they have the present table."""
        for name in names:
            self.hear(name, m.TableAck(self.table.version))

    def ready(self, partition: int, *, done: bool = True, reason: str = "") -> None:
        """The owner says that the destination holds everything, or that it gave up."""
        to, order = self.last_order(partition)
        destination = order.migration.destination
        assert destination is not None
        self.hear(to, m.MigrationReady(partition, order.base_version, destination, done, 1, 7, reason))

    def answer(self, partition: int, *, accepted: bool, reason: str = "") -> None:
        """The destination has committed, or refuses to."""
        commits = self.commits(partition)
        assert commits, f"nobody was told to commit for partition {partition}"
        to, commit = commits[-1]
        self.hear(to, m.MigrationAnswer(partition, commit.base_version, accepted, reason))

    def advance(self, ms: int) -> None:
        """Time passes, at every deadline."""
        end = self.now + ms
        for _ in range(10_000):
            deadline = self.coordinator.next_deadline()
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now + 1, deadline)
            self._input(self.coordinator.on_time, self.now)
        raise AssertionError("time does not get on")

    def _input(self, method: Any, *arguments: Any) -> None:
        with patch("phalanx.partition.coordinator.eligibility.assign", self._assign):
            method(*arguments)
        self.installed_table.validate()
        for effect in self._out.take():
            if isinstance(effect, Send):
                self.sent.append((name_of(effect.to), effect.message))
                self.told.append(effect.message)
            elif isinstance(effect, Record):
                self.events.append(effect.event)
                self.told.append(effect.event)

    def _assign(self, rows: Sequence[Slots], candidates: object, backup_count: int) -> list[Slots]:
        return list(rows) if self.targets is None else [slots_of(row) for row in self.targets]

    # --- looking ---------------------------------------------------------------------------------------------------

    @property
    def table(self) -> PartitionTable:
        return self.installed_table.table

    @property
    def rows(self) -> list[str]:
        return rows_of(self.table)

    def orders(self, partition: int | None = None) -> list[tuple[str, m.MigrationOrder]]:
        """To whom, and what; in order."""
        return [
            (to, message)
            for to, message in self.sent
            if isinstance(message, m.MigrationOrder) and partition in (None, message.partition)
        ]

    def last_order(self, partition: int) -> tuple[str, m.MigrationOrder]:
        orders = self.orders(partition)
        assert orders, f"nothing was ordered for partition {partition}"
        return orders[-1]

    def order(self, partition: int) -> m.MigrationOrder:
        return self.last_order(partition)[1]

    def the_only_one(self) -> int:
        """The partition of the only migration under way."""
        underway = list(self.coordinator.migrations.underway)
        assert len(underway) == 1, f"not one migration is under way: {underway}"
        return underway[0]

    def commits(self, partition: int) -> list[tuple[str, m.MigrationCommit]]:
        return [
            (to, message)
            for to, message in self.sent
            if isinstance(message, m.MigrationCommit) and message.partition == partition
        ]

    def sent_to(self, name: str, kind: Any = object) -> list[Any]:
        return [message for to, message in self.sent if to == name and isinstance(message, kind)]

    def events_of(self, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def handed_over(self) -> tuple[MemberId, ...]:
        """Whom it lets go: the members that leave, or become lite, and hold nothing that is needed."""
        fact = self._out.facts.get(ReplicasHandedOver)
        return fact.members if isinstance(fact, ReplicasHandedOver) else ()

    def published(self) -> list[tuple[str, m.TableUpdate | m.TableChanges]]:
        return [(to, message) for to, message in self.sent if isinstance(message, m.TableUpdate | m.TableChanges)]

    def outcomes(self) -> list[tuple[int, int, bool]]:
        """Partition, version and result of the completed migrations that it remembers."""
        return [(each.partition, each.base_version, each.committed) for each in self.installed_table.completed]

    def forget_sent(self) -> None:
        self.sent.clear()
        self.told.clear()
        self.events.clear()
