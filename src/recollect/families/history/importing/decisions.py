"""Whether a turn says what was decided."""

import re

from recollect.families.history.importing.fences import without_blocks

_WHO = r"(?:we|i|they|you|the team|everyone|everybody|both)"
_HAVE = r"(?:['\u2019]ve|['\u2019]d| have| had| all| both| finally| now| just| already){0,3}"
_WILL = r"(?:['\u2019]ll| will|['\u2019]re going to|['\u2019]m going to| are going to| am going to)"
_CHOOSE = (
    r"(?:go(?: ahead)? with|go for|stick with|stick to|stay with|settle on|settle for|adopt|"
    r"opt for|switch to|standardi[sz]e on|keep to|commit to)"
)
_DO = (
    r"(?:use|using|used|go with|going with|went with|take|took|keep|kept|store|stored|write|wrote|"
    r"build|built|put|pick|picked|choose|chose|prefer|preferred|make|made|do|did|switch(?:ed)? to|"
    r"implement(?:ed)?|return|returned|run|call|deploy|ship|move[d]? to|add|added|replace[d]?)"
)
_THAN = r"(?:instead of|rather than|in place of|and not)"

# Each with words of which one must be there: looking for those first is many times quicker.
_WAYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("decided", "agreed", "settled", "opted", "concluded", "resolved"),
        rf"\b{_WHO}{_HAVE} (?:decided|agreed|settled|opted|concluded|resolved)"
        r"(?: not)? (?:to|on|for|that|against|upon|we|it)\b",
    ),
    (
        ("chose", "picked", "selected", "went with", "going with"),
        rf"\b{_WHO}{_HAVE} (?:chose|chosen|picked|selected|went with|going with)\b",
    ),
    (
        ("decided", "agreed", "settled"),
        r"\b(?:it|this|that|which) (?:was|is|has been|had been) (?:now )?"
        r"(?:decided|agreed|settled)\b",
    ),
    (
        ("ll ", " will ", "going to"),
        rf"\b{_WHO}{_WILL} (?:now )?{_CHOOSE}\b",
    ),
    (
        ("going with", "sticking with", "staying with"),
        r"\b(?:we|i|you)(?:['\u2019]re| are|['\u2019]m| am)? (?:now )?"
        r"(?:going|sticking|staying) with\b",
    ),
    (
        ("going with",),
        r"(?:^|[.!\n:;,>*-] ?)(?:ok(?:ay)?,? )?going with\b",
    ),
    (
        ("let's", "let\u2019s", "let us"),
        rf"\blet(?:['\u2019]s| us) (?:just |then |simply |rather |instead )?"
        rf"(?:{_CHOOSE}|use|keep|drop|do it|move to|pick|choose|replace|not)\b",
    ),
    (
        ("we'll", "we\u2019ll", "we will"),
        r"\bwe(?:['\u2019]ll| will) (?:not |always |never |only )?"
        r"(?:use|keep|drop|support|store|require|ship|target)\b",
    ),
    (
        ("decision",),
        r"\b(?:the|our|my|final|this|key|main|design|architectural?) decisions?"
        r"(?: here| now| then)? (?:is|was|are|were|made|taken|stands?|to|that|fell)\b",
    ),
    (
        ("decision", "decided", "agreed", "resolution", "verdict"),
        r"(?:^|(?<=\n)|(?<=[#*>-] )|(?<=\*\*))(?:final )?"
        r"(?:decision|decided|agreed|resolution|verdict)(?: made)?(?:\*\*)?\s?[:\u2014\u2013-]",
    ),
    (
        ("agreed",),
        r"(?:^|[.!\n] ?)agreed[,.!:] (?:we|let|i|use|go|the)",
    ),
    (
        ("instead of", "rather than", "in place of", "and not"),
        rf"\b(?:we|i|you)(?:['\u2019]ll|['\u2019]ve|['\u2019]re| will| should| now| have| are)?"
        rf"(?: now| always| only| going to)? {_DO}\b[^.!?\n]{{1,120}}?\b{_THAN}\b",
    ),
    (
        ("instead of", "rather than", "in place of", "and not"),
        r"(?:^|(?<=[.!\n] )|(?<=\n)|(?<=[*-] )|(?<=, )|(?<=so ))"
        r"(?:please )?(?:use|take|keep|go with|choose|pick|prefer|store|put)\b"
        rf"[^.!?\n]{{1,120}}?\b{_THAN}\b",
    ),
    (
        (" over ",),
        r"\b(?:chose|choose|picked|prefer(?:red)?|selected) [^.!?\n]{1,80}? over\b",
    ),
    (
        ("from now on",),
        r"\bfrom now on,? (?:we|i|you|all|every|use|no|always|never|only|it|the)\b",
    ),
    (
        ("choice",),
        r"\b(?:the|our) choice (?:is|was|fell)\b",
    ),
    (
        ("decision",),
        r"\b(?:we|i)(?:['\u2019]ve| have) (?:made|taken) (?:the|a|our) (?:final )?decision\b",
    ),
    (
        ("settled on", "opted for"),
        r"\b(?:settled on|opted for)\b",
    ),
)
_FORMS = [(words, re.compile(form, re.IGNORECASE)) for words, form in _WAYS]
# What makes it a question, a wish or a thought when it stands before it in the sentence.
_OPEN = re.compile(
    r"\b(?:if|unless|whether|suppose|supposing|imagine|assuming|maybe|perhaps|might|may|could|would|"
    r"should we|shall we|can we|do we|did we|have we|are we|what if|why|how|when|once|until|before|"
    r"not sure|haven['\u2019]t|hasn['\u2019]t|have not|had not|has not|hadn['\u2019]t|never|nobody|"
    r"not yet|didn['\u2019]t|did not|wasn['\u2019]t|isn['\u2019]t|don['\u2019]t think|example|"
    r"e\.g\.)(?!\w)",
    re.IGNORECASE,
)
_INLINE = re.compile(r"`[^`\n]{1,300}`")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,300}\"|\u201c[^\u201d\n]{1,300}\u201d|\u00ab[^\u00bb\n]{1,300}\u00bb"
)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_ENDS = re.compile(r"[.!?;](?=\s|$)|\n")
_NEAR = 400  # characters of a sentence that are looked at on each side


def is_decision(text: str) -> bool:
    """Whether somebody chose, in so many words: no question, no thought, nothing quoted."""
    lowered = text.lower()
    forms = [form for words, form in _FORMS if any(word in lowered for word in words)]
    if not forms:
        return False
    said = _own_words(text)
    return any(_is_said(said, found) for form in forms for found in form.finditer(said))


def _own_words(text: str) -> str:
    said = without_blocks(text)
    if "`" in said:
        said = _INLINE.sub("it", said)
    if ">" in said:
        said = _QUOTED_LINE.sub("", said)
    return _QUOTED.sub("it", said)


def _is_said(text: str, found: re.Match[str]) -> bool:
    start = max(0, found.start() - _NEAR)
    ends = [end.end() for end in _ENDS.finditer(text, start, found.start())]
    before = text[ends[-1] if ends else start : found.start()]
    close = _ENDS.search(text, max(found.start(), found.end() - 1), found.end() + _NEAR)
    is_question = close is not None and close.group() == "?"
    return not is_question and not _OPEN.search(before)
