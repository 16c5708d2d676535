"""Which words hint at the past, and which only look as if they did."""

import pytest

from everkept.hooks.prompting.indicators import foreign_indicators_in, indicators_in

HINTS = {
    "The webhook arrives twice again": "again",
    "Make it similar to the invoices page": "similar",
    "do it like before": "before",
    "Do it as we did last time, please": "last time",
    "solve it the same way": "same way",
    "Do you remember the port?": "remember",
    "I don't remember the name of the index": "remember",
    "Remember the retry bug we had?": "remember",
    "can you recall the flag": "recall",
    "Previously this was done in a worker": "previously",
    "we talked about shards earlier": "earlier",
    "our earlier attempt was slow": "earlier",
}
NO_HINTS = (
    "This goes against the rules",
    "He is totally right, regain the lock",
    "again and again the same song",
    "remember to run the tests",
    "Remember that we use tabs",
    "remember: use tabs",
    "Remember, never push to main",
    "please remember the deploy key is in the vault",
    "Add a remember me checkbox",
    "Precision and recall are low",
    "recall@10 went down",
    "recall_memories is slow",
    "unrecalled remembering earliest similarly",
    "the previously selected row",
    "as I mentioned earlier, keep it thin",
    "as I said before, keep it thin",
    "start earlier than noon",
    "The summary should stand earlier",
)


FOREIGN_HINTS = (
    "Die Webhooks kommen wieder doppelt an",
    "Mach es ähnlich wie bei den Rechnungen",
    "aehnlich wie beim Export",
    "Bau es genauso wie die Suche",
    "so wie beim letzten Mal",
    "Los webhooks llegan de nuevo dos veces",
    "hazlo como la última vez",
    "Le webhook arrive à nouveau deux fois",
    "Fais-le comme avant",
    "de la même manière",
)
NO_FOREIGN_HINTS = (
    "Das kommt immer wieder vor",
    "Wiederhole den Test",
    "como siempre",
    "un nouvel export",
    "The webhook arrives twice again",
)


@pytest.mark.parametrize("prompt", FOREIGN_HINTS)
def test_a_hint_may_be_german_spanish_or_french(prompt: str) -> None:
    assert foreign_indicators_in(prompt)


@pytest.mark.parametrize("prompt", NO_FOREIGN_HINTS)
def test_what_only_looks_like_a_foreign_hint_is_none(prompt: str) -> None:
    assert foreign_indicators_in(prompt) == []


@pytest.mark.parametrize(("prompt", "name"), HINTS.items())
def test_a_hint_at_the_past_is_seen(prompt: str, name: str) -> None:
    assert name in indicators_in(prompt)


@pytest.mark.parametrize("prompt", NO_HINTS)
def test_what_only_looks_like_a_hint_is_none(prompt: str) -> None:
    assert indicators_in(prompt) == []
