"""All small bugs that can be planted in a source file. Pure functions from text to text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_SPELLED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_OPERATOR_PAIRS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
_TEXT_ONLY = frozenset({"log", "logging", "warnings"})
"""Calls on these names only write text for people."""
_ANY_ORDER = frozenset({"min", "max"})
"""The order of their arguments has no effect."""


@dataclass(frozen=True)
class Mutant:
    kind: str
    line: int
    begin: int
    end: int
    text: str
    """Replaces the source from `begin` to `end`, in bytes."""

    def replace_in(self, source: bytes) -> bytes:
        return source[: self.begin] + self.text.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """All mutants that compile, without duplicates, in the order of the source."""
    collector = _MutantCollector(source)
    collector.visit(ast.parse(source))
    found = {(m.begin, m.end, m.text): m for m in collector.found if _can_compile(m.replace_in(source))}
    return sorted(found.values(), key=lambda mutant: (mutant.begin, mutant.end, mutant.text))


class _MutantCollector(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    # --- not changed: declarations, texts for people, types

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            self._body(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._body(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._add_not(node.test)
        self.visit(node.test)
        self._body(node.body)
        self._body(node.orelse)

    def visit_Import(self, node: ast.AST) -> None:
        return

    visit_ImportFrom = visit_Assert = visit_JoinedStr = visit_Import

    # --- statements

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            self.visit(statement)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not _is_text(node.value):
            self._replace("removed statement", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__slots__":
            return
        if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self._replace("removed statement", node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("removed statement", node, "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("removed statement", node, "pass")
        if isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                self.visit(argument)

    def visit_Delete(self, node: ast.stmt) -> None:
        self._replace("removed statement", node, "pass")

    visit_Break = visit_Continue = visit_Delete

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._replace("removed statement", node, "pass")
        else:
            if not isinstance(node.value, ast.Constant):
                self._replace("returned nothing", node, "return None")
            self.visit(node.value)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._add_not(node.test)
            self.visit(node.test)
        self._body(node.body)

    # --- expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add_not(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between("operator", left, right, _SPELLED[type(operator)], _COMPARED[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("operator", left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _OPERATOR_PAIRS and not isinstance(node.left, ast.JoinedStr | ast.Constant):
            self._between("operator", node.left, node.right, *_OPERATOR_PAIRS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("operator", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("constant", node, str(node.value + 1))
        elif isinstance(node.value, float):
            self._replace("constant", node, str(node.value * 2 + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if _is_text(node):
            return
        any_order = isinstance(node.func, ast.Name) and node.func.id in _ANY_ORDER
        if len(node.args) > 1 and not any_order and not any(isinstance(argument, ast.Starred) for argument in node.args):
            first, second = node.args[:2]
            between = self._source[self._at(first)[1] : self._at(second)[0]].decode()
            swapped_text = self._text(second) + between + self._text(first)
            self._add("swapped arguments", first.lineno, self._at(first)[0], self._at(second)[1], swapped_text)
        self.generic_visit(node)

    # --- pieces

    def _at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        begin, end = self._at(node)
        return self._source[begin:end].decode()

    def _add(self, kind: str, line: int, begin: int, end: int, text: str) -> None:
        self.found.append(Mutant(kind, line, begin, end, text))

    def _replace(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        self._add(kind, node.lineno, *self._at(node), text)

    def _add_not(self, test: ast.expr) -> None:
        self._replace("branch", test, f"(not ({self._text(test)}))")

    def _between(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        begin, end = self._at(left)[1], self._at(right)[0]
        between = self._source[begin:end].decode()
        if between.count(old) == 1:
            self._add(kind, left.end_lineno or left.lineno, begin, end, between.replace(old, new))


def _is_text(node: ast.expr) -> bool:
    """Whether a call only writes text for people."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _TEXT_ONLY


def _can_compile(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def lines_of(source: bytes, mutant: Mutant) -> Iterator[str]:
    """The change of the mutant, as a small diff."""
    first = source.count(b"\n", 0, mutant.begin)
    last = source.count(b"\n", 0, mutant.end)
    changed = mutant.replace_in(source).splitlines()
    extra = mutant.text.count("\n") - source[mutant.begin : mutant.end].count(b"\n")
    for line in source.splitlines()[first : last + 1]:
        yield f"-{line.decode()}"
    for line in changed[first : last + 1 + extra]:
        yield f"+{line.decode()}"


def is_in_function(source: bytes, line: int) -> bool:
    """False: the line runs when the module is imported."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(node.body[0].lineno <= line <= (node.end_lineno or 0) for node in functions)
