"""Plan the migrations, in order, that bring one partition from its current replicas to its target.

Members that take each other's places form *chains* of indexes. The head of a chain is an index that shall get a new
member or become empty. The next index is the one to which the member at this index shall go, and so on. The tail is an
index that is empty now or whose member leaves. Chains share neither indexes nor members. A chain without ends is a
cycle: it would need fewer replicas for a moment, so its members stay where they are. The ends of a chain say what it
does to the number of replicas:

    head        tail       replicas    how
    new member  leaves     the same    MOVE at the head, then down the chain (each frees the member that is next)
    new member  empty      one more    the same, or SHIFT UP into the empty index; COPY or SHIFT DOWN at the end
    nobody      empty      the same    the hole wanders from the tail to the head: SHIFT UP; SHIFT UP DOWN where a
                                       replica becomes colder
    nobody      leaves     one fewer   CLEAR, or SHIFT UP from the head in another's place; then as the first

The hottest index (the lowest: index 0 is the owner) that is not right yet is served first, by the next step of its
chain. Before the step of a chain that lowers the number of replicas, all chains that raise it are completed; so the
number never falls below the smaller of those at the start and at the end. The owner's index is never empty in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.common.errors import InvariantViolation, UsageError
from phalanx.common.migration import M, Migration, MigrationKind, apply_migration

__all__ = [
    "Migration",
    "MigrationKind",
    "apply_migration",
    "cancel_cycles",
    "plan_exchange",
    "plan_migrations",
    "prioritize",
]


def plan_migrations(current: Sequence[M | None], target: Sequence[M | None]) -> list[Migration[M]]:
    """Return the migrations, in order, that lead from the current replicas to the target without its cycles.

    `current` and `target` name the member at each replica index, None where there is none, and are equally long.
    Raises `UsageError` (a ValueError) if they are not, or if one names a member twice. DL-62 to DL-82.
    """
    wanted = cancel_cycles(current, target)
    state = list(current)
    if state == wanted:
        return []
    chains, order = _chains(state, wanted)
    raising: list[Iterator[Migration[M]]] = []
    steps_at: dict[int, Iterator[Migration[M]]] = {}
    for chain in chains:
        steps_at.update(dict.fromkeys(chain, _steps(chain, state, wanted, raising)))
    plan: list[Migration[M]] = []
    for index in order:
        while state[index] != wanted[index]:
            if (step := next(steps_at[index], None)) is None:
                raise InvariantViolation(f"a chain ends in its target ({current=}, {target=}, {state=})")
            plan.append(step)
    return plan


def cancel_cycles(current: Sequence[M | None], target: Sequence[M | None]) -> list[M | None]:
    """Return the target without cyclic moves: members that would exchange places in a ring (two or more) stay.

    The rest of the target is unchanged. Raises as `plan_migrations`. DL-60.
    """
    _check(current, target)
    wanted = list(target)
    place = {member: index for index, member in enumerate(current) if member is not None}
    seen: set[int] = set()
    for start in range(len(wanted)):
        ring: list[int] = []
        index: int | None = start
        while index is not None and index not in seen:
            seen.add(index)
            ring.append(index)
            member = target[index]
            index = None if member is None else place.get(member)
        if index == start:
            for index in ring:
                wanted[index] = current[index]
    return wanted


def plan_exchange(current: Sequence[M | None], target: Sequence[M | None]) -> Migration[M] | None:
    """Return the migration that exchanges the owner and a backup, if the target (with its cycles) exchanges them.

    `cancel_cycles` would undo it. In one step it lowers no number of replicas: both members hold the data. Beyond the
    reference. Raises as `plan_migrations`.
    """
    _check(current, target)
    if not current or current[0] is None or target[0] is None or current[0] == target[0]:
        return None
    owner, backup = current[0], target[0]
    for index in range(1, len(current)):
        if current[index] == backup and target[index] == owner:
            return Migration(MigrationKind.SHIFT_UP_DOWN, owner, 0, index, backup, index, 0)
    return None


def prioritize(migrations: Sequence[Migration[M]]) -> list[Migration[M]]:
    """Return the plan with COPY and SHIFT UP moved ahead of migrations with which they do not conflict.

    They pass a MOVE at a hotter index and a SHIFT DOWN to a colder index if they share no participant with it; the
    order is the same otherwise. Two exceptions: a SHIFT UP that replaces another member lowers the number of replicas,
    so it waits for a SHIFT DOWN, which raises it; and a SHIFT DOWN without a new member can be what empties the index.
    DL-79 to DL-82.
    """
    result: list[Migration[M]] = []
    for migration in migrations:
        position = len(result)
        while position and _may_pass(migration, result[position - 1]):
            position -= 1
        result.insert(position, migration)
    return result


def _may_pass(migration: Migration[M], earlier: Migration[M]) -> bool:
    if migration.kind not in (MigrationKind.COPY, MigrationKind.SHIFT_UP):
        return False
    if any(member in earlier.participants for member in migration.participants):
        return False
    if earlier.kind is MigrationKind.MOVE:
        return earlier.index < migration.index
    if earlier.kind is MigrationKind.SHIFT_DOWN and earlier.destination is not None:
        return earlier.source_new_index > migration.index and migration.source is None
    return False


def _check(current: Sequence[M | None], target: Sequence[M | None]) -> None:
    if len(current) != len(target):
        raise UsageError(f"current and target replicas must be equally long: {list(current)} and {list(target)}")
    for replicas in (current, target):
        present = [member for member in replicas if member is not None]
        if len(set(present)) != len(present):
            raise UsageError(f"a member cannot hold two replicas of a partition: {list(replicas)}")


def _chains(current: Sequence[M | None], wanted: Sequence[M | None]) -> tuple[list[list[int]], list[int]]:
    """Return the chains, each from head to tail, and the order in which their indexes are served.

    Hotter indexes come first in both; but if the target has no owner, the owner's index is emptied last.
    """
    place = {member: index for index, member in enumerate(wanted) if member is not None}
    held = set(current)
    chains: list[list[int]] = []
    order: list[int] = []
    for head, member in enumerate(wanted):
        if member == current[head] or (member is not None and member in held):
            continue
        chain = [head]
        while (leaver := current[chain[-1]]) is not None and leaver in place:
            chain.append(place[leaver])
        chains.append(chain)
        order += chain
    chains.sort(key=min)
    order.sort()
    if order[0] == 0 and wanted[0] is None:
        last = chains[0]
        order = [index for index in order if index not in last] + sorted(last)
    return chains, order


def _steps(
    chain: list[int], state: list[M | None], wanted: Sequence[M | None], raising: list[Iterator[Migration[M]]]
) -> Iterator[Migration[M]]:
    """Return the migrations of one chain as an iterator that applies each to `state`.

    Append the iterator to `raising` if the chain raises the number of replicas.
    """
    new, hole = wanted[chain[0]] is not None, state[chain[-1]] is None
    if not new:
        return _shift_hole(chain, state, wanted) if hole else _shrink(chain, state, wanted, raising)
    if not hole:
        return _move(chain, state, wanted)
    steps = _grow(chain, state, wanted)
    raising.append(steps)
    return steps


def _move(chain: Sequence[int], state: list[M | None], wanted: Sequence[M | None]) -> Iterator[Migration[M]]:
    """Yield MOVEs from the head: each removes the member that the next one brings in again (3.1.3.2, 3.1.4.2)."""
    for index in chain:
        yield _step(MigrationKind.MOVE, state, leaves=index, to=index, new=wanted[index])


def _grow(chain: list[int], state: list[M | None], wanted: Sequence[M | None]) -> Iterator[Migration[M]]:
    """Yield the steps of a chain with a new member at the head and an empty tail.

    The hottest index of the remaining chain decides at which end to continue.
    """
    while len(chain) > 1:
        if chain[-1] == min(chain):
            hole = chain.pop()
            yield _step(MigrationKind.SHIFT_UP, state, to=hole, comes=chain[-1])
        elif len(chain) > 2:
            head = chain.pop(0)
            yield _step(MigrationKind.MOVE, state, leaves=head, to=head, new=wanted[head])
        else:
            head, hole = chain
            yield _step(MigrationKind.SHIFT_DOWN, state, leaves=head, colder=hole, to=head, new=wanted[head])
            return
    yield _step(MigrationKind.COPY, state, to=chain[0], new=wanted[chain[0]])


def _shift_hole(chain: list[int], state: list[M | None], wanted: Sequence[M | None]) -> Iterator[Migration[M]]:
    """Move the hole from the empty tail to the head, which becomes empty (the coldest index, if no holes are wanted).

    Where the hole would pass a hotter index, and interrupt the replica there, the member at the head fills the hole at
    once instead. The remaining ring of full indexes is solved by exchanges.
    """
    while len(chain) > 1:
        hole = chain.pop()
        index, before = chain[-1], chain[-2] if len(chain) > 1 else -1
        if index > hole:
            yield _step(MigrationKind.SHIFT_UP, state, to=hole, comes=index)
        elif before > index and not before < hole < chain[0]:
            chain.pop()
            yield _step(MigrationKind.SHIFT_UP_DOWN, state, leaves=index, colder=hole, to=index, comes=before)
        elif chain[0] > hole:
            yield _step(MigrationKind.SHIFT_UP, state, to=hole, comes=chain[0])
            yield from _exchange(sorted([*chain[1:], hole]), state, wanted)
            return
        else:
            yield _step(MigrationKind.SHIFT_DOWN, state, leaves=index, colder=hole)


def _exchange(ring: Sequence[int], state: list[M | None], wanted: Sequence[M | None]) -> Iterator[Migration[M]]:
    """Exchange two members at a time until each index of the ring, hottest first, has its wanted member."""
    for index in ring:
        if state[index] != wanted[index]:
            other = state.index(wanted[index])
            yield _step(MigrationKind.SHIFT_UP_DOWN, state, leaves=index, colder=other, to=index, comes=other)


def _shrink(
    chain: list[int], state: list[M | None], wanted: Sequence[M | None], raising: list[Iterator[Migration[M]]]
) -> Iterator[Migration[M]]:
    """Yield the steps of a chain whose head becomes empty and whose tail leaves; first those of all raising chains.

    So the number of replicas is lowered last. Example: from [A, -, C] to [C, B, -]. If C took A's place before B was
    copied, C alone would hold the partition in between. The coldest index is given up (DL-77), the owner's index only
    at the end.
    """
    for steps in raising:
        yield from steps
    head = chain[0]
    if len(chain) > 1 and head > chain[1]:
        hotter = chain[1]
        yield _step(MigrationKind.SHIFT_UP, state, leaves=hotter, to=hotter, comes=head)
        yield from _move(chain[2:], state, wanted)
    elif head > 0:
        yield _step(MigrationKind.CLEAR, state, leaves=head)
        yield from _move(chain[1:], state, wanted)
    else:
        yield _step(MigrationKind.CLEAR, state, leaves=chain[-1])
        yield from _shift_hole(chain, state, wanted)


def _step(
    kind: MigrationKind,
    state: list[M | None],
    *,
    leaves: int = -1,
    colder: int = -1,
    to: int = -1,
    comes: int = -1,
    new: M | None = None,
) -> Migration[M]:
    """Return the migration that takes the member at `leaves` to `colder`, and that at `comes` (or `new`) to `to`.

    Apply it to `state`.
    """
    leaver = state[leaves] if leaves >= 0 else None
    comer = state[comes] if comes >= 0 else new
    if leaves >= 0:
        state[leaves] = None
    if comes >= 0:
        state[comes] = None
    if colder >= 0:
        state[colder] = leaver
    if to >= 0:
        state[to] = comer
    return Migration(kind, leaver, leaves, colder, comer, comes, to)
