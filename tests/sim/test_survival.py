"""What ends with a process: a write that only this one had is lost with it, and no other write is.

D, alone on its side of a cut, has acknowledged a write, has given up its cluster and is back. It hands the write in at B.
"""

from collections.abc import Mapping

from phalanx.common.ids import Address, MemberId, Millis
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.merged_data import MergedDataChecker, Survival
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.operations import Operation, Outcome
from phalanx_proof.sim.inspection import copies
from support.harness import KEY, MAP, TEXT, Cluster
from support.merges import cluster, go_on, heal, meet, put, read, split

VALUE = TEXT + b"theirs"


class Acknowledged:
    """D's write, and what becomes of it when D dies."""

    def __init__(self) -> None:
        self.cluster = c = cluster("ABCD", partition_count=1, backup_count=0)
        c.assign(rows=["B"])
        split(c, "ABC", "D")
        self.write = self.operation("put", c.now, c.now + 1, values=(VALUE,))
        put(c, "D", KEY, b"theirs")
        c.advance(2_000)
        meet(c, "D")

    def operation(self, kind: str, begin: Millis, end: Millis, **fields: object) -> Operation:
        made = Operation(1, kind, 3, MemberId("D"), (KEY,), begin)
        made.outcome, made.end = Outcome.OK, end
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def hand_in(self, silent: tuple[str, str]) -> None:
        """D is in the cluster again, and hands in what it kept; nothing goes this way meanwhile."""
        self.cluster.hold(*silent)
        self.cluster.rejoin("D")
        self.cluster.advance(500)

    def crash(self) -> Survival:
        """D's process ends."""
        c, survival = self.cluster, Survival()
        survival.on_last_input("D", copies(hosts(c), MAP), c.now)
        c.crash("D")
        survival.on_ended("D")
        return survival

    def judge(self, survival: Survival, found: bytes | None) -> tuple[int, list[str]]:
        """How many losses are excused, and what is not, if so the key is found in the end."""
        findings, now = Findings(), self.cluster.now
        checker = MergedDataChecker(findings, survival, 20, 20, {}, lambda key: ())
        last = self.operation("get", now, now + 1, result=(found,))
        checker.check([self.write], {KEY: last}, now)
        return checker.excused_losses, [violation.what for violation in findings.violations]


def hosts(c: Cluster) -> list[Host]:
    made = []
    for number, (name, node) in enumerate(sorted(c.nodes.items())):
        host = Host(number, Address(name))
        host.node = node
        made.append(host)
    return made


def held(c: Cluster) -> Mapping[str, int]:
    """How many copies of the write there are at each member."""
    found = copies(hosts(c), MAP).get(KEY, [])
    return {name: sum(copy.process == name for copy in found) for name in sorted({copy.process for copy in found})}


def test_a_write_that_was_handed_in_and_not_taken_is_lost_with_the_process_that_kept_it() -> None:
    """B has not read what D handed in, and refuses it when D is dead: nobody has the write, and nobody could have."""
    plot = Acknowledged()
    c = plot.cluster
    plot.hand_in(("D", "B"))
    (sending,) = c.nodes["D"].data_merging.sendings
    assert sending.on_the_way
    assert held(c) == {"D": 1}
    survival = plot.crash()
    c.release()
    go_on(c)
    assert read(c, "A", KEY) is None
    assert plot.judge(survival, None) == (1, [])


def test_a_write_that_was_handed_in_and_taken_is_not_lost_with_the_process_that_kept_it() -> None:
    """B has it, and its acknowledgement has not come to D."""
    plot = Acknowledged()
    c = plot.cluster
    plot.hand_in(("B", "D"))
    assert held(c) == {"B": 1, "D": 1}
    survival = plot.crash()
    c.release()
    go_on(c)
    assert read(c, "A", KEY) == b"theirs"
    assert plot.judge(survival, VALUE) == (0, [])
    assert plot.judge(survival, None) == (0, ["no acknowledged write is lost"])


def test_a_write_that_was_merged_has_nothing_to_do_with_the_process_that_kept_it() -> None:
    plot = Acknowledged()
    heal(plot.cluster, 10)
    assert held(plot.cluster) == {"B": 1}
    assert plot.judge(plot.crash(), None) == (0, ["no acknowledged write is lost"])
