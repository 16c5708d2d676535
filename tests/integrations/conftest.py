"""Runs the tests of integrations with the real frameworks, each in an environment of its own.

A file `test_NAME.py` here needs the packages that `FRAMEWORKS` lists for it. In this environment, it is one thorough
test that installs them into `.tools` and runs the file there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from python_packages import INSTALL_SECONDS, install
from stand_in_models import Reply, serve_replies

ROOT = Path(__file__).parents[2]
MARK = "EVERKEPT_TESTED_FRAMEWORK"  # set where the framework is installed
FRAMEWORKS = {
    "langgraph": ("langgraph==1.2.22", "langgraph-checkpoint==4.3.2", "langchain==1.4.7", "langchain-anthropic==1.7.7"),
    "anthropic": ("anthropic==2.10.0",),
    "openai_agents": ("openai-agents==0.24.0",),
    "google_adk": ("google-adk==2.13.0",),
}


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of tests as one test where its framework is missing."""
    name = module_path.stem.removeprefix("test_")
    if name not in FRAMEWORKS or os.environ.get(MARK) == name:
        return None
    return FrameworkFile.from_parent(parent, path=module_path)  # pyright: ignore[reportUnknownMemberType]


class FrameworkFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        name = "passes_with_the_real_framework"
        yield FrameworkTest.from_parent(self, name=name)  # pyright: ignore[reportUnknownMemberType]


class FrameworkTest(pytest.Item):
    """Installs a framework and runs the tests of its integration with it."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.add_marker("thorough")
        self.add_marker(pytest.mark.timeout(INSTALL_SECONDS + 300))

    def runtest(self) -> None:
        name = self.path.stem.removeprefix("test_")
        packages = install(*FRAMEWORKS[name])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--all", str(self.path)],
            cwd=ROOT,
            env=os.environ | {MARK: name, "PYTHONPATH": str(packages)},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(done.stdout + done.stderr, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


RunExample = Callable[..., tuple[str, list[dict[str, Any]]]]


@pytest.fixture
def run_example(tmp_path: Path) -> RunExample:
    """Run a program of `examples` with its arguments, and a model that replies as given.

    Return what it prints and the requests that the model got.
    """

    def run(program: str, *arguments: str, replies: Sequence[Reply]) -> tuple[str, list[dict[str, Any]]]:
        with serve_replies(*replies) as model:
            kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples" / program), *arguments],
                cwd=tmp_path,
                env=kept | model.environment | {"EVERKEPT_DATA_DIR": str(tmp_path / "data")},
                capture_output=True,
                encoding="utf-8",
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert model.replies == []
            return done.stdout, model.requests

    return run


@pytest.fixture
def run_page(run_example: RunExample, tmp_path: Path) -> RunExample:
    """Run the example that docs/frameworks.md has below a heading, as `run_example` does."""

    def run(heading: str, *, replies: Sequence[Reply]) -> tuple[str, list[dict[str, Any]]]:
        page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
        [part] = [part for part in page.split("\n## ") if part.startswith(f"{heading}\n")]
        [program] = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
        path = tmp_path / "page.py"
        path.write_text(program, encoding="utf-8")
        return run_example(str(path), replies=replies)

    return run
