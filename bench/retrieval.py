"""Measures how well memories are found, through the tools that clients use.

    python bench/retrieval.py FILE      any file in LoCoMo's format
    python bench/retrieval.py --coding  the memories of a coding assistant, kept beside this file
    python bench/retrieval.py FILE --history   the same as past conversations: imported, recalled
    python bench/retrieval.py --code    code of past conversations, by its purpose
    python bench/retrieval.py FILE --vectors vectors.npz   keep embeddings for the next run

Each turn of a conversation is a memory; each question knows the turns that answer it. Recall is
the share of those among the first results. `with` means that memories have author, session and
place in it, `without` that they are texts with a date. One store for each conversation. In brackets
is the interval that holds 95 of 100 resamplings of the questions. The calibration compares the
`relevance_score` of the first ten with how many of them answer. With
`--history` a conversation is a transcript that is imported; `sessions@5` is the share of the
sessions that answer a question among the first five.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everkept.app.app import App
from everkept.app.history import ImportRequest
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.embedders.onnx import OnnxEmbedder
from everkept.families.history.model import build_block_id, build_turn_id
from everkept.families.memories.model import MEMORY, MEMORY_PROFILE
from everkept.retrieval.profile import SearchPlace
from everkept.retrieval.search import search
from everkept.settings import read_settings
from everkept.values import replace
from question_sets import ADVERSARIAL, NOTHING, Memory, Question, QuestionSet, code_set, coding_set, conversations

CUTS = (5, 10, 20)
DEPTH = 20
SESSIONS = 5
RANKS = "RRF"
WAYS = {"words alone": "keyword", "vectors alone": "vector", RANKS: RANKS, "hybrid": "hybrid"}
BINS = 10  # of scores, for the calibration
RESAMPLINGS = 1_000
PATIENCE = 0.02  # seconds between two looks at the queue of vectors


@dataclass(frozen=True, slots=True)
class Answer:
    """A question, and the keys of what was found for it, best first."""

    question: Question
    found: list[frozenset[str]]
    scores: list[float] = field(default_factory=list[float])

    def recall(self, cut: int) -> float:
        if not self.question.wanted:
            return float(not self.found)
        seen = frozenset[str]().union(*self.found[:cut])
        return len(seen & self.question.wanted) / len(self.question.wanted)

    def reciprocal_rank(self) -> float:
        ranks = (rank for rank, keys in enumerate(self.found, 1) if keys & self.question.wanted)
        return 1 / next(ranks, float("inf"))


class Remembered:
    """An embedder that embeds each text once. With a file, also over several runs."""

    def __init__(self, file: Path | None = None) -> None:
        self._model = OnnxEmbedder()
        self._file = file
        self._known: dict[str, NDArray[np.float32]] = {}
        self.name = self._model.name
        self.dimensions = self._model.dimensions
        self.background = self._model.background
        self.fault = self._model.fault
        if file is not None and file.exists():
            with np.load(file) as kept:
                if kept["model"] == self.name:
                    self._known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def save(self) -> None:
        """Write all embeddings to the file, if there is one."""
        if self._file is not None and self._known:
            texts, vectors = np.array(list(self._known)), np.stack(list(self._known.values()))
            np.savez(self._file, model=self.name, texts=texts, vectors=vectors)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
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
        scores: list[float] = []
        if way == RANKS:
            ids = await self._by_ranks(question.text)
        else:
            arguments = {"query": question.text, "strategy": way, "limit": DEPTH}
            recalled = await self._call("recall_memories", arguments)
            ids = [memory["id"] for memory in recalled["memories"]]
            scores = [memory["relevance_score"] for memory in recalled["memories"]]
        return Answer(question, [self.find_keys(record_id) for record_id in ids], scores)

    def find_keys(self, record_id: str) -> frozenset[str]:
        return frozenset(self._keys[record_id])

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
        self._blocks: dict[str, Memory] = {}  # of turns with one block

    async def take_in(self, turns: Sequence[Memory]) -> None:
        lines = [json.dumps(_line(turn)) for turn in turns]
        path = self._folder / "conversation.jsonl"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        await self._app.history.import_transcripts(ImportRequest(("jsonl",), (path,)), lambda _done, _total: None)
        await self._app.history.embed(lambda _done, _total: None)
        self._turns = {build_turn_id("jsonl", f"{turn.session}:{turn.key}"): turn for turn in turns}
        self._blocks = {build_block_id(turn_id, 0): turn for turn_id, turn in self._turns.items()}

    async def find_code(self, question: Question) -> Answer:
        found = await self._app.call(self._session, "search_code_history", {"query": question.text, "limit": DEPTH})
        turns = [self._blocks[result["id"]] for result in found.facts["results"]]
        return Answer(question, [frozenset((turn.key,)) for turn in turns])

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
    parser.add_argument("--code", action="store_true", help="code of past conversations, by its purpose")
    parser.add_argument("--history", action="store_true", help="as past conversations")
    parser.add_argument("--vectors", type=Path, help="file that keeps embeddings between runs")
    parser.add_argument(
        "--quick", action="store_true", help="only the first conversation, or the first coding questions"
    )
    options = parser.parse_args()
    if options.file is None and not (options.coding or options.code):
        parser.error("name a file, --coding or --code")
    embedder = Remembered(options.vectors)
    if options.history and options.file is not None:
        asyncio.run(_measure_history(options.file, embedder, quick=options.quick))
    elif options.code:
        asyncio.run(_measure_code(embedder))
    else:
        asyncio.run(_measure(options.file, embedder, coding=options.coding, quick=options.quick))
    embedder.save()


async def _measure(file: Path | None, embedder: Remembered, *, coding: bool, quick: bool) -> None:
    if file is not None:
        sets = conversations(file)[: 1 if quick else None]
        for with_metadata in (True, False):
            title = "With author, session and place" if with_metadata else "Without"
            _report(title, await _answers(sets, embedder, with_metadata=with_metadata))
    if coding:
        sets = [coding_set(datetime.now(UTC), quick=quick)]
        answers = await _answers(sets, embedder, with_metadata=True)
        _report("Coding assistant", answers)
        held = {way: [answer for answer in some if answer.question.held_out] for way, some in answers.items()}
        _report("Coding assistant, the half that nothing was chosen on", held)


async def _measure_history(file: Path, embedder: Remembered, *, quick: bool) -> None:
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


async def _measure_code(embedder: Remembered) -> None:
    one = code_set(datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        historian = Historian(Path(folder), embedder)
        try:
            await historian.take_in(one.memories)
            answers = [await historian.find_code(question) for question in one.questions]
        finally:
            await historian.close()
    _report("Code by its purpose", {"search_code_history": answers})
    for answer in answers:
        if not answer.recall(CUTS[0]):
            print(f"not among the first {CUTS[0]}: {answer.question.text}", file=sys.stderr)


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
    """As markdown. Questions that name the wrong person on purpose, or that nothing answers, stand apart."""
    categories = sorted({a.question.category for some in answers.values() for a in some})
    print(f"\n## {title}\n\n| | R@5 | R@10 | R@20 | hit@10 | MRR |\n|---|{'--:|' * 5}")
    for way, some in answers.items():
        fair = [answer for answer in some if answer.question.category not in (ADVERSARIAL, NOTHING)]
        figures = [
            *([answer.recall(cut) for answer in fair] for cut in CUTS),
            [float(answer.recall(10) > 0) for answer in fair],
            [answer.reciprocal_rank() for answer in fair],
        ]
        print(f"| {way} | {' | '.join(map(_with_interval, figures))} |")
    print(f"\n| R@10 of | {' | '.join(categories)} |\n|---|{'--:|' * len(categories)}")
    for way, some in answers.items():
        means = [_mean(a.recall(10) for a in some if a.question.category == c) for c in categories]
        print(f"| {way} | {' | '.join(f'{mean:.3f}' for mean in means)} |", flush=True)
    _report_calibration(answers.get("hybrid", []))


def _report_calibration(answers: Sequence[Answer]) -> None:
    scored = [
        (score, bool(keys & answer.question.wanted))
        for answer in answers
        for score, keys in zip(answer.scores[:10], answer.found[:10], strict=True)
    ]
    if not scored:
        return
    print("\n| relevance_score | results | mean score | answers |\n|---|--:|--:|--:|")
    error = 0.0
    for step in range(BINS):
        low, high = step / BINS, (step + 1) / BINS
        inside = [pair for pair in scored if low <= pair[0] < high or (step == BINS - 1 and pair[0] == 1)]
        if inside:
            mean, right = _mean(score for score, _ in inside), _mean(float(is_right) for _, is_right in inside)
            error += len(inside) / len(scored) * abs(mean - right)
            print(f"| {low:.1f} to {high:.1f} | {len(inside)} | {mean:.3f} | {right:.3f} |")
    print(f"\nExpected calibration error: {error:.3f}")


def _with_interval(values: Sequence[float]) -> str:
    """The mean, and the interval of the means of resamplings, which are the same in each run."""
    if not values:
        return ""
    drawn = np.random.default_rng(0).choice(np.array(values), (RESAMPLINGS, len(values)))
    low, high = np.quantile(drawn.mean(axis=1), (0.025, 0.975))
    return f"{_mean(values):.3f} [{low:.3f}, {high:.3f}]"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(len(listed), 1)


if __name__ == "__main__":
    main()
