"""Hooks as an assistant calls them: processes of their own, and the worker they leave behind."""

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from everkept.core.records import Record, RecordFilter
from everkept.engines.sqlite.library import SqliteLibrary
from server_processes import HANG, NAP, command, environment


def hook(event: str, data: Path, home: Path, told: Mapping[str, Any], **variables: str) -> "subprocess.Popen[str]":
    """Its input is written; it ends by itself."""
    process = subprocess.Popen(
        command("hook", event, "--data-dir", data),
        env=at_home(home) | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"hook_event_name": event, **told}))
    process.stdin.close()
    process.stdin = None
    return process


def hooked(event: str, data: Path, home: Path, told: Mapping[str, Any], **variables: str) -> str:
    """What the hook says."""
    process = hook(event, data, home, told, **variables)
    out, err = process.communicate(timeout=HANG)
    assert (process.returncode, err) == (0, "")
    return out


def at_home(home: Path) -> dict[str, str]:
    foreign = ("CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
    kept = {name: value for name, value in environment().items() if name not in foreign}
    return kept | {"HOME": str(home), "USERPROFILE": str(home)}


def workers(data: Path) -> list[psutil.Process]:
    """Those of this data folder that are alive."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "--worker" in words and str(data) in words:
            found.append(process)
    return found


def wait_for_workers(data: Path, seconds: float = 2 * HANG) -> None:
    """Until none is left."""
    deadline = time.monotonic() + seconds
    while found := workers(data):
        assert time.monotonic() < deadline, f"{found} do not end"
        psutil.wait_procs(found, timeout=NAP)


async def past(data: Path) -> dict[str, tuple[Any, ...]]:
    """All that is kept of conversations, without the moments of its storing."""
    library = SqliteLibrary(data)
    store = await library.open_history_store()
    found = await store.scan(RecordFilter())
    links = await store.scan_links(deleted=False)
    problems = await store.find_faults()
    await library.close()
    assert problems == []
    kept = {record.id: _told(record) for record in found}
    return kept | {link.id: (link.source, link.verb, link.target) for link in links}


def _told(record: Record) -> tuple[Any, ...]:
    return (
        record.kind,
        record.type,
        record.name,
        record.text,
        record.author,
        record.session,
        record.position,
        record.scope,
        record.occurred_at,
        json.dumps(record.facets, sort_keys=True),
    )


def spoken(number: int, session: str, folder: Path) -> dict[str, Any]:
    """A line of Claude Code's: even ones are the user's, odd ones the assistant's."""
    text = f"Turn {number} is about the {('cache', 'queue', 'login')[number % 3]} of {session}."
    code = f"\n\n```python\ndef handle_{number}():\n    return check_{number // 10}()\n```"
    role = "assistant" if number % 2 else "user"
    content = [{"type": "text", "text": text + code}] if number % 2 else text
    return {
        "type": role,
        "uuid": f"{session}-{number}",
        "sessionId": session,
        "timestamp": f"2026-03-{1 + number // 60 % 28:02}T10:{number % 60:02}:00.000Z",
        "cwd": str(folder),
        "message": {"role": role, "content": content, "id": f"msg-{number}"},
    }


def transcript(home: Path, session: str, folder: Path, turns: int) -> Path:
    path = home / ".claude" / "projects" / "-work-shop" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(spoken(number, session, folder)) for number in range(turns)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
