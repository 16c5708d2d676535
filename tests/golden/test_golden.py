"""What must not change by accident: lists, answers, rankings and the modules that are loaded.

    ./test tests/golden --renew-golden

writes the records again; the difference then shows what a change does to users.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assistant import Assistant
from engine_journeys import REFERENCE, Talk, import_transcript, place
from everkept.engines.sqlite.library import SqliteLibrary
from family_journeys import follow_all
from gateway_front import actor, mapped, write
from hook_processes import Hooks, remember
from server_processes import HANG, INITIALIZE, StdioServer, command, environment, stdio_server

Golden = Callable[..., None]

CODING = Path(__file__).parents[2] / "bench" / "data" / "coding.json"
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
SERVERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "all": ("--toolsets", "all"),
    "read-only": ("--toolsets", "all", "--read-only"),
    "graph": ("--toolsets", "graph"),
    "memories": ("--toolsets", "memories"),
    "history": ("--toolsets", "history"),
    "bank": ("--toolsets", "bank"),
    "bank-extras": ("--toolsets", "bank", "--bank-extras"),
    "server-memory": ("--dialect", "server-memory"),
}
WHOLE = ("all", "bank-extras", "server-memory")  # the others list parts of these
ASKED = "How did we limit logins last time?"
HOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "session-start": ("SessionStart", {}),
    "prompt-past": ("UserPromptSubmit", {"prompt": ASKED}),
    "prompt-yes": ("UserPromptSubmit", {"prompt": "yes"}),
    "tool-read": ("PostToolUse", {"tool_name": "Read", "tool_input": {"file_path": "/a/b.py"}}),
    "unhandled": ("Stop", {}),
}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
# What the background loads behind an answer depends on the machine: so no call is recorded.
STARTS = {"start": (HELLO,), "list": (HELLO, LIST)}
# Modules of Python that take long to load: they appear in no record by accident.
DEAR = {
    *("argparse", "ast", "asyncio", "dataclasses", "email", "hashlib", "http", "inspect"),
    *("ipaddress", "logging", "multiprocessing", "pathlib", "pydoc", "sqlite3", "ssl"),
    *("subprocess", "tempfile", "typing", "unittest", "urllib", "uuid", "xml", "zipfile"),
}
OF_ANOTHER_PYTHON = () if sys.version_info[:2] == (3, 11) else DEAR  # they differ by version
IGNORED = {"_distutils_hack", "imported package", "sitecustomize", "usercustomize"}  # of the interpreter itself


def ask_all(server: StdioServer, method: str) -> list[Any]:
    """Return every item of a list, page by page."""
    items: list[Any] = []
    given: dict[str, Any] = {}
    while True:
        answer = server.ask(1, method, **given)
        if "error" in answer:
            return [answer["error"]]
        [found] = (value for value in answer["result"].values() if isinstance(value, list))
        items += found
        if "nextCursor" not in answer["result"]:
            return items
        given = {"cursor": answer["result"]["nextCursor"]}


def shorten(item: Any) -> str:
    """Return an item's name with a digest of the item, which another record has in full."""
    text = json.dumps(item, sort_keys=True).encode()
    name = item.get("name") or item.get("uri") or item["message"]
    return f"{name} {sha256(text).hexdigest()[:12]}"


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_lists_what_is_recorded(name: str, tmp_path: Path, golden: Golden) -> None:
    work = tmp_path / "work"
    work.mkdir()
    given = ("--project", "shop", "--path", work, *SERVERS[name])
    with stdio_server(tmp_path / "data", *given) as server:
        hello = server.ask(1, "initialize", **INITIALIZE)["result"]
        hello["serverInfo"].pop("version")
        lists = {method: ask_all(server, method) for method in LISTS}
    if name not in WHOLE:
        lists = {method: [shorten(item) for item in items] for method, items in lists.items()}
    golden(f"lists-{name}", {"initialize": hello, **lists})


def test_each_family_answers_what_is_recorded(tmp_path: Path, golden: Golden) -> None:
    kept = place(REFERENCE, tmp_path)
    import_transcript(kept)
    golden("answers", follow_all(kept))


def test_a_gateway_answers_what_is_recorded(tmp_path: Path, golden: Golden) -> None:
    kept = place(REFERENCE, tmp_path)
    tools = [mapped("look", "echo", {"words": "text"}), mapped("gone", "nothing", {})]
    file = write(tmp_path / "tools.json", {"upstream": actor(), "tools": tools})
    with stdio_server(kept.data, "--toolsets", "gateway", "--gateway-config", file) as server:
        server.ask(0, "initialize", **INITIALIZE)
        talk = Talk(server, kept)
        talk.keep("tools/list", ask_all(server, "tools/list"))
        for tool, given in (("look", {"words": "hello"}), ("look", {"other": 1}), ("gone", {})):
            answer = server.ask(1, "tools/call", name=tool, arguments=given)
            talk.keep(tool, answer.get("result") or answer["error"])
    golden("answers-gateway", talk.kept)


async def test_questions_of_a_coding_assistant_rank_as_recorded(tmp_path: Path, golden: Golden) -> None:
    data = json.loads(CODING.read_text(encoding="utf-8"))
    library = SqliteLibrary(tmp_path)
    assistant = Assistant(library)
    keys: dict[str, str] = {}
    for entry in data["memories"]:
        more = {name: entry[name] for name in ("type", "importance") if name in entry}
        keys[await assistant.stored(entry["text"], **more)] = entry["id"]
    ranked = {
        entry["text"]: [keys[memory["id"]] for memory in await assistant.recall(entry["text"], limit=10)]
        for entry in data["questions"]
        if not entry.get("held_out")
    }
    await library.close()
    golden("ranking", ranked)


def modules(process: "subprocess.Popen[bytes]", sent: bytes) -> list[str]:
    """Return our modules and the top names of other packages that a process has loaded."""
    _, told = process.communicate(sent, timeout=HANG)
    names = {line.rpartition("|")[2].strip() for line in told.decode().splitlines() if "|" in line}
    ours = {name for name in names if name.partition(".")[0] == "everkept"}
    tops = {name.partition(".")[0] for name in names - ours}
    return sorted(ours | tops - sys.stdlib_module_names - IGNORED | tops & DEAR)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_loads_the_modules_that_are_recorded(name: str, tmp_path: Path, golden: Golden) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    hooks = Hooks(tmp_path / "data", folder)
    asyncio.run(remember(hooks))
    event, facts = HOOKS[name]
    process = hooks.run("-X", "importtime", "-m", "everkept", "hook", event)
    found = modules(process, hooks.told(**facts).encode())
    golden(f"modules-hook-{name}", found, OF_ANOTHER_PYTHON)


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_the_modules_that_are_recorded(name: str, tmp_path: Path, golden: Golden) -> None:
    given = ("serve", "--data-dir", tmp_path / "data", "--project", "shop")
    _, *rest = command(*given)
    sent = b"".join(json.dumps(message).encode() + b"\n" for message in STARTS[name])
    for _ in range(2):  # the second start has the answers that the first one kept
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", *rest],
            env=environment() | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        found = modules(process, sent)
    golden(f"modules-{name}", found, OF_ANOTHER_PYTHON)
