"""Bundles and digests stay inside their budgets and keep the most useful."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.families.bank.context_budget import FILES_BY_USE, FittedFiles, count_answer_tokens, fit_digest, fit_files
from everkept.families.bank.core_files import CurrentContext, Digest, RecentDecision, build_digest
from everkept.families.bank.model import CORE_FILES
from examples import examples

HISTORY = "# Project Progress\n\n## Done\n\n- Long ago\n\n## Update History\n\n"


def bundle(fitted: FittedFiles) -> dict[str, Any]:
    """As a tool answers, with a tag for whole files."""
    return {
        "bundle": {
            name: {"content": text} | ({} if name in fitted.cut else {"etag": "0" * 16})
            for name, text in fitted.texts.items()
        },
        "warnings": list(fitted.warnings),
    }


def answer(digest: Digest, warnings: Sequence[str]) -> dict[str, Any]:
    return {"digest": digest, "metadata": {"warnings": list(warnings)}}


def nothing_of(texts: Mapping[str, str]) -> FittedFiles:
    named = ", ".join(name for name in FILES_BY_USE if name in texts)
    return FittedFiles({}, frozenset(), [f"Omitted to fit maxTokens: {named}."])


line = st.one_of(
    st.text(max_size=40),
    st.text(max_size=30).map(lambda text: f"- {text}"),
    st.text(max_size=30).map(lambda text: f"- [ ] {text}"),
    st.text(max_size=20).map(lambda text: f"- [2026-02-13 10:30:00] [Ada] - {text}"),
    st.sampled_from(
        [
            "# Title",
            "## Update History",
            "## Ongoing Tasks",
            "## Known Issues",
            "### [Feb 13, 2026, 10:30 AM] ✨ Feature: Login",
            "## Decision",
            "- **Date:** 2026-02-13",
            '- **Decision:** Ümläut and 漢字 \\ " quotes',
            "```",
            "---",
        ]
    ),
)
file_text = st.lists(line, max_size=30).map("\n".join)
banks = st.dictionaries(st.sampled_from(CORE_FILES), file_text, min_size=1)


@settings(max_examples=examples(150))
@given(banks, st.integers(1, 1_500))
def test_a_bundle_is_never_over_its_budget(texts: dict[str, str], budget: int) -> None:
    if budget < (needed := count_answer_tokens(bundle(nothing_of(texts)))):
        with pytest.raises(InvalidInput) as caught:
            fit_files(texts, bundle, budget)
        assert caught.value.facts["needed"] == needed
        return
    fitted = fit_files(texts, bundle, budget)
    assert count_answer_tokens(bundle(fitted)) <= budget
    for name, text in texts.items():
        named = any(name in warning for warning in fitted.warnings)
        assert (fitted.texts.get(name) == text and name not in fitted.cut) != named


@settings(max_examples=examples(150))
@given(banks, st.integers(1, 800))
def test_a_digest_is_never_over_its_budget(texts: dict[str, str], budget: int) -> None:
    full = build_digest(texts, most_progress=10, most_decisions=5, with_patterns=True)
    try:
        digest, warnings = fit_digest(full, answer, budget)
    except InvalidInput:
        assert budget < 200  # there is always room for an answer that says what is left out
        return
    assert count_answer_tokens(answer(digest, warnings)) <= budget
    assert bool(warnings) == (digest != full)


@given(banks)
def test_with_room_for_all_nothing_is_cut(texts: dict[str, str]) -> None:
    fitted = fit_files(texts, bundle, 1_000_000)
    assert fitted.texts == texts
    assert not fitted.warnings


def test_active_context_comes_before_the_others() -> None:
    text = "# Title\n\n" + "- some words of an entry\n" * 20
    texts: dict[str, str] = dict.fromkeys(CORE_FILES, text)
    fitted = fit_files(texts, bundle, 800)
    assert next(iter(fitted.texts)) == "active-context.md"
    assert "active-context.md" not in fitted.cut
    assert "progress.md" in fitted.cut


def test_progress_is_cut_between_entries_and_the_newest_stay() -> None:
    entries = [f"- [2026-02-{day:02} 10:00:00] [Ada] - Fix: Number {day}\n" for day in range(28, 0, -1)]
    fitted = fit_files({"progress.md": HISTORY + "".join(entries)}, bundle, 400)
    shown = fitted.texts["progress.md"]
    count = shown.count("Fix:")
    assert 0 < count < len(entries)
    assert shown == HISTORY + "".join(entries[:count])
    assert fitted.cut == {"progress.md"}


def test_entries_of_both_formats_are_kept_whole() -> None:
    heading = "### [Feb 13, 2026, 10:30 AM] ✨ Feature: Login {n}"
    entry = f"{heading}\n\n**Affected files:**\n- `a`\n- `b`\n\n---\n\n"
    text = HISTORY + "".join(entry.format(n=n) for n in range(20))
    shown = fit_files({"progress.md": text}, bundle, 400).texts["progress.md"]
    assert 0 < shown.count("Login") < 20
    assert shown.count("- `b`") == shown.count("Login")


def test_of_decisions_the_last_ones_stay_in_the_order_of_the_file() -> None:
    blocks = [f"## Decision about {n}\n\n- **Decision:** Yes to {n}.\n\n" for n in range(40)]
    shown = fit_files({"decision-log.md": "# Decision Log\n\n" + "".join(blocks)}, bundle, 400)
    text = shown.texts["decision-log.md"]
    count = text.count("**Decision:**")
    assert 0 < count < 40
    assert text == "# Decision Log\n\n" + "".join(blocks[-count:])


def test_a_file_without_any_place_to_cut_is_left_out_and_named() -> None:
    texts = {"active-context.md": "x" * 50_000, "progress.md": "- short\n"}
    fitted = fit_files(texts, bundle, 200)
    assert fitted.texts == {"progress.md": "- short\n"}
    assert fitted.warnings == ["Omitted to fit maxTokens: active-context.md."]


def test_one_long_file_takes_nothing_that_the_others_need() -> None:
    tasks = "".join(f"- [ ] Task number {n} of very many\n" for n in range(2_000))
    texts = {
        "active-context.md": f"# C\n\n## Ongoing Tasks\n\n{tasks}\n## Known Issues\n\n- Slow\n",
        "progress.md": HISTORY + "- [2026-02-13 10:00:00] [Ada] - Fix: Typo\n",
        "product-context.md": "# Product\n\n" + "It sells books. " * 500 + "\n\n## Goals\n\n- Sell\n",
    }
    fitted = fit_files(texts, bundle, 800)
    assert fitted.cut == {"active-context.md", "product-context.md"}
    assert "- Slow\n" in fitted.texts["active-context.md"]
    assert fitted.texts["product-context.md"].count("It sells books.") > 3
    assert "- Sell\n" in fitted.texts["product-context.md"]
    assert count_answer_tokens(bundle(fitted)) > 700


def test_a_digest_uses_most_of_its_budget() -> None:
    long = [f"Item {n} " + "with many words about it " * 20 for n in range(10)]
    full = Digest(
        current_context=CurrentContext(long, long, long),
        recent_progress=long,
        recent_decisions=[RecentDecision("Use it", "2026-02-13", "Because of many things. " * 10)] * 5,
    )
    digest, _ = fit_digest(full, answer, 300)
    assert 240 < count_answer_tokens(answer(digest, [])) <= 300
    assert digest.current_context.tasks
    assert digest.current_context.issues


def test_a_very_large_file_is_cut_as_well() -> None:
    entries = "".join(f"- [2026-02-14 08:00:00] entry {n}\n" for n in range(100_000))
    fitted = fit_files({"progress.md": HISTORY + entries}, bundle, 1_000)
    assert "entry 0\n" in fitted.texts["progress.md"]
    assert count_answer_tokens(bundle(fitted)) <= 1_000


def test_a_digest_gives_every_kind_its_turn() -> None:
    many = [f"Item number {n} of this list" for n in range(200)]
    full = Digest(
        project_state="Beta.",
        current_context=CurrentContext(many, many, many),
        also_unfinished=many,
        recent_progress=many,
        recent_decisions=[RecentDecision("Use it", "2026-02-13", "Because.")] * 5,
        system_patterns="patterns " * 500,
        graph_summary="graph",
    )
    digest, [warning] = fit_digest(full, answer, 1_000)
    assert digest.project_state == "Beta."
    assert digest.current_context.tasks[:5] == many[:5]
    assert len(digest.current_context.tasks) >= len(digest.recent_progress) >= 5
    assert digest.recent_decisions
    assert digest.system_patterns is None
    assert "1 systemPatterns" in warning


def test_a_budget_that_is_too_small_is_an_error_that_says_what_would_do() -> None:
    with pytest.raises(InvalidInput) as caught:
        fit_files({"progress.md": HISTORY}, bundle, 5)
    needed = caught.value.facts["needed"]
    assert count_answer_tokens(bundle(fit_files({"progress.md": HISTORY}, bundle, needed))) <= needed
