"""Rules of the house that no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "everkept"
TESTS = ROOT / "tests"

LONGEST_FILE = 600  # lines; past this a second idea has moved in
# Tests of what is no module: whole journeys, ports, and the project itself.
WITHOUT_TWIN = {"contracts", "golden", "journeys"}
OF_THE_PROJECT = {"test_rules.py", "test_docs.py", "test_bootstrap.py", "test_check.py"}


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


def test_only_settings_and_the_program_itself_read_the_environment() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in modules()
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers == {"__main__.py", "settings/__init__.py"}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_files_are_opened_with_an_encoding() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("store.commit", "_user.commit", "_source.commit"))
        and path != SOURCE / "core" / "commits.py"
    }
    assert others == set()
