import subprocess
import sys
from collections.abc import Callable
from typing import Any

from recollect import __version__
from recollect.cli.main import COMMANDS

Run = Callable[..., Any]

# What a server over stdio must not load: each costs more than the whole rest of the start.
HEAVY = {
    "rich",
    "mcp",
    "pydantic",
    "anyio",
    "starlette",
    "uvicorn",
    "numpy",
    "platformdirs",
    "tree_sitter",
    "zstandard",
}


def test_the_version_is_told(recollect: Run) -> None:
    assert __version__ in recollect("--version").out


def test_every_command_can_be_loaded_and_takes_the_common_options(recollect: Run) -> None:
    groups = {"import": "server-memory", "history": "list", "gateway": "check"}
    for name in COMMANDS:
        words = [name, groups[name]] if name in groups else [name]
        page = recollect(*words, "--help")
        assert page.status == 0
        for option in ("--data-dir", "--project", "--json", "--log-level"):
            assert option in page.out, (name, option)


def test_a_start_over_stdio_loads_nothing_heavy() -> None:
    script = (
        "import sys; from recollect.cli.main import main; "
        "sys.argv = ['recollect', 'serve', '--data-dir', sys.argv[1]]; main(); "
        "print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, "unused"],
        input=b"",
        capture_output=True,
        timeout=60,
        check=True,
    )
    loaded = set(ended.stderr.decode().split())
    assert HEAVY & {name.partition(".")[0] for name in loaded} == set()
    # The handshake is answered before the application is put together.
    assert not any(name.startswith(("apsw", "recollect.families")) for name in loaded)
