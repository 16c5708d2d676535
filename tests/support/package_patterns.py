# pyright: basic
"""All regular expressions of the package, with where they are and how they are used."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import everkept
from everkept.patterns import _LatePattern  # pyright: ignore[reportPrivateUsage]

_METHODS = {"match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split"}
_USE = re.compile(rf"(\w+)\.({'|'.join(sorted(_METHODS))})\(")
_INLINE = re.compile(r"\bre\.\w+\(|\b_matches\(")
_DEPTH = 4  # of containers that hold patterns
_FRAMEWORKS = "everkept.integrations."  # modules that load only beside their framework, and have no patterns


class PackagePattern(NamedTuple):
    place: str
    pattern: str
    flags: int
    at_start: bool  # used for matches at one place only


def list_patterns(packages: Sequence[str] = ("",)) -> list[PackagePattern]:
    """List the patterns of packages of ours, each pattern once."""
    starts = tuple(f"everkept.{package}" for package in packages)
    found: dict[tuple[str, int], PackagePattern] = {}
    for info in pkgutil.walk_packages(everkept.__path__, "everkept."):
        if info.name.endswith("__main__") or not info.name.startswith(starts):
            continue
        if info.name.startswith(_FRAMEWORKS):
            assert not _has_patterns(Path(everkept.__path__[0], *info.name.split(".")[1:]).with_suffix(".py"))
            continue
        module = importlib.import_module(info.name)
        for place, pattern, flags, at_start in _list_of_module(module):
            if isinstance(pattern, bytes):
                pattern, flags = pattern.decode("latin-1"), flags | re.ASCII
            if isinstance(pattern, str):
                known = found.get((pattern, flags))
                if known and ":" in place and at_start is None:
                    continue  # where a named one is compiled
                at_start = bool(at_start)
                at_start = at_start and (known is None or known.at_start)
                found[pattern, flags] = PackagePattern(known.place if known else place, pattern, flags, at_start)
    return list(found.values())


def _has_patterns(path: Path) -> bool:
    loaded = {line.split()[1] for line in path.read_text(encoding="utf-8").splitlines() if "import " in line}
    return bool(loaded & {"re", "everkept.patterns"})


def _list_of_module(module: ModuleType) -> Iterator[tuple[str, Any, int, bool | None]]:
    uses = _find_uses(Path(module.__file__ or ""))
    for name, value in list(vars(module).items()):
        place = f"{module.__name__.removeprefix('everkept.')}.{name}"
        for each in _flatten(value, _DEPTH):
            yield place, *_read_pattern(each), (uses.get(name) or {"search"}) <= {"match", "fullmatch"}
        if getattr(value, "__module__", "") == module.__name__ and _gives_pattern(value):
            for each in _flatten(value(), _DEPTH):
                yield place, *_read_pattern(each), False
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    for call in ast.walk(ast.parse(source)) if _INLINE.search(source) else ():
        if isinstance(call, ast.Call) and call.args and (method := _find_re_method(call.func)):
            try:
                pattern = eval(ast.unparse(call.args[0]), dict(vars(module)))
            except (AttributeError, KeyError, NameError, TypeError):  # made of what a function is given
                continue
            names = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
            flags = sum(int(getattr(re, one)) for one in names & {"IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE"})
            yield f"{module.__name__.removeprefix('everkept.')}:{call.lineno}", pattern, flags, _is_at_start(method)


def _is_at_start(method: str) -> bool | None:
    return None if method == "compile" else method in {"match", "fullmatch"}


def _find_re_method(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re":
        return function.attr if function.attr in {*_METHODS, "compile"} else None
    return "search" if isinstance(function, ast.Name) and function.id == "_matches" else None


def _gives_pattern(value: Any) -> bool:
    """Return whether it is a cached function without parameters that returns patterns."""
    wrapped = getattr(value, "__wrapped__", None)
    returns = getattr(wrapped, "__annotations__", {}).get("return")
    return "Pattern" in str(returns) and getattr(getattr(wrapped, "__code__", None), "co_argcount", 1) == 0


def _read_pattern(value: Any) -> tuple[Any, int]:
    if isinstance(value, _LatePattern):
        return value.pattern, vars(value)["_given"]
    if isinstance(value, re.Pattern):
        return value.pattern, value.flags & ~re.UNICODE
    return None, 0


def _flatten(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, _LatePattern | re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in value.values():
            yield from _flatten(each, depth - 1)
    elif depth and isinstance(value, tuple | list | frozenset | set):
        for each in value:
            yield from _flatten(each, depth - 1)


def _find_uses(path: Path) -> Mapping[str, set[str]]:
    """Return the methods that are called on each name: on a public one anywhere, on a private one in its module."""
    own = _read_uses(path)
    return {name: own.get(name, set()) if name.startswith("_") else used for name, used in _read_all_uses().items()}


@cache
def _read_all_uses() -> Mapping[str, set[str]]:
    uses: dict[str, set[str]] = {}
    for path in Path(everkept.__path__[0]).rglob("*.py"):
        for name, used in _read_uses(path).items():
            uses.setdefault(name, set()).update(used)
    return uses


@cache
def _read_uses(path: Path) -> Mapping[str, set[str]]:
    uses: dict[str, set[str]] = {}
    for name, method in _USE.findall(path.read_text(encoding="utf-8")):
        uses.setdefault(name, set()).add(method)
    return uses
