"""Markdown as people read it."""

import re

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n?", re.MULTILINE)
_LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}|>)[ \t]+", re.MULTILINE)
# Code first, because stars in it are not markup. Underscores are part of names, such as __init__.
_MARKUP = re.compile(
    r"(?<!`)(?P<tick>`++)(?P<code>[^`\n]++)(?P=tick)"
    r"|\*\*(?=\S)(?P<strong>(?:(?!\*\*)[^\n])++)(?<=\S)\*\*"
    r"|!?\[(?P<label>[^\[\]\n]{1,200})\]\((?P<address>[^()\s]{1,400})\)"
    r"|(?<![\w*])\*(?=[^\s*])(?P<soft>[^*\n]+?)(?<=\S)\*(?![\w*])"
)


def to_plain_text(text: str) -> str:
    """Return what a person reads of Markdown: without fences, quotation marks, headings and stars.

    The address of a link follows its words.
    """
    parts = _FENCE.split(text)
    # Between a fence and the next one is code, which stays unchanged.
    plain = [part if number % 2 else strip_markup(part) for number, part in enumerate(parts)]
    return "".join(plain).strip()


def strip_markup(text: str) -> str:
    """Return a text without fences in the same way."""
    text = _LINE_MARKS.sub("", text)
    return _MARKUP.sub(_replace_markup, text)


def _replace_markup(found: re.Match[str]) -> str:
    if label := strip_markup(found["label"] or ""):
        return label if label == found["address"] else f"{label} ({found['address']})"
    return found["code"] or found["strong"] or found["soft"]
