"""Chooses the weights of the fusion on conversations, one left out at a time, and fits the calibration curve.

    python bench/fusion_folds.py FILE

FILE is in LoCoMo's format. For each conversation, the weights are chosen on the others and measured on this one. In
brackets is the interval that holds 95 of 100 resamplings of the questions of each conversation. The search begins with
the weights that ship, and the mean of the chosen weights is what ships next. It may not lower the questions that name
the wrong person. The curve of the calibration is fitted only to the tuning half of the coding set, with and without the
answers in the store.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from everkept.core.records import Record
from everkept.retrieval import search as search_module
from everkept.retrieval.fusion import CandidateSignals, compute_relevance, mark_supported, sum_columns
from everkept.retrieval.profile import MAX_NEARNESS, SignalWeights
from everkept.retrieval.scores import collect_signals, fit_query
from everkept.values import replace
from question_sets import ADVERSARIAL, Question, QuestionSet, coding_set, conversations
from retrieval import RESAMPLINGS, Assistant, Remembered

CHOICES: dict[str, tuple[float, ...]] = {
    "meaning": (0.4, 0.5, 0.6),
    "author": (0.1, 0.15, 0.2, 0.25, 0.3),
    "date": (0.2, 0.3, 0.4),
    "neighbour": (0.2, 0.25, 0.3, 0.35, 0.4),
}
START = SignalWeights()
ROUNDS = 2
DEPTH = 10
PENALTY = 2.0  # of each point that questions with the wrong person lose

Figures = tuple[float, float, float]  # R@5, R@10, MRR


@dataclass(frozen=True, slots=True)
class Case:
    """A question, with the candidates that the search ranked for it."""

    conversation: str
    question: Question
    signs: CandidateSignals
    records: list[Record]
    keys: list[frozenset[str]]

    def rank(self, parts: SignalWeights) -> tuple[list[int], list[float]]:
        """The numbers of the supported candidates, best first, and the scores of all."""
        scores = sum_columns(compute_relevance(self.signs, parts))
        supported = [number for number, is_so in enumerate(mark_supported(self.signs, parts)) if is_so]
        return sorted(supported, key=lambda i: (-scores[i], -self.records[i].effective_at)), scores

    def measure(self, parts: SignalWeights) -> Figures:
        order, _ = self.rank(parts)
        found = [self.keys[number] & self.question.wanted for number in order]
        five, ten = (len(frozenset[str]().union(*found[:cut])) / len(self.question.wanted) for cut in (5, DEPTH))
        return five, ten, next((1 / rank for rank, keys in enumerate(found, 1) if keys), 0.0)

    def without_answers(self) -> "Case":
        """The same question to a store without its answers."""
        left = [number for number, keys in enumerate(self.keys) if not keys & self.question.wanted]
        at = {old: new for new, old in enumerate(left)}

        def select(column: Sequence[Any] | None) -> Any:
            return None if column is None else [column[number] for number in left]

        signs = replace(
            self.signs,
            keyword=select(self.signs.keyword),
            cosine=select(self.signs.cosine),
            neighbours=[[(at[n], f) for n, f in self.signs.neighbours[number] if n in at] for number in left],
            author=select(self.signs.author),
            date=select(self.signs.date),
            asking=select(self.signs.asking),
        )
        return Case(self.conversation, self.question, signs, select(self.records), select(self.keys))


async def gather(sets: Sequence[QuestionSet], embedder: Remembered, *, with_metadata: bool) -> list[Case]:
    """Ask all questions through the tools, and keep what the ranking saw."""
    cases: list[Case] = []
    rank = search_module.rank_candidates
    for one in sets:
        with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
            assistant = Assistant(Path(folder), one.name, embedder)
            try:
                await assistant.remember(one.memories, with_metadata=with_metadata)
                for question in one.questions:

                    async def spy(query: Any, profile: Any, around: Any, evidence: Any, pool: Any, places: Any) -> Any:
                        signs = collect_signals(query, around, evidence, pool)
                        keys = [assistant.find_keys(record.id) for record in pool.values()]  # noqa: B023 (awaited)
                        cases.append(Case(one.name, question, signs, list(pool.values()), keys))  # noqa: B023
                        return await rank(query, profile, around, evidence, pool, places)

                    with patch.object(search_module, "rank_candidates", spy):
                        await assistant.answer(question, "hybrid")
            finally:
                await assistant.close()
    return cases


def measure_each(cases: Sequence[Case], parts: SignalWeights) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """A row of figures for each question."""
    return np.array([case.measure(parts) for case in cases])


def measure(cases: Sequence[Case], parts: SignalWeights) -> Figures:
    five, ten, rank = measure_each(cases, parts).mean(axis=0).tolist()
    return five, ten, rank


def format_means(left_out: "Sequence[np.ndarray[Any, np.dtype[np.float64]]]") -> str:
    """The mean of the means of the conversations, with its interval, for each figure."""
    means = np.mean([rows.mean(axis=0) for rows in left_out], axis=0)
    random = np.random.default_rng(0)
    drawn = [
        [rows[random.integers(len(rows), size=len(rows))].mean(axis=0) for rows in left_out] for _ in range(RESAMPLINGS)
    ]
    lows, highs = np.quantile(np.mean(drawn, axis=1), (0.025, 0.975), axis=0)
    return " | ".join(f"{mean:.3f} [{low:.3f}, {high:.3f}]" for mean, low, high in zip(means, lows, highs, strict=True))


def choose(worth: Callable[[SignalWeights], float]) -> SignalWeights:
    """Improve one weight after the other, until all were tried in each round."""
    chosen, best = START, worth(START)
    for _ in range(ROUNDS):
        for name, values in CHOICES.items():
            for value in values:
                tried = replace(chosen, **{name: value})
                if tried != chosen and (its := worth(tried)) > best + 1e-5:
                    chosen, best = tried, its
    return chosen


def fit_curve(cases: Sequence[Case], parts: SignalWeights) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Fit a logistic curve by Newton's method: base, share, nearness, coverage."""
    rows: list[tuple[float, ...]] = []
    right: list[bool] = []
    for case in cases:
        order, scores = case.rank(parts)
        if not order or not scores[order[0]]:
            continue
        best = order[0]
        fit = fit_query(case.question.text, best, case.signs, case.records[best])
        nearness = min(max(fit.nearness or 0.0, 2 * fit.coverage - 1), MAX_NEARNESS)
        for number in order[:DEPTH]:
            rows.append((1.0, scores[number] / scores[best], nearness, fit.coverage))
            right.append(bool(case.keys[number] & case.question.wanted))
    x, y = np.array(rows), np.array(right, float)
    curve = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ curve))
        curve += np.linalg.solve((x.T * (p * (1 - p))) @ x + 1e-3 * np.eye(len(curve)), x.T @ (y - p) - 1e-3 * curve)
    return curve


async def run(file: Path, vectors: Path | None) -> None:
    embedder = Remembered(vectors)
    sets = conversations(file)
    named = await gather(sets, embedder, with_metadata=True)
    plain = await gather(sets, embedder, with_metadata=False)
    coding = await gather([coding_set(datetime.now(UTC))], embedder, with_metadata=True)
    embedder.save()
    tuning = [case for case in coding if not case.question.held_out]
    answered = [case for case in tuning if case.question.wanted]
    wrong = [case for case in named if case.question.category == ADVERSARIAL]
    groups: Mapping[str, list[Case]] = {
        "with author and session": [case for case in named if case.question.category != ADVERSARIAL],
        "as texts with a date": [case for case in plain if case.question.category != ADVERSARIAL],
        "wrong person": wrong,
    }

    def worth(parts: SignalWeights, left_out: str) -> float:
        by_name, by_text, misled = (
            measure([case for case in cases if case.conversation != left_out], parts) for cases in groups.values()
        )
        today = measure([case for case in wrong if case.conversation != left_out], START)
        loss = min(0.0, misled[1] - today[1])
        return 0.4 * sum(by_name) + 0.25 * sum(by_text) + 0.35 * sum(measure(answered, parts)) + 3 * PENALTY * loss

    chosen: list[SignalWeights] = []
    figures: dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]] = {name: [] for name in groups}
    for one in sets:
        weights = choose(lambda parts, name=one.name: worth(parts, name))
        chosen.append(weights)
        for name, cases in groups.items():
            figures[name].append(measure_each([case for case in cases if case.conversation == one.name], weights))
        print(f"without {one.name}: {weights}", flush=True)
    mean = replace(START, **{name: float(np.mean([getattr(w, name) for w in chosen])) for name in CHOICES})
    print(f"\nmean: {mean}\n\n| left out | R@5 | R@10 | MRR |\n|---|--:|--:|--:|")
    for name, some in figures.items():
        print(f"| {name} | {format_means(some)} |")
    cases = [*tuning, *(case.without_answers() for case in answered)]
    print(f"\ncurve (base, share, nearness, coverage): {fit_curve(cases, mean).round(1)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("file", type=Path, help="conversations in LoCoMo's format")
    parser.add_argument("--vectors", type=Path, help="file that keeps embeddings between runs")
    options = parser.parse_args()
    asyncio.run(run(options.file, options.vectors))
