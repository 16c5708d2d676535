"""Whether a turn speaks of something that went wrong, or of how it was put right."""

import re
from collections.abc import Iterator, Sequence

from recollect.families.history.importing.fences import without_blocks

_NOT = r"(?:n['\u2019]t| not)"

# Each with words of which one must be there: looking for those first is many times quicker.
_PROBLEMS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("traceback (",), r"Traceback \(most recent call last\)"),
    (
        ("error", "exception", "fault"),
        r"\b(?-i:[A-Z])\w*(?-i:Error|Exception|Fault)\b(?=[:(\n]|$| at | in )",
    ),
    (
        ("fatal", "error", "panic", "err!"),
        r"(?m:^[ \t>*-]*(?:fatal|error|panic|err!)(?:\[\w+\])?:)",
    ),
    (
        ("error", "exception"),
        r"\b(?:an?|the|this|that|same|following|some|weird|strange|get|gets|getting|got|throws?|"
        r"threw|raises?|raised|unhandled|uncaught|syntax|type|runtime|build|compile|compiler|"
        r"import|internal server) (?:errors?|exceptions?)\b"
        r"(?! (?:of|for|handl|class|type|code|page))",
    ),
    (
        ("fail", "crash", "segfault", "deadlock", "hangs", "stack", "regression", "timed", "core "),
        r"\b(?:fails?|failed|failing|crash|crashes|crashed|crashing|segfaults?|deadlocks?|hangs|"
        r"stack ?trace|regression|timed out|core dumped)\b",
    ),
    (
        ("n't ", "n\u2019t ", " not "),
        rf"\b(?:does|did|do|is|are|was|wo|ca|could|will){_NOT} (?:work|working|start|compile|"
        r"build|load|run|connect|respond|pass|find|open|resolve)\b",
    ),
    (
        ("cannot",),
        r"\bcannot (?:find|open|read|import|resolve|connect|load|run|start|build)\b",
    ),
    (
        ("broken", "stuck", "failing"),
        r"\b(?:is|are|seems?|looks|completely|still|got) (?:broken|stuck|failing)\b",
    ),
    (
        ("exit", "return"),
        r"\b(?:exit(?:ed with)?|return(?:ed)?) (?:code|status):? ?[1-9]",
    ),
    (
        ("bug", "leak", "race"),
        r"\b(?:bug|memory leak|race condition)\b(?! ?-?(?:fix|report|tracker|free))",
    ),
    (("failed", "failure", "error"), r"\b[1-9]\d* (?:failed|failures?|errors?)\b"),
)
_FIXES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("fixed", "solved", "resolved"),
        r"\b(?:is|was|are|were|been|be|now|that|this|which|it|i|we|i['\u2019]ve|we['\u2019]ve|"
        r"have|has|should be|successfully) (?:now |all |finally |already )?"
        r"(?:fixed|solved|resolved)\b(?! (?:width|size|length|point|number|set|price|position))",
    ),
    (
        ("fixed", "solved", "resolved"),
        r"\b(?:fixed|solved|resolved) (?:it|this|that|the|by|in|with|now)\b"
        r"|(?m:^[ \t>*-]*(?:fixed|solved|resolved)\b)",
    ),
    (
        ("now ",),
        r"\bnow (?:passes|pass|works?|succeeds?|compiles|builds|runs|starts|returns|loads)\b",
    ),
    (
        (" now", " again", " correctly"),
        r"\b(?:works|working|passes|passing|green|compiles|builds|runs) "
        r"(?:now|again|correctly)\b",
    ),
    (
        ("all ",),
        r"\ball (?:\d+ )?(?:the )?(?:tests|checks|specs) (?:are )?(?:now )?"
        r"(?:pass|passed|passing|green)\b",
    ),
    (("cause",), r"\bcause (?:was|is|of (?:this|that|the|it))\b"),
    (("the fix", "solution", "culprit"), r"\bthe (?:fix|solution|culprit) (?:is|was)\b"),
    (
        ("problem", "issue", "bug", "error"),
        r"\bthe (?:problem|issue|bug|error) (?:was|came from|is (?:that|because))\b",
    ),
    (("turn",), r"\bturn(?:s|ed) out (?:that|to|the)\b"),
    (
        ("that did", "no longer"),
        r"\bthat did (?:it|the trick)\b|\bno longer (?:fails|crashes|hangs|happens|occurs)\b",
    ),
)
Forms = Sequence[tuple[tuple[str, ...], re.Pattern[str]]]
_PROBLEM_FORMS: Forms = [(words, re.compile(form, re.IGNORECASE)) for words, form in _PROBLEMS]
_FIX_FORMS: Forms = [(words, re.compile(form, re.IGNORECASE)) for words, form in _FIXES]

# What stands shortly before it in the sentence, and takes it back.
_NO_PROBLEM = re.compile(
    r"\b(?:no|without|any|zero|0|if|unless|never|when|case|whether|avoid|avoids|prevent|prevents|"
    r"should|must|not|n['\u2019]t|handle|handles|handling|on)(?:[ \t]+[\w-]+){0,3}[ \t]*$",
    re.IGNORECASE,
)
_NO_FIX = re.compile(
    r"\b(?:not|n['\u2019]t|never|if|once|when|until|unless|whether|to|must|might|maybe|perhaps|"
    r"could|is|needs?)(?:[ \t]+[\w-]+){0,3}[ \t]*$",
    re.IGNORECASE,
)
_SENTENCE_ENDS = ".!?\n;"
_NEAR = 60  # characters before it that matter


def has_problem(text: str) -> bool:
    """Whether something fails, in the words of a person or of a program."""
    found = _found(text, text.lower(), _PROBLEM_FORMS)
    return any(not _NO_PROBLEM.search(_before(text, each)) for each in found)


def has_fix(text: str) -> bool:
    """Whether it says that something was put right, or why it had gone wrong."""
    lowered = text.lower()
    if not any(word in lowered for words, _ in _FIX_FORMS for word in words):
        return False
    said = without_blocks(text)
    return any(
        not _is_question(said, each) and not _NO_FIX.search(_before(said, each))
        for each in _found(said, said.lower(), _FIX_FORMS)
    )


def _found(text: str, lowered: str, forms: Forms) -> Iterator[re.Match[str]]:
    for words, form in forms:
        if any(word in lowered for word in words):
            yield from form.finditer(text)


def _before(text: str, found: re.Match[str]) -> str:
    before = text[max(0, found.start() - _NEAR) : found.start()]
    for index in range(len(before) - 1, -1, -1):
        if before[index] in _SENTENCE_ENDS:
            return before[index + 1 :]
    return before


def _is_question(text: str, found: re.Match[str]) -> bool:
    for sign in text[found.end() : found.end() + 200]:
        if sign in _SENTENCE_ENDS:
            return sign == "?"
    return False
