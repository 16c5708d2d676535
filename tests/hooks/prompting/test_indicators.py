"""Which words hint at the past, and which only look as if they did."""

import pytest

from recollect.hooks.prompting.indicators import indicators_in

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


@pytest.mark.parametrize(("prompt", "name"), HINTS.items())
def test_a_hint_at_the_past_is_seen(prompt: str, name: str) -> None:
    assert name in indicators_in(prompt)


@pytest.mark.parametrize("prompt", NO_HINTS)
def test_what_only_looks_like_a_hint_is_none(prompt: str) -> None:
    assert indicators_in(prompt) == []
