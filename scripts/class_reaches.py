"""Which attributes of which classes the source reaches, by ast: what annotations and constructors say, and nothing guessed.

A parameter has the class of its annotation, a name that of what is assigned to it, an attribute of `self` that of what any method
assigns to it. `X | None` counts as X. What containers hold, and what lambdas take, is not followed: there may be more reaches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Body:
    """A function, and what is in its body, but not in the functions and classes within it."""

    module: str
    node: Function
    owner: str | None
    """The class of which it is a method."""
    outer: Body | None
    """The function in which it is defined."""
    nodes: list[ast.AST] = field(default_factory=list)
    assigned: list[tuple[ast.expr, ast.expr | None, ast.expr | None]] = field(default_factory=list)
    """Target, value and annotation."""
    names: dict[str, str] = field(default_factory=dict)
    """Name to class, as far as it is known."""

    def parameters(self) -> list[ast.arg]:
        """Return the named parameters, in their order."""
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


class Tree:
    """The nodes of some modules, walked once."""

    def __init__(self, modules: Mapping[str, ast.Module]) -> None:
        self.bodies: list[Body] = []
        """All functions, outer ones before those within."""
        self.classes: list[tuple[str, ast.ClassDef]] = []
        """All classes, each behind the name of its module."""
        self.loose: list[tuple[str, ast.AST]] = []
        """What is in no function, likewise."""
        for name, tree in modules.items():
            for statement in tree.body:
                self._walk(name, statement, None, None)

    def _walk(self, module: str, node: ast.AST, owner: str | None, body: Body | None) -> None:
        """Keep a node and what is below it, but the parameters of functions. `owner`: the class in which it stands."""
        if isinstance(node, Function):
            body = Body(module, node, owner, body)
            self.bodies.append(body)
            for statement in node.body:
                self._walk(module, statement, None, body)
        elif isinstance(node, ast.ClassDef):
            self.classes.append((module, node))
            for statement in node.body:
                self._walk(module, statement, node.name, body)
        else:
            if body is None:
                self.loose.append((module, node))
            else:
                body.nodes.append(node)
                body.assigned += _assignments(node)
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.expr_context):
                    self._walk(module, child, owner, body)


class Reaches:
    """The places at which an attribute of some classes is reached from other modules than that of the class."""

    def __init__(self, tree: Tree, wanted: Iterable[str]) -> None:
        self._tree = tree
        self._bases: dict[str, list[str]] = {}
        self._home: dict[str, str] = {}
        self._attributes: dict[tuple[str, str], str] = {}
        """Class and attribute to the attribute's class; of a method or property, the class of what it returns."""
        for module, node in tree.classes:
            self._home.setdefault(node.name, module)
            self._bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        for _, node in tree.classes:
            self._learn_declared(node)
        known = -1
        while known < len(self._attributes):  # an attribute may be had from one that another class has
            known = len(self._attributes)
            for body in tree.bodies:
                self._learn_assigned(body)
        self.found: dict[str, list[tuple[str, ast.Attribute]]] = {name: [] for name in wanted}
        """Class to the reaches of it, each behind the name of its module."""
        for body in tree.bodies:
            for reached in body.nodes:
                kind = self._class_of(reached.value, body.names) if isinstance(reached, ast.Attribute) else None
                if isinstance(reached, ast.Attribute) and kind in self.found and body.module != self._home[kind]:
                    self.found[kind].append((body.module, reached))

    def _learn_declared(self, node: ast.ClassDef) -> None:
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                self._learn(node.name, each.target.id, self._annotated(each.annotation))
            elif isinstance(each, Function):
                self._learn(node.name, each.name, self._annotated(each.returns))

    def _learn_assigned(self, body: Body) -> None:
        """Learn of what class the names in a function are, and the attributes of `self` that it sets."""
        known = dict(body.outer.names) if body.outer else {}
        if body.owner:
            known["self"] = body.owner
        for parameter in body.parameters():
            if kind := self._annotated(parameter.annotation):
                known[parameter.arg] = kind
        for target, value, annotation in body.assigned:
            if not (kind := self._annotated(annotation) or self._class_of(value, known)):
                continue
            if isinstance(target, ast.Name):
                known[target.id] = kind
            elif body.owner and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                self._learn(body.owner, target.attr, kind)
        body.names = known

    def _learn(self, owner: str, attribute: str, kind: str | None) -> None:
        if kind is not None:
            self._attributes.setdefault((owner, attribute), kind)

    def _annotated(self, node: ast.expr | None) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            node = node.left
        return node.id if isinstance(node, ast.Name) and node.id in self._home else None

    def _class_of(self, node: ast.expr | None, known: Mapping[str, str]) -> str | None:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in self._home:
                return node.func.id
            return self._class_of(node.func, known) if isinstance(node.func, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and (owner := self._class_of(node.value, known)):
            return self._attribute(owner, node.attr)
        return None

    def _attribute(self, owner: str, name: str) -> str | None:
        if found := self._attributes.get((owner, name)):
            return found
        return next((found for base in self._bases.get(owner, ()) if (found := self._attribute(base, name))), None)


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """Yield each target of an assignment with its value and annotation; pairs of equally long tuples one by one."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, node.value, node.annotation
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value, None
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            yield from ((each, value, None) for each, value in pairs)
