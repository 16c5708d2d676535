"""Rules of the house that no linter knows."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "everkept"
TESTS = ROOT / "tests"

LONGEST_FILE = 600  # lines; past this a second idea has moved in
MOST_METHODS = 10  # that an implementation of a port must define
# Wider ones, with their methods: a folder's operations, and what is used of the package apsw.
WIDE_PORTS = {"FileStore": 13, "Connection": 16}
SMALL_MODULE = 60  # lines; below it, a module with one importer is a part of that
# Tests of what is no module: whole journeys, ports, and the project itself.
WITHOUT_TWIN = {"contracts", "fuzz", "golden", "journeys", "promises"}
OF_THE_PROJECT = {
    "test_rules.py",
    "test_docs.py",
    "test_voice.py",
    "test_bootstrap.py",
    "test_setup_server.py",
    "test_check.py",
    "test_release.py",
}


def modules() -> Iterator[Path]:
    return SOURCE.rglob("*.py")


def test_every_test_file_has_a_source_twin() -> None:
    lonely = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("test_*.py")
        if path.relative_to(TESTS).parts[0] not in WITHOUT_TWIN
        and path.name not in OF_THE_PROJECT
        and not _has_twin(path)
    ]
    assert lonely == []


def _has_twin(test: Path) -> bool:
    """Whether the file is named after a module: `test_MODULE.py` or `test_MODULE_ASPECT.py`."""
    folder = SOURCE / test.relative_to(TESTS).parent
    words = test.stem.removeprefix("test_").split("_")
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return any((folder / f"{name}.py").exists() for name in names)


def test_no_file_is_too_long() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in modules()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_modules_are_named_by_nouns() -> None:
    gerunds = {
        path.relative_to(SOURCE).as_posix()
        for path in modules()
        if any(part.endswith("ing") for part in path.relative_to(SOURCE).with_suffix("").parts)
    }
    assert gerunds == set()


def test_no_protocol_is_too_wide() -> None:
    wide = {
        f"{path.relative_to(SOURCE).as_posix()}: {node.name}": count
        for path in modules()
        if re.search(r"^class .*\b(?:Protocol|ABC)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.ClassDef)
        and _is_port(node)
        and (count := len([each for each in node.body if _is_demanded(each, node)]))
        > WIDE_PORTS.get(node.name, MOST_METHODS)
    }
    assert wide == {}


def _is_port(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).split("[")[0] in {"Protocol", "ABC"} for base in node.bases)


def _is_demanded(member: ast.stmt, port: ast.ClassDef) -> bool:
    """Whether an implementation must define a method; properties do not count."""
    if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if any(ast.unparse(each) == "property" for each in member.decorator_list):
        return False
    if any(ast.unparse(base).split("[")[0] == "Protocol" for base in port.bases):
        return True
    return any(ast.unparse(each) == "abstractmethod" for each in member.decorator_list)


def test_a_small_module_with_one_importer_is_part_of_it() -> None:
    importers = _importers()
    small = {
        name: sorted(importers[name])
        for name, path in _by_name().items()
        if path.name not in {"__init__.py", "__main__.py"}
        and len(importers[name]) == 1
        and len(path.read_text(encoding="utf-8").splitlines()) < SMALL_MODULE
    }
    assert small == {}


def _importers() -> dict[str, set[str]]:
    """The modules that import each module, anywhere in their text."""
    known = _by_name()
    importers: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                parts = (f"{node.module}.{alias.name}" for alias in node.names)
                targets = [part if part in known else node.module for part in parts]
            else:
                continue
            for target in {*targets} & {*known} - {name}:
                importers[target].add(name)
    return importers


def _by_name() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in modules()
    }


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_only_settings_and_the_program_itself_read_the_environment() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in modules()
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers == {"__main__.py", "settings/__init__.py"}


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path.relative_to(SOURCE)) for path in modules() if not ast.get_docstring(_parsed(path))]
    assert silent == []


def test_files_are_opened_with_an_encoding() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"read_text", "write_text"}
        and not node.args[1:]
        and not any(keyword.arg == "encoding" for keyword in node.keywords)
        and not (node.func.attr == "read_text" and node.args)
    ]
    assert missing == []


def test_every_commit_goes_through_the_loop_that_records_what_it_touched() -> None:
    others = {
        f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
        for path in modules()
        if not {"engines", "accounts"} & {*path.relative_to(SOURCE).parts}
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("store.commit", "_user.commit", "_source.commit"))
        and path != SOURCE / "core" / "commits.py"
    }
    assert others == set()
