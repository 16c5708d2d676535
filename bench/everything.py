"""Measures `unified_memory_search`: whether the right kind of result comes first.

    python bench/everything.py

One project has memories, a knowledge graph, a memory bank and past conversations with code. Each question has its
answer in one of them, and was written without a look at its ranking. The rules were made with the first 60 in view. The
other 30 were written afterwards and are only read.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.app.history import ImportRequest
from everkept.core.sessions import Session
from everkept.families.history.model import build_block_id, build_turn_id
from everkept.settings import read_settings
from everkept.settings.model import OWN_TOOLSETS
from question_sets import EVERYTHING

KINDS = {
    "memory": "memory",
    "entity": "graph",
    "relation": "graph",
    "section": "bank",
    "conversation": "turns",
    "decision": "turns",
    "code": "code",
}
PROJECT = "harbor"
LIMIT = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what was found for it: the kind, the key and the score of each result, best first."""

    text: str
    kind: str
    wanted: frozenset[str]
    is_held_out: bool
    found: list[tuple[str, str, float]]

    @property
    def is_kind_first(self) -> bool:
        return bool(self.found) and self.found[0][0] == self.kind

    def has_answer(self, cut: int) -> bool:
        return any(kind == self.kind and key in self.wanted for kind, key, _ in self.found[:cut])


class Everything:
    """A project that has all kinds of things, filled through tools."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        flags = {"toolsets": ",".join(OWN_TOOLSETS), "project": PROJECT, "recall_time_limit": 600.0}
        settings = read_settings({"data_dir": folder / "data", **flags}, {})
        self._app = App(settings)
        self._session = Session("bench")
        self._keys: dict[str, str] = {}

    async def fill(self, data: Mapping[str, Any]) -> None:
        for memory in data["memories"]:
            stored = await self._call("store_memory", content=memory["text"], type=memory["type"], scope="project")
            self._keys[stored["memory_id"]] = memory["id"]
        made = [
            {"name": each["name"], "entity_type": each["type"], "observations": each["observations"]}
            for each in data["entities"]
        ]
        created = await self._call("create_entities", entities=made)
        self._keys |= {each["id"]: each["name"] for each in created["entities"]}
        linked = [{"from": each["from"], "to": each["to"], "relation_type": each["type"]} for each in data["relations"]]
        links = await self._call("create_relations", relations=linked)
        self._keys |= {link["id"]: each["id"] for link, each in zip(links["relations"], data["relations"], strict=True)}
        await self._call("initialize_memory_bank", path=str(self._folder))
        for file in data["files"]:
            await self._call("write_memory_bank_file", filename=file["name"], content=file["text"], force=True)
        await self._take_in(data["conversations"])
        await self._call("search_memory_bank", query="harbor")
        await self._app.memory_access.index(self._session, lambda _done, _total: None)

    async def ask(self, question: Mapping[str, Any]) -> Asked:
        answer = await self._call("unified_memory_search", query=question["text"], options={"limit": LIMIT})
        found = [
            (KINDS[result["type"]], self._find_key(result), result["relevance_score"]) for result in answer["results"]
        ]
        wanted, is_held_out = frozenset[str](question["wanted"]), question.get("held_out", False)
        return Asked(question["text"], question["kind"], wanted, is_held_out, found)

    async def close(self) -> None:
        await self._app.close()

    def _find_key(self, result: Mapping[str, Any]) -> str:
        if result["type"] == "section":
            return str(result["id"]).rpartition(":")[0]
        return self._keys.get(str(result["id"]), str(result["id"]))

    async def _take_in(self, conversations: Sequence[Mapping[str, Any]]) -> None:
        lines: list[str] = []
        now = datetime.now(UTC)
        for age, conversation in enumerate(reversed(conversations), 1):
            for place, turn in enumerate(conversation["turns"]):
                at = now - timedelta(days=3 * age) + timedelta(minutes=place)
                block = f"\n\n```{turn['language']}\n{turn['code']}\n```" if "code" in turn else ""
                said = {"session": conversation["session"], "id": turn["id"], "author": turn["author"]}
                lines.append(json.dumps(said | {"timestamp": at.isoformat(), "text": turn["text"] + block}))
                turn_id = build_turn_id("jsonl", f"{conversation['session']}:{turn['id']}")
                self._keys[turn_id] = self._keys[build_block_id(turn_id, 0)] = turn["id"]
        path = self._folder / "conversations.jsonl"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        await self._app.history.import_transcripts(ImportRequest(("jsonl",), (path,)), lambda _done, _total: None)
        await self._app.history.embed(lambda _done, _total: None)

    async def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return (await self._app.call(self._session, name, arguments)).facts


async def measure() -> list[Asked]:
    data = json.loads(EVERYTHING.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        everything = Everything(Path(folder))
        try:
            await everything.fill(data)
            return [await everything.ask(question) for question in data["questions"]]
        finally:
            await everything.close()


def report(asked: Sequence[Asked]) -> None:
    print("| | questions | right kind first | answer first | answer among 3 |\n|---|--:|--:|--:|--:|")
    seen = [each for each in asked if not each.is_held_out]
    rows = {kind: [each for each in seen if each.kind == kind] for kind in dict.fromkeys(each.kind for each in seen)}
    rows |= {"all": seen, "only read": [each for each in asked if each.is_held_out]}
    for name, some in rows.items():
        figures = [
            sum(each.is_kind_first for each in some),
            sum(each.has_answer(1) for each in some),
            sum(each.has_answer(3) for each in some),
        ]
        print(f"| {name} | {len(some)} | {' | '.join(f'{value / len(some):.3f}' for value in figures)} |")
    for each in asked:
        if not each.is_kind_first:
            shown = ", ".join(f"{kind} {key} {score:.2f}" for kind, key, score in each.found[:3])
            print(f"{each.kind}: {each.text} -> {shown}", file=sys.stderr)


if __name__ == "__main__":
    argparse.ArgumentParser(description=str(__doc__).partition("\n")[0]).parse_args()
    report(asyncio.run(measure()))
