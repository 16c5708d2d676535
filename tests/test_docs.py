"""Documents that fall behind fail the build."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.settings import read_settings

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_reference_pages_are_what_the_code_says() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("dialect", ["everkept", "server-memory", "anthropic-memory"])
def test_every_tool_is_described(tmp_path: Path, dialect: str) -> None:
    app = App(read_settings({"data_dir": tmp_path, "dialect": dialect}, {}))
    assert [tool.name for tool in app.tools if not tool.description] == []


def test_every_argument_is_described(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}))
    bare = [
        f"{tool.name}.{name}"
        for tool in app.tools
        for name, argument in tool.input_schema["properties"].items()
        # A list of objects is described by their fields.
        if not argument.get("description") and "properties" not in argument.get("items", {})
    ]
    assert bare == []


def test_every_extra_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    described = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert sorted(described) == sorted(project["optional-dependencies"])


def test_the_examples_in_python_print_what_their_comments_say(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    promised = re.findall(r"^ *(?:print\(.*\)  )?# (.+)$", examples, re.MULTILINE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERKEPT_", "MEMORY_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", examples],
        env=kept | {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (promised, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_readme_has_the_two_commands_at_the_top() -> None:
    top = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:10]
    assert any(line.startswith("./run") for line in top)
    assert any(line.startswith("./test") for line in top)


def test_the_tools_that_the_readme_and_the_instructions_name_exist(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}))
    named = set(re.findall(r"\b(?:[a-z]+_)+[a-z]+\b", app.instructions))
    assert named
    assert [name for name in named if name not in app.tools] == []


def test_names_of_package_registries_stand_nowhere() -> None:
    hosts = re.compile("|".join(["py" + "pi.org", "python" + "hosted", "npm" + "js.org"]))
    found = [str(path) for path in _tracked() if hosts.search(_text(path))]
    assert found == []


def _tracked() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return (ROOT / name for name in listed.stdout.splitlines())


def _text(path: Path) -> Any:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
