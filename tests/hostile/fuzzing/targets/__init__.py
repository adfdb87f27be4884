"""What `./run fuzz` can play, by name."""

from __future__ import annotations

import importlib

from hostile.fuzzing.target import Target

MODULES = {
    "codec": "data", "rows": "data", "compact": "data",
    "greeting": "native", "records": "native", "native-session": "native", "resp": "resp", "hazelcast": "hazelcast",
    "config": "files", "archive": "files", "event-log": "files", "audit-page": "files", "http": "http",
    "functions": "evaluation", "conditions": "evaluation", "where": "evaluation", "glob": "evaluation",
}  # fmt: skip
"""Name of a target to the module here that has it."""


def make_target(name: str) -> Target:
    """Return a new target of that name."""
    module = importlib.import_module(f"hostile.fuzzing.targets.{MODULES.get(name, name)}")
    targets: dict[str, type[Target]] = module.TARGETS
    return targets[name]()
