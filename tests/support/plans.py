"""What plans are judged by: replicas after a migration, all small cases, and the slow twin of the planner.

Nothing here calls what it judges.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

from phalanx.common.migration import Migration, MigrationKind

Replicas = tuple[str | None, ...]
Plan = Sequence[Migration[str]]

OLD, NEW = "ABCDEFG", "TUVWXYZ"


def replicas(text: str) -> Replicas:
    """Replicas as in the reference, one letter each, `-` for nobody: `A-C`."""
    return tuple(None if letter == "-" else letter for letter in text)


def text(state: Replicas) -> str:
    return "".join(member or "-" for member in state)


def move(index: int, source: str, destination: str) -> Migration[str]:
    return Migration(MigrationKind.MOVE, source, index, -1, destination, -1, index)


def copy(destination: str, index: int) -> Migration[str]:
    return Migration(MigrationKind.COPY, None, -1, -1, destination, -1, index)


def shift_up(member: str, before: int, after: int, source: str | None = None) -> Migration[str]:
    return Migration(MigrationKind.SHIFT_UP, source, -1 if source is None else after, -1, member, before, after)


def shift_down(source: str, before: int, after: int, destination: str | None) -> Migration[str]:
    return Migration(
        MigrationKind.SHIFT_DOWN, source, before, after, destination, -1, -1 if destination is None else before
    )


def shift_up_down(source: str, before: int, after: int, destination: str, comes_from: int) -> Migration[str]:
    return Migration(MigrationKind.SHIFT_UP_DOWN, source, before, after, destination, comes_from, before)


def clear(source: str, index: int) -> Migration[str]:
    return Migration(MigrationKind.CLEAR, source, index, -1, None, -1, -1)


def count(state: Replicas) -> int:
    return sum(member is not None for member in state)


def leading(state: Replicas) -> int:
    """How many of the hottest indexes are filled without a gap."""
    return sum(1 for _ in itertools.takewhile(lambda member: member is not None, state))


def rises_then_falls(counts: Sequence[int]) -> bool:
    """Whether nothing is raised once something was lowered."""
    changes = [after - before for before, after in itertools.pairwise(counts) if after != before]
    return changes == sorted(changes, reverse=True)


def step(state: Replicas, migration: Migration[str]) -> Replicas:
    """The replicas after one migration; fails if it does not fit them."""
    result = list(state)
    ends = (
        (migration.source, migration.source_current_index, migration.source_new_index),
        (migration.destination, migration.destination_current_index, migration.destination_new_index),
    )
    for member, before, _ in ends:
        if member is None:
            continue
        if before < 0:
            assert member not in state, (text(state), migration)
        else:
            assert result[before] == member, (text(state), migration)
            result[before] = None
    for member, _, after in ends:
        if member is not None and after >= 0:
            assert result[after] is None, (text(state), migration)
            result[after] = member
    return tuple(result)


def states(start: Replicas, plan: Plan) -> list[Replicas]:
    """The replicas after each migration, from the start on; fails where one does not fit or a member is twice."""
    seen = [start]
    for migration in plan:
        seen.append(step(seen[-1], migration))
        present = [member for member in seen[-1] if member is not None]
        assert len(present) == len(set(present)), (text(seen[-1]), migration)
    return seen


def check_plan(start: Replicas, end: Replicas, plan: Plan) -> list[Replicas]:
    """What must hold of every plan (DL-78), prioritised or not. Returns the states."""
    seen = states(start, plan)
    where = (text(start), text(end), plan)
    assert seen[-1] == end, where
    bound = min(count(start), count(end))
    assert all(count(state) >= bound for state in seen), where
    assert rises_then_falls([count(state) for state in seen]), where
    if start and start[0] is not None:
        assert all(state[0] is not None for state in seen[:-1]), where
    if start:
        assert all(state[0] in (start[0], end[0]) for state in seen), where
    if leading(end) == count(end):
        shown = min(leading(start), leading(end))
        assert all(leading(state) >= shown for state in seen), where
        assert all(m.destination for m in plan if m.kind is MigrationKind.SHIFT_DOWN), where
    return seen


def small_cases(size: int) -> Iterator[tuple[Replicas, Replicas]]:
    """All current and target replicas of that many indexes, with holes in both, up to the names of members."""
    for filled in itertools.product((True, False), repeat=size):
        names = iter(OLD)
        current = tuple(next(names) if here else None for here in filled)
        held = tuple(member for member in current if member)
        for choice in itertools.product((None, "new", *held), repeat=size):
            fresh = iter(NEW)
            target = tuple(next(fresh) if member == "new" else member for member in choice)
            present = [member for member in target if member]
            if len(set(present)) == len(present):
                yield current, target


def without_cycles(current: Replicas, target: Replicas) -> Replicas:
    """The slow twin of cancelling: the members of a ring are those that come back to where they started."""
    result = list(target)
    for start, member in enumerate(current):
        index, followed = start, member
        for _ in range(len(current)):
            if followed is None or followed not in target:
                break
            index = target.index(followed)
            followed = current[index]
            if index == start:
                result[start] = member
                break
    return tuple(result)


def single_migrations(state: Replicas, newcomers: Sequence[str]) -> Iterator[Migration[str]]:
    """Every migration that fits the replicas, newcomers being who is not among them."""
    size = len(state)
    for index, here in enumerate(state):
        colder = range(index + 1, size)
        if here is None:
            yield from (copy(member, index) for member in newcomers)
            yield from (shift_up(member, j, index) for j in colder if (member := state[j]))
            continue
        yield clear(here, index)
        yield from (move(index, here, member) for member in newcomers)
        yield from (shift_up(member, j, index, here) for j in colder if (member := state[j]))
        for j in (j for j in colder if state[j] is None):
            yield shift_down(here, index, j, None)
            yield from (shift_down(here, index, j, member) for member in newcomers)
            yield from (shift_up_down(here, index, j, member, k) for k in colder if (member := state[k]))
        yield from (shift_up_down(here, index, j, member, j) for j in colder if (member := state[j]))


def fewest_migrations(start: Replicas, end: Replicas) -> int | None:
    """The slow twin of planning: the length of the shortest plan that keeps the bounds; None if there is none.

    Breadth first over all that single migrations of the members involved can do.
    """
    bound = min(count(start), count(end))
    allowed: Callable[[Replicas], bool] = lambda state: (  # noqa: E731
        state == end or (count(state) >= bound and (start[0] is None or state[0] is not None))
    )
    members = sorted({member for member in (*start, *end) if member})
    level, seen, length = [start], {start}, 0
    while level:
        if end in seen:
            return length
        length += 1
        following: list[Replicas] = []
        for state in level:
            for migration in single_migrations(state, [member for member in members if member not in state]):
                after = step(state, migration)
                if after not in seen and allowed(after):
                    seen.add(after)
                    following.append(after)
        level = following
    return None


def plan_as_written(current: Replicas, target: Replicas) -> list[Migration[str]]:
    """The reference's decision list, line by line, for a target without cycles and without holes in the middle.

    An index that wants a new member while its own goes to a colder one is a shift down only if that one is empty. The
    last rule looks back along who holds what until it finds a move or a shift up.
    """
    state, planned = current, []
    index = 0
    while index < len(state):
        here, wanted = state[index], target[index]
        if here == wanted:
            index += 1
            continue
        if wanted is None:
            assert here is not None
            planned.append(clear(here, index))
        elif wanted not in state:
            colder = target.index(here) if here in target else -1
            if here is None:
                planned.append(copy(wanted, index))
            elif colder > index and state[colder] is None:
                planned.append(shift_down(here, index, colder, wanted))
            else:
                planned.append(move(index, here, wanted))
        elif here is None:
            planned.append(shift_up(wanted, state.index(wanted), index))
        else:
            place = index
            while (member := target[place]) in state and target[state.index(member)] is not None:
                place = state.index(member)
            leaver = state[place]
            assert member is not None
            assert leaver is not None
            if member in state:
                planned.append(shift_up(member, state.index(member), place, leaver))
            else:
                planned.append(move(place, leaver, member))
        state = step(state, planned[-1])
    return planned
