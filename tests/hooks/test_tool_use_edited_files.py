from pathlib import PurePosixPath

import pytest

from everkept.hooks.tool_use import is_worth_a_memory


@pytest.mark.parametrize(
    "file", ["src/login.py", "README.md", ".github/workflows/ci.yml", "app/build.py", ".env.example"]
)
def test_what_people_write_is_worth_a_memory(file: str) -> None:
    assert is_worth_a_memory(PurePosixPath(file))


@pytest.mark.parametrize(
    "file",
    [
        "package-lock.json",
        "Cargo.lock",
        "web/pnpm-lock.yaml",
        "dist/app.js",
        "node_modules/x/index.js",
        "target/debug/x.rs",
        ".venv/lib/x.py",
        ".git/config",
        "src/__pycache__/x.pyc",
        "static/app.min.js",
        "api/shop_pb2.py",
        "src/types.generated.ts",
        "tmp/notes.md",
        "debug.log",
        "x/" * 300 + "y.py",
        "bad\nname.py",
    ],
)
def test_what_programs_write_is_not(file: str) -> None:
    assert not is_worth_a_memory(PurePosixPath(file))
