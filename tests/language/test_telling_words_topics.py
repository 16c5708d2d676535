from collections import Counter
from typing import Any

import pytest

from everkept.language import telling_words as module
from everkept.language.telling_words import find_key_topics


def topics(*texts: str) -> list[str]:
    return find_key_topics((text, ()) for text in texts)


def test_stop_words_of_other_languages_and_code_are_no_topics() -> None:
    assert topics("Das ist ein Gitter", "Das war ein Gitter") == ["Gitter"]
    assert topics("pour le mélangeur", "dans le mélangeur") == ["mélangeur"]
    assert topics("let coupon", "return coupon", "const coupon") == ["coupon"]


def test_a_topic_ends_with_its_word() -> None:
    assert topics("reading 'discount'", "a 'discount'") == ["discount"]
    assert topics("written in C++ here", "more in C++ there") != ["C"]


def test_only_the_spellings_of_topics_that_are_told_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Counter[str]] = []

    def noted(*arguments: Any) -> Counter[str]:
        counted.append(Counter(*arguments))
        return counted[-1]

    monkeypatch.setattr(module, "Counter", noted)
    told = find_key_topics([(f"{word} parser", ()) for word in ("river", "stone", "window")], limit=2)
    assert told == ["parser"]
    assert counted == [Counter(parser=3)]
