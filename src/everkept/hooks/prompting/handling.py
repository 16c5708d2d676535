"""Answers a prompt: with something from the past, a hint where to look, or nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everkept.hooks.model import Answer, Around, HookEvent
from everkept.hooks.prompting.prompts import Reading, read
from everkept.language.forms import OVERVIEW

if TYPE_CHECKING:  # trivial prompts need none of it
    from everkept.hooks.prompting.decision import Given, Hinted
    from everkept.hooks.prompting.injecting import Context
    from everkept.hooks.prompting.judgement import Find
    from everkept.hooks.prompting.lookup import Found


def user_prompt(event: HookEvent, around: Around) -> Answer | None:
    """Most prompts are none of our business: they end here before anything is opened."""
    reading = read(event.prompt)
    if reading is None or around.room is None:
        return None
    if reading.trigger is not None and reading.trigger.wanted == OVERVIEW:
        from everkept.hooks.prompting.overview import overview

        return overview(event, around)
    from everkept.hooks.prompting.decision import Given, asked_of, decided
    from everkept.hooks.prompting.lookup import look

    found: Found = around.run(look(around.room, event, around.settings, asked_of(reading)))
    decision = decided(reading, found)
    if decision is None:
        return None
    if isinstance(decision, Given):
        text = _given(decision, reading, found, around)
    else:
        text = _hinted(decision, reading, found, around)
    return Answer(text) if text else None


def _given(decision: "Given", reading: Reading, found: "Found", around: Around) -> str | None:
    from everkept.hooks.prompting.injecting import context_of
    from everkept.hooks.prompting.judgement import marks_of, not_given, topic_marks

    fresh = not_given(decision.finds, around.ledger.given())
    if not fresh:
        return None
    query = " ".join(spelling for word in reading.words for spelling in (word.text, *word.parts))

    def made(finds: "Sequence[Find]") -> "Context | None":
        return context_of(
            finds,
            query,
            budget=around.settings.prompt_token_budget,
            now=around.now,
            briefly=decision.briefly,
        )

    context = made(fresh)
    if context is None:
        return None
    marks = {mark for find in context.used for mark in marks_of(find.record)}
    owned = around.ledger.claim(marks | topic_marks(found.known))
    ours = [find for find in context.used if find.record.id in owned]
    if len(ours) < len(context.used):  # another hook of this session was quicker
        context = made(ours)
    return context.text if context else None


def _hinted(decision: "Hinted", reading: Reading, found: "Found", around: Around) -> str | None:
    from everkept.hooks.prompting.decision import fits, query_of, suggestion
    from everkept.hooks.prompting.judgement import is_same_topic, not_given, topic_marks

    given = around.ledger.given()
    fresh = not_given(decision.finds, given)
    words = found.known or reading.words
    marks = topic_marks(words)
    # Where the best of it was given, a search would show that again.
    if decision.finds[:1] != tuple(fresh[:1]) or is_same_topic(marks, given):
        return None
    text = suggestion(decision.reason, fresh, query_of(words), around.now)
    if not fits(text, around.settings.prompt_token_budget):
        return None
    return text if around.ledger.claim(marks) else None
