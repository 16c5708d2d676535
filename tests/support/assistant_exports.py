"""Exports as ChatGPT and Claude.ai write them: small ones of our own."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START = 1_700_000_000.0
ROOT = "00000000-0000-4000-8000-000000000000"


def write_zip(path: Path, files: Mapping[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return path


def write_folder(path: Path, files: Mapping[str, Any]) -> Path:
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")
    return path


def build_node(own: str, parent: str | None, role: str, text: Any, **message: Any) -> dict[str, Any]:
    """Return a node of ChatGPT's tree, with text parts or a whole content."""
    content: Any = {"content_type": "text", "parts": [text]} if isinstance(text, str) else text
    said: dict[str, Any] = {
        "id": own,
        "author": {"role": role},
        "create_time": START + len(own),
        "recipient": "all",
        "content": content,
        "metadata": {},
        **message,
    }
    return {"id": own, "parent": parent, "children": [], "message": said}


def build_tree(own: str, title: str, *nodes: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT. Its last node is the current one."""
    root: dict[str, Any] = {"id": "root", "message": None, "parent": None, "children": []}
    return {
        "conversation_id": own,
        "title": title,
        "create_time": START,
        "current_node": nodes[-1]["id"],
        "mapping": {"root": root, **{node["id"]: node for node in nodes}},
        **facts,
    }


def build_chat(own: str = "c1", name: str = "Logins", **facts: Any) -> dict[str, Any]:
    """Return a conversation of Claude.ai with one question, a first answer and a newer one."""
    when = "2026-09-01T10:0{}:00.000000Z"
    return {
        "uuid": own,
        "name": name,
        "chat_messages": [
            {
                "uuid": f"{own}-{number}",
                "sender": sender,
                "text": text,
                "content": [{"type": "text", "text": text}],
                "created_at": when.format(number),
                "parent_message_uuid": f"{own}-1" if number > 1 else ROOT,
            }
            for number, sender, text in (
                (1, "human", "How do I limit logins?"),
                (2, "assistant", "An answer that was repeated"),
                (3, "assistant", "Count tries per address."),
            )
        ],
        **facts,
    }
