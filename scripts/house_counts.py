"""Count in the source, folder by folder, what there is to be less of.

    ./run python scripts/house_counts.py                        the counts of each folder
    ./run python scripts/house_counts.py --list verbless grid   the places that a count of a folder is made of
    ./run python scripts/house_counts.py --json                 the counts as JSON
    ./run python scripts/house_counts.py --record               lower the numbers in tests/counts.json to these

`tests/test_house.py` lets no number rise above the one in `tests/counts.json`. Of what `COUNTS` names, more may be there than is found:
who hides it behind a variable of another type is not caught. Native code is not read.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from class_reaches import Body, Function, Reaches, Tree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.roots import TESTS, find_packages

RECORDED = TESTS / "counts.json"
CORE = ("common", "wire", "codec", "machine", "membership", "partition", "grid", "calls", "node")
MOST_PARTS = 4
MOST_PARAMETERS = 6
PREDICATE = re.compile(r"_*(?:is|has|fits|owns|holds)_")
SENDS = {"fail", "record", "refuse", "reply", "send", "tell"}
ADDS = {"add", "append", "appendleft", "extend", "insert", "setdefault", "update"}
REMOVES = {"clear", "difference_update", "discard", "intersection_update", "pop", "popitem", "popleft", "remove"}
PAST_THE_DOOR = {"commit_plain"}
NATIVE_WRITES = {"put_values", "carry_out"}
IMPERATIVES = """
Abort Accept Acknowledge Acquire Act Add Admit Adopt Advance Allow Announce Answer Append Apply Ask Assemble Assign Be
Become Begin Bind Block Bound Branch Break Bring Build Call Cancel Carry Change Check Choose Claim Clear Close Collect
Combine Come Commit Compare Compile Complete Compress Compute Concatenate Conclude Confirm Connect Continue Convert Copy
Correct Count Crash Create Cut Decide Decode Delete Deliver Describe Deserialise Detect Discard Dispatch Divide Do Draw
Drive Drop Encode End Ensure Enter Estimate Evict Exchange Exempt Expect Expire Explore Fail Fetch Fill Find Finish Fit
Flag Flush Follow Forget Free Gather Generate Get Give Go Grant Group Grow Halve Hand Handle Have Hide Hold Ignore
Import Indent Infer Initialise Insert Install Join Judge Keep Kill Leave Lend Let List Listen Load Log Look Lose Make
Mark Measure Mend Merge Move Name Normalise Note Notify Number Observe Open Order Pack Park Parse Pass Pause Pick Plan
Plant Play Poll Prepare Print Probe Propose Publish Push Put Queue Quote Raise Rank Reach Read Receive Record Refuse
Register Regroup Reject Rejoin Release Remove Renew Repeat Replace Replay Report Reserve Reset Resolve Respond Restart
Restore Resume Retry Return Ring Roll Run Save Say Scan Schedule Seal See Select Send Serialise Serve Set Shift Shorten
Show Skip Slow Solve Sort Split Stage Stand Start Stay Step Stop Store Sum Suppose Suspect Suspend Switch Take Tell
Think Track Translate Trim Truncate Try Turn Undo Unlock Unpack Unseal Update Use Validate Verify Wait Wake Walk Want
Warn Watch Work Write Yield
"""
"""The words with which docstrings begin. Another one is added here when it is first used, unless it begins nouns more often."""
VERBS = frozenset(IMPERATIVES.split())

Counts = dict[str, dict[str, int]]
"""Folder to count to number; those that are 0 are left out."""


class Place(NamedTuple):
    """What is counted: once for each folder, however often it is found there."""

    folder: str
    what: str


class Code:
    """The modules of some packages, and what is in them."""

    def __init__(self, packages: Iterable[Path]) -> None:
        self.folders: dict[str, str] = {}
        """Module to the first folder below its package; to the package, for modules that stand in it."""
        modules = {}
        for package in packages:
            for path in sorted(package.rglob("*.py")):
                parts = path.relative_to(package.parent).with_suffix("").parts
                self.folders[".".join(parts)] = parts[1] if len(parts) > 2 else parts[0]
                modules[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
        self.tree = Tree(modules)
        self.reaches = Reaches(self.tree, ("MembershipState", "GridService")).found

    def at(self, module: str, node: ast.stmt | ast.expr, what: str) -> Place:
        """Return the place of a node."""
        return Place(self.folders[module], f"{module}:{node.lineno}:{node.col_offset} {what}")

    def function(self, body: Body, more: str = "") -> Place:
        """Return the place of a function. `more`: what is said of it beside its name."""
        return self.at(body.module, body.node, body.node.name + more)


# --- words -----------------------------------------------------------------------------------------------------------


def verbless(code: Code) -> Iterator[Place]:
    """Yield functions, but constructors and properties, with a docstring that does not begin with an imperative.

    A command of scenarios may begin with how it is written: "`put A x=1`: …" of `put`.
    """
    for body in code.tree.bodies:
        text = ast.get_docstring(body.node)
        if text is None or body.node.name == "__init__" or "property" in _decorators(body.node):
            continue
        word = re.match(r"\w+", text)
        is_syntax = re.match(rf"`{body.node.name.strip('_')}\b", text) is not None
        if not is_syntax and (word is None or word[0] not in VERBS):
            yield code.function(body, f": {text.partition(chr(10))[0]}")


def _decorators(function: Function) -> set[str]:
    """Return the last words of the names of a function's decorators, "property" also for `cached_property`."""
    words = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in function.decorator_list}
    return {word.removeprefix("cached_") for word in words}


def told_names(code: Code) -> Iterator[Place]:
    """Yield names with the word told in them, each once for a folder."""
    found = [(module, name) for module, node in code.tree.loose for name in _bound_name(node)]
    found += [(module, node.name) for module, node in code.tree.classes]
    for body in code.tree.bodies:
        inside = [*body.nodes, *ast.walk(body.node.args)]
        found += [(body.module, name) for node in inside for name in _bound_name(node)]
        found.append((body.module, body.node.name))
    for module, name in found:
        if "told" in re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"):
            yield Place(code.folders[module], name)


def _bound_name(node: ast.AST) -> Iterator[str]:
    """Yield the name that a parameter or an assignment gives to something."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def acting_predicates(code: Code) -> Iterator[Place]:
    """Yield predicates by their names that change what was there before the call, or send or record something."""
    for body in code.tree.bodies:
        if PREDICATE.match(body.node.name):
            given = {each.arg for each in body.parameters()}
            if any(_acts(node, given) for node in body.nodes):
                yield code.function(body)


def _acts(node: ast.AST, given: set[str]) -> bool:
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _belongs_to(node.value, given)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr in SENDS or (node.func.attr in ADDS | REMOVES and _belongs_to(node.func.value, given))


def _belongs_to(node: ast.expr, names: set[str]) -> bool:
    """Return whether an expression is one of these names, or what one reaches from it."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


# --- structure -------------------------------------------------------------------------------------------------------


def reads(code: Code, name: str) -> Iterator[Place]:
    """Yield the reads of a class's attributes from other modules."""
    for module, node in code.reaches[name]:
        if isinstance(node.ctx, ast.Load):
            yield code.at(module, node, f".{node.attr}")


def writes(code: Code, name: str) -> Iterator[Place]:
    """Yield the assignments to a class's attributes from other modules, and their deletions."""
    for module, node in code.reaches[name]:
        if not isinstance(node.ctx, ast.Load):
            yield code.at(module, node, f".{node.attr}")


def crowded_machines(code: Code) -> Iterator[Place]:
    """Yield classes of the core that take inputs, or have deadlines, and more than `MOST_PARTS` parts."""
    for module, node in code.tree.classes:
        methods = {each.name: each for each in node.body if isinstance(each, Function)}
        is_machine = any(name.startswith("on_") or name in ("next_deadline", "routes") for name in methods)
        parts = count_parameters(methods["__init__"]) if "__init__" in methods else 0
        if is_machine and parts > MOST_PARTS and code.folders[module] in CORE:
            yield code.at(module, node, f"{node.name}: {parts}")


def count_parameters(function: Function) -> int:
    """Return how many named parameters a function has, but `self` and `cls`."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in named)


def long_signatures(code: Code) -> Iterator[Place]:
    """Yield functions with too many parameters, but commands, whose parameters are the options of the command line."""
    options = {
        target.id
        for _, node in code.tree.loose
        if isinstance(node, ast.Assign) and _is_option(ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for body in code.tree.bodies:
        texts = [ast.unparse(each.annotation) for each in body.parameters() if each.annotation is not None]
        is_command = any(text.rpartition(".")[2] in options or _is_option(text) for text in texts)
        if (length := count_parameters(body.node)) > MOST_PARAMETERS and not is_command:
            yield code.function(body, f": {length}")


def _is_option(annotation: str) -> bool:
    """Return whether typer reads an option or an argument from a type."""
    return annotation.startswith("Annotated[") and "typer." in annotation


def numberings(code: Code) -> Iterator[Place]:
    """Yield the assignments to an attribute `seq`, but those of constructors."""
    for body in code.tree.bodies:
        if body.node.name == "__init__":
            continue
        for node in body.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "seq" and isinstance(node.ctx, ast.Store):
                yield code.at(body.module, node, body.node.name)


def side_doors(code: Code) -> Iterator[Place]:
    """Yield the calls that write to a replica past `Leader.commit`, each behind a guard of its own."""
    for body in code.tree.bodies:
        for node in body.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_native = node.func.attr in NATIVE_WRITES and ast.unparse(node.func.value) == "NATIVE"
                if is_native or node.func.attr in PAST_THE_DOOR:
                    yield code.at(body.module, node, f"{body.node.name}: {node.func.attr}")


class Count(NamedTuple):
    """One thing to count."""

    about: str
    places: Callable[[Code], Iterator[Place]]


COUNTS = {
    "verbless": Count("functions, no properties, whose docstring does not begin with one of VERBS", verbless),
    "told": Count("different names with the word told in them", told_names),
    "acting": Count(
        "predicates (is_, has_, fits_, owns_, holds_) that change, send or record something", acting_predicates
    ),
    "state-read": Count("reads of MembershipState from other modules", lambda code: reads(code, "MembershipState")),
    "state-written": Count("writes of it from there", lambda code: writes(code, "MembershipState")),
    "grid-read": Count("reads of GridService from other modules", lambda code: reads(code, "GridService")),
    "grid-written": Count("writes of it from there", lambda code: writes(code, "GridService")),
    "crowded": Count(f"machines of the core whose constructor takes more than {MOST_PARTS} parts", crowded_machines),
    "parameters": Count(f"functions, no commands, with more than {MOST_PARAMETERS} parameters", long_signatures),
    "numbering": Count("places that set a replica's seq", numberings),
    "side-doors": Count("writes past Leader.commit", side_doors),
}


def count(code: Code) -> Counts:
    """Return the counts of each folder that has any."""
    counted: Counts = {}
    for name, each in COUNTS.items():
        for place in set(each.places(code)):
            counts = counted.setdefault(place.folder, {})
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counted.items()))


def table(counted: Counts) -> str:
    """Return the counts as a table of folders, with their sums."""
    rows = {**counted, "all": {name: sum(each.get(name, 0) for each in counted.values()) for name in COUNTS}}
    lines = [f"{'':16}" + "".join(f"{name:>{len(name) + 2}}" for name in COUNTS)]
    for folder, counts in rows.items():
        lines.append(
            f"{folder:16}" + "".join(f"{counts.get(name, 0) or '':>{len(name) + 2}}" for name in COUNTS).rstrip()
        )
    return "\n".join(lines + [""] + [f"{name:14}{each.about}" for name, each in COUNTS.items()])


def lowered(recorded: Counts, counted: Counts) -> Counts:
    """Return the lower one of each number, of what was recorded and what there is now."""
    least = {
        folder: {name: min(most, counted.get(folder, {}).get(name, 0)) for name, most in counts.items()}
        for folder, counts in recorded.items()
    }
    kept = {folder: {name: number for name, number in counts.items() if number} for folder, counts in least.items()}
    return {folder: counts for folder, counts in kept.items() if counts}


def main() -> int:
    """Print the counts, or the places of one; with `--record`, also lower what is recorded."""
    parser = argparse.ArgumentParser(
        prog="./run python scripts/house_counts.py", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="the counts as JSON")
    parser.add_argument("--list", nargs="+", metavar=("COUNT", "FOLDER"), help="the places that a count is made of")
    parser.add_argument("--record", action="store_true", help="lower the numbers in tests/counts.json to these")
    parser.add_argument(
        "--recorded", type=Path, default=RECORDED, metavar="FILE", help="another file than tests/counts.json"
    )
    parser.add_argument("--package", type=Path, action="append", help="a package to read, in place of all")
    arguments = parser.parse_args()
    gc.disable()  # syntax trees have no garbage, and looking for it takes four times as long as reading them
    code = Code(arguments.package or find_packages())
    if arguments.list:
        name, *folders = arguments.list
        for place in sorted(set(COUNTS[name].places(code))):
            if not folders or place.folder in folders:
                print(f"{place.folder}: {place.what}")
        return 0
    counted = count(code)
    if arguments.record:
        recorded = json.loads(arguments.recorded.read_text(encoding="utf-8"))
        arguments.recorded.write_text(json.dumps(lowered(recorded, counted), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(counted) if arguments.json else table(counted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
