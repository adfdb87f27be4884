"""`phalanx simulate --explore`: every history of a few members within bounds, instead of drawn ones.

Prints what was gone through from each start; a rule that can be broken comes with a shortest way to it and the command
that plays it step by step. The last line of stdout is JSON.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from phalanx.common.errors import UsageError
from phalanx.reports.value_json import as_json
from phalanx_proof.sim.exploration.initial_states import STARTS
from phalanx_proof.sim.exploration.search import Exploration, Explored, replay
from phalanx_proof.sim.exploration.world import SUPPORTED, ExplorationLimits

DEFAULT_DEPTH = 8


def explore_all(members: int, depth: int, start: str, limits: str, *, is_quiet: bool) -> bool:
    """Explore from one start, or from all; whether something was broken."""
    _check(members, start)
    bounds = _parse_limits(limits)
    results = []
    for name in [start] if start else STARTS:
        result = Exploration(members, name, bounds).run(depth)
        results.append(result)
        if not is_quiet:
            _tell(result)
    print(as_json(msgspec.to_builtins({"depth": depth, "states": sum(r.states for r in results), "explored": results})))
    return any(result.findings for result in results)


def replay_steps(members: int, start: str, steps: str, *, is_quiet: bool) -> bool:
    """Play given steps; whether something was broken."""
    if not start:
        raise UsageError("--replay: say with --start where the steps begin")
    _check(members, start)
    try:
        lines, broken = replay(members, start, steps)
    except ValueError as error:
        raise UsageError(f"--replay: {error}") from error
    if not is_quiet:
        print("\n".join(lines))
    findings = [{"what": what, "story": story} for what, story in broken]
    print(as_json({"members": members, "start": start, "steps": steps, "findings": findings}))
    return bool(broken)


def _check(members: int, start: str) -> None:
    if members not in SUPPORTED:
        raise UsageError(
            f"--explore: {members} members; from {SUPPORTED.start} to {SUPPORTED.stop - 1} can be explored"
        )
    if start and start not in STARTS:
        raise UsageError(f"--start: there is no start {start!r}; there are {', '.join(STARTS)}")


def _parse_limits(text: str) -> ExplorationLimits:
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        if name not in ExplorationLimits.__struct_fields__ or not number.isdecimal() or int(number) > 15:
            names = ", ".join(ExplorationLimits.__struct_fields__)
            raise UsageError(f"--limits: {part!r} is not a limit: expected NAME=NUMBER, up to 15, NAME one of {names}")
        given[name] = int(number)
    return ExplorationLimits(**given)


def _tell(result: Explored) -> None:
    end = "all there are" if result.is_exhausted else f"to depth {result.depth}"
    print(f"{result.members} members, {result.start}: {result.states} states, {end}, in {result.cpu_s} s")
    for finding in result.findings:
        print(f"VIOLATION: {finding.what}\n    {finding.story}")
        command = f"phalanx simulate --explore {result.members} --start {result.start} --replay"
        print(f"repeat with: {command} {shlex.quote(finding.steps)}")
