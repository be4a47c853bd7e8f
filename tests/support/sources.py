"""The files of the repository, and the syntax trees of its modules."""

import ast
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def committed() -> list[Path]:
    """The files of the repository; in an unpacked sdist, all that lies there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and (ROOT / ".git").exists():
        found = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [path for path in found if path.is_file()]


def modules(package: str) -> dict[str, Path]:
    """Every module of a package that is ours: dotted name -> file."""
    names = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        if "node_modules" in path.parts:
            continue
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def below(node: ast.AST) -> Iterator[ast.AST]:
    """Give the statements of a statement, with its branches; expressions are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, field, ())


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Give the functions below a node, also those inside others."""
    for child in below(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        yield from functions(child)


def is_type_checking(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def imports(node: ast.AST, *, lazy: bool, types: bool = False) -> Iterator[str]:
    """Give the names imported below a node.

    `lazy` adds those inside functions and those for types only, `types` the latter alone.
    """
    for child in below(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"a relative import in line {child.lineno}"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif lazy or not (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            or (is_type_checking(child) and not types)
        ):
            yield from imports(child, lazy=lazy, types=types)


def ours(names: Iterator[str], known: dict[str, Path]) -> set[str]:
    """The modules of ours that are meant: `a.b.f` is `a.b` if `f` is a function in it."""
    return {name if name in known else name.rpartition(".")[0] for name in names} & known.keys()
