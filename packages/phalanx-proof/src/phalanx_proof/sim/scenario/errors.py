"""What is wrong with a scenario file."""

from __future__ import annotations

from phalanx.common.errors import UsageError


class ScenarioError(UsageError):
    """A line of a scenario file makes no sense. The message names the file, the line, and what was expected there."""


def wrong(expected: str, found: object = None) -> ScenarioError:
    """Return the error for a line; the caller that knows the file and the line puts them in front."""
    return ScenarioError(f"expected {expected}" + (f", found {found!r}" if found is not None else ""))
