"""Known forms and names of secrets are found in steps in proportion to a text that is full of their beginnings."""

import re
from typing import Any

import pytest

from everkept.core import secret_forms, secret_values
from everkept.core.secret_forms import find_known_forms
from everkept.core.secrets import mask_text

FORMS = secret_forms._FORMS  # pyright: ignore[reportPrivateUsage]
UNLIMITED = re.compile(r"(?:\{\d+,\}|\*|\+)(?!\||\)|=\{0,2\}|\(\?:[^()]*\)\?$|$)")
KEY = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0z"


class CountedPattern:
    """A pattern that counts the characters of its matches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.characters = 0

    def match(self, text: str, at: int) -> re.Match[str] | None:
        found = self._pattern.match(text, at)
        self.characters += len(found.group()) if found else 0
        return found


def test_a_form_repeats_without_a_limit_only_at_its_end() -> None:
    """Otherwise each beginning in a long word may read the whole word and find nothing."""
    plain = {form.rest: re.sub(r"\[[^\]]*\]", "x", form.rest).replace("}+", "}") for form in FORMS}
    assert [rest for rest, simple in plain.items() if UNLIMITED.search(simple)] == []


@pytest.mark.parametrize("tail", ["-", "_", "-x-", "xxxx-", "abc."])
def test_refused_forms_in_a_long_word_are_read_a_few_times(tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = secret_forms._group_forms()  # pyright: ignore[reportPrivateUsage]
    counted: dict[str, Any] = {
        key: [(form, CountedPattern(rest)) for form, rest in group] for key, group in groups.items()
    }
    monkeypatch.setattr(secret_forms, "_group_forms", lambda: counted)
    for beginning in sorted({form.beginning for form in FORMS}):
        patterns = [rest for group in counted.values() for _, rest in group]
        for rest in patterns:
            rest.characters = 0
        text = (beginning + tail) * 2_000
        assert list(find_known_forms(text)) is not None
        assert sum(rest.characters for rest in patterns) < 40 * len(text), beginning


@pytest.mark.parametrize("piece", ["key", "token", "secretkey", "_token", "auth-data", "pass", "passwordvalue"])
def test_a_name_in_a_long_word_of_names_is_read_a_few_times(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedPattern(secret_values._NAME)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(secret_values, "_NAME", counted)
    text = piece * 2_000 + "ed"
    assert mask_text(text) == (text, [])
    mask_text(text[:-2])
    assert counted.characters < 40 * len(text)


def test_a_secret_behind_a_long_text_that_is_none_is_masked() -> None:
    words = "sk-" + "your-" * 100
    assert KEY not in mask_text(f"{words} {KEY}")[0]
    assert KEY not in mask_text(f"{words}{KEY}")[0]
