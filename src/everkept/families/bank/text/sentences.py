"""Sentences for who reads the text of an answer alone."""

from collections.abc import Iterable

from everkept.tools.tool import Warned


def with_warnings(sentence: str, warnings: Iterable[Warned] | None) -> str:
    return "\n".join([sentence, *(f"Warning: {warned.message}" for warned in warnings or ())])
