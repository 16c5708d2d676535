"""Measures how well memories are found, through the tools that clients use.

    python bench/retrieval.py FILE      any file in LoCoMo's format
    python bench/retrieval.py --coding  the memories of a coding assistant, kept beside this file
    python bench/retrieval.py FILE --history   the same as past conversations: imported, recalled

Each turn of a conversation is a memory; each question knows the turns that answer it. Recall is
the share of those among the first results. `with` means that memories have author, session and
place in it, `without` that they are texts with a date. One store for each conversation. With
`--history` a conversation is a transcript that is imported; `sessions@5` is the share of the
sessions that answer a question among the first five.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.app.app import App
from everkept.app.history import ImportRequest
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.embedders.onnx import OnnxEmbedder
from everkept.families.history.model import build_turn_id
from everkept.families.memories.model import MEMORY, MEMORY_PROFILE
from everkept.retrieval.profile import SearchPlace
from everkept.retrieval.search import search
from everkept.settings import read_settings
from everkept.values import replace
from question_sets import ADVERSARIAL, Memory, Question, QuestionSet, coding_set, conversations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CUTS = (5, 10, 20)
DEPTH = 20
SESSIONS = 5
RANKS = "RRF"
WAYS = {"words alone": "keyword", "vectors alone": "vector", RANKS: RANKS, "hybrid": "hybrid"}
PATIENCE = 0.02  # seconds between two looks at the queue of vectors


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, and the keys of what was found for it, best first."""

    question: Question
    found: list[frozenset[str]]

    def recall(self, cut: int) -> float:
        seen = frozenset[str]().union(*self.found[:cut])
        return len(seen & self.question.wanted) / len(self.question.wanted)

    def reciprocal_rank(self) -> float:
        ranks = (rank for rank, keys in enumerate(self.found, 1) if keys & self.question.wanted)
        return 1 / next(ranks, float("inf"))


class Remembered:
    """An embedder that embeds each text once, however often the bench asks."""

    def __init__(self) -> None:
        self._model = OnnxEmbedder()
        self._known: dict[str, NDArray[np.float32]] = {}
        self.name = self._model.name
        self.dimensions = self._model.dimensions
        self.fault = self._model.fault

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        import numpy as np

        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, await self._model.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])

    async def close(self) -> None:
        """What is known is needed again."""


class Assistant:
    """Stores and recalls through the application, in a project of its own."""

    def __init__(self, folder: Path, project: str, embedder: Remembered) -> None:
        settings = read_settings({"data_dir": folder, "project": project, "recall_time_limit": 600.0}, {})
        self._project = project
        self._embedder = embedder
        self._app = App(settings, embedder=embedder)
        self._session = Session("bench")
        self._keys: dict[str, set[str]] = {}  # of the same text stored twice there is one memory

    async def remember(self, memories: Sequence[Memory], *, with_metadata: bool) -> None:
        for memory in memories:
            stored = await self._call("store_memory", _arguments(memory, with_metadata))
            self._keys.setdefault(stored["memory_id"], set()).add(memory.key)
        _, store = await self._app.library.open(self._project)
        # The queue is what the store lacks: there is no bell to wait for.
        while (await store.count_vectors(self._embedder.name, (MEMORY,)))[1]:  # noqa: ASYNC110
            await asyncio.sleep(PATIENCE)

    async def answer(self, question: Question, way: str) -> Answer:
        if way == RANKS:
            ids = await self._by_ranks(question.text)
        else:
            arguments = {"query": question.text, "strategy": way, "limit": DEPTH}
            recalled = await self._call("recall_memories", arguments)
            ids = [memory["id"] for memory in recalled["memories"]]
        return Answer(question, [frozenset(self._keys[record_id]) for record_id in ids])

    async def close(self) -> None:
        await self._app.close()

    async def _by_ranks(self, query: str) -> list[str]:
        """No tool offers this; it is here to be compared with."""
        _, store = await self._app.library.open(self._project)
        profile = replace(MEMORY_PROFILE, fusion="ranks")
        found = await search(
            [SearchPlace(store)], query, profile, limit=DEPTH, embedder=self._embedder, now=read_clock()
        )
        return [hit.record.id for hit in found.hits]

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await self._app.call(self._session, name, arguments)).facts


class Historian:
    """Imports conversations, and finds their turns again."""

    def __init__(self, folder: Path, embedder: Remembered) -> None:
        settings = read_settings({"data_dir": folder, "recall_time_limit": 600.0}, {})
        self._folder = folder
        self._app = App(settings, embedder=embedder)
        self._session = Session("bench")
        self._turns: dict[str, Memory] = {}

    async def take_in(self, turns: Sequence[Memory]) -> None:
        lines = [json.dumps(_line(turn)) for turn in turns]
        path = self._folder / "conversation.jsonl"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        await self._app.history.import_transcripts(ImportRequest(("jsonl",), (path,)), lambda _done, _total: None)
        await self._app.history.embed(lambda _done, _total: None)
        self._turns = {build_turn_id("jsonl", f"{turn.session}:{turn.key}"): turn for turn in turns}

    async def answer(self, question: Question) -> "Recalled":
        arguments = {"query": question.text, "limit": 50}
        found = await self._app.call(self._session, "recall_previous_discussions", arguments)
        turns = [self._turns[result["id"]] for result in found.facts["results"]]
        answer = Answer(question, [frozenset((turn.key,)) for turn in turns])
        wanted = {t.session for t in self._turns.values() if t.key in question.wanted}
        sessions = list(dict.fromkeys(turn.session for turn in turns))[:SESSIONS]
        return Recalled(answer, len(wanted.intersection(sessions)) / len(wanted))

    async def close(self) -> None:
        await self._app.close()


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found, and the share of the sessions that it should come from."""

    answer: Answer
    sessions: float


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="conversations in LoCoMo's format")
    parser.add_argument("--coding", action="store_true", help="the set of our own")
    parser.add_argument("--history", action="store_true", help="as past conversations")
    parser.add_argument("--quick", action="store_true", help="the first conversation alone")
    options = parser.parse_args()
    if options.file is None and not options.coding:
        parser.error("name a file, or --coding")
    if options.history and options.file is not None:
        asyncio.run(_measure_history(options.file, quick=options.quick))
        return
    asyncio.run(_measure(options.file, coding=options.coding, quick=options.quick))


async def _measure(file: Path | None, *, coding: bool, quick: bool) -> None:
    embedder = Remembered()
    if file is not None:
        sets = conversations(file)[: 1 if quick else None]
        for with_metadata in (True, False):
            title = "With author, session and place" if with_metadata else "Without"
            _report(title, await _answers(sets, embedder, with_metadata=with_metadata))
    if coding:
        sets = [coding_set(datetime.now(UTC))]
        _report("Coding assistant", await _answers(sets, embedder, with_metadata=True))


async def _measure_history(file: Path, *, quick: bool) -> None:
    embedder = Remembered()
    recalled: list[Recalled] = []
    for one in conversations(file)[: 1 if quick else None]:
        with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
            historian = Historian(Path(folder), embedder)
            try:
                await historian.take_in(one.memories)
                recalled += [await historian.answer(question) for question in one.questions]
            finally:
                await historian.close()
        print(f"{one.name}: {len(one.questions)} questions", file=sys.stderr)
    _report("Past conversations", {"recall_previous_discussions": [r.answer for r in recalled]})
    fair = [r.sessions for r in recalled if r.answer.question.category != ADVERSARIAL]
    print(f"\nsessions@{SESSIONS}: {_mean(fair):.3f}")


def _line(turn: Memory) -> dict[str, Any]:
    said = turn.text.removeprefix(f"{turn.author}: ")
    return {
        "session": turn.session,
        "author": turn.author,
        "timestamp": turn.at.isoformat(),
        "text": said,
        "id": turn.key,
    }


async def _answers(
    sets: Sequence[QuestionSet], embedder: Remembered, *, with_metadata: bool
) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {way: [] for way in WAYS}
    for one in sets:
        with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
            assistant = Assistant(Path(folder), one.name, embedder)
            try:
                await assistant.remember(one.memories, with_metadata=with_metadata)
                for name, way in WAYS.items():
                    answers[name] += [await assistant.answer(q, way) for q in one.questions]
            finally:
                await assistant.close()
        print(f"{one.name}: {len(one.questions)} questions", file=sys.stderr)
    return answers


def _arguments(memory: Memory, with_metadata: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "content": memory.text,
        "type": memory.type,
        "scope": "project",
        "importance": memory.importance,
        "occurred_at": memory.at.isoformat(),
    }
    if with_metadata:
        arguments |= {"author": memory.author} if memory.author else {}
        if memory.session is not None:
            arguments |= {"session_id": memory.session, "source": {"conversation_turn": memory.position}}
    return arguments


def _report(title: str, answers: dict[str, list[Answer]]) -> None:
    """As markdown. Questions that name the wrong person on purpose stand apart."""
    categories = sorted({a.question.category for some in answers.values() for a in some})
    head = [*(f"R@{cut}" for cut in CUTS), "hit@10", "MRR", *(f"{c} R@10" for c in categories)]
    print(f"\n## {title}\n\n| | {' | '.join(head)} |\n|---|{'--:|' * len(head)}")
    for way, some in answers.items():
        fair = [answer for answer in some if answer.question.category != ADVERSARIAL]
        figures = [
            *(_mean(answer.recall(cut) for answer in fair) for cut in CUTS),
            _mean(float(answer.recall(10) > 0) for answer in fair),
            _mean(answer.reciprocal_rank() for answer in fair),
            *(_mean(a.recall(10) for a in some if a.question.category == c) for c in categories),
        ]
        print(f"| {way} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(len(listed), 1)


if __name__ == "__main__":
    main()
