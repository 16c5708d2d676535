"""Sentences, the code between them, and phrases of a decision, a problem or a fix."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from everkept.patterns import compile_late
from everkept.values import Value

_FENCED = compile_late(r"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z))", re.DOTALL)
_INLINE_CODE = compile_late(r"`[^`\n]+`")
_BULLET = compile_late(r"^(?:[-*+•]|\d{1,3}[.)])\s+")
_INDENTED = compile_late(r"(?: {4}|\t)\s*\S")
# The end of a sentence before another one: not in 3.11, in app.py or before a lower-case letter. Chinese and Japanese
# use no space.
_END = compile_late(r"(?<=[.!?…])[\"')\]”’»]*\s+(?=[\"'(\[“‘«`]*[^\W_a-z])|(?<=[。！？])[」』”’]?\s*")
_ABBREVIATION = compile_late(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|approx|no|nr|fig|dr|mr|mrs|ms|st|bzw|ca|[a-z])\.)\s*$", re.IGNORECASE
)
_ABBREVIATION_CHARACTERS = 12  # length of the longest abbreviation


def split_sentences(text: str) -> list[str]:
    """Return the sentences in order. A code block counts as one sentence."""
    found: list[str] = []
    for number, part in enumerate(_FENCED.split(text)):
        if number % 2:
            found.append(part.strip())
        else:
            for paragraph in _split_paragraphs(part):
                found += _split_paragraph(paragraph)
    return [sentence for sentence in found if any(c.isalnum() for c in sentence)]


def take_beginning(text: str, length: int) -> str:
    """Return at most `length` characters, up to the last whole word."""
    return text if len(text) <= length else (text[:length].rsplit(maxsplit=1) or [""])[0]


def _split_paragraphs(text: str) -> Iterator[str]:
    """Yield each line, together with the lines below it that are indented like code."""
    block: list[str] = []
    for line in text.splitlines():
        if block and _INDENTED.match(line):
            block.append(line.rstrip())
            continue
        yield from ("\n".join(block),) if block else ()
        block = [_BULLET.sub("", line.strip(), count=1)] if line.strip() else []
    yield from ("\n".join(block),) if block else ()


def _split_paragraph(paragraph: str) -> list[str]:
    if "\n" in paragraph:
        return [paragraph]
    masked = _INLINE_CODE.sub(lambda code: "x" * len(code[0]), paragraph)
    parts: list[str] = []
    start = 0
    for end in _END.finditer(masked):
        # Look only at the end, because a text of abbreviations would take quadratic time.
        if not _ABBREVIATION.search(masked[max(start, end.start() - _ABBREVIATION_CHARACTERS) : end.start()]):
            parts.append(paragraph[start : end.end()].strip())
            start = end.end()
    return [part for part in (*parts, paragraph[start:].strip()) if part]


# A fence may follow the marks of quotes and lists. The info string after backticks contains no backticks, otherwise it
# would be inline code.
_FENCE = compile_late(
    r"^(?P<quote>(?:[ \t]{0,80}>)*)(?P<indent>[ \t]*)(?P<item>(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
    r"(?:(?P<ticks>`{3,})(?P<info>[^`\n]*)|(?P<tildes>~{3,})(?P<words>[^\n]*))$",
    re.MULTILINE,
)
_PARAGRAPH_BREAK = compile_late(r"\n\s*\n")
_QUOTE = compile_late(r"^(?:[ \t]{0,80}>)+[ ]?", re.MULTILINE)
# Info strings of program output.
_OUTPUT = compile_late(
    r"(?:ansi|console|logs?|nohighlight|none|output|plain|plaintext|stderr|stdout|terminal|text|txt"
    r"|traceback|tree)(?:\s|$)",
    re.IGNORECASE,
)


class CodeBlock(Value):
    """A code block. `info` is the text after the opening fence."""

    info: str
    text: str

    @property
    def is_output(self) -> bool:
        return bool(_OUTPUT.match(self.info))


def has_block(text: str) -> bool:
    """Return whether a text has fences. This is far faster than searching for a whole block."""
    return "```" in text or "~~~" in text


def list_blocks(text: str) -> list[CodeBlock]:
    """Return the non-empty code blocks in order. The last one may have no closing fence."""
    return [block for block, _, _ in _iter_blocks(text) if block is not None]


def remove_blocks(text: str) -> str:
    return "\n".join(_list_prose(text, [(start, end) for _, start, end in _iter_blocks(text)]))


def list_block_surroundings(text: str) -> list[str]:
    """Return what is said around each block of `list_blocks`: two paragraphs before it, and the one after it.

    A single paragraph between two blocks belongs to the next block.
    """
    prose = _list_prose(text, [(start, end) for block, start, end in _iter_blocks(text) if block is not None])
    parts = [[part for part in _PARAGRAPH_BREAK.split(each) if part.strip()] for each in prose]
    last = len(parts) - 1
    return [
        "\n".join((*before[-2:], *(after[:1] if number == last or len(after) > 1 else ())))
        for number, (before, after) in enumerate(pairwise(parts), 1)
    ]


def _iter_blocks(text: str) -> Iterator[tuple[CodeBlock | None, int, int]]:
    """Yield each block with its start and end in the text, and None for an empty block."""
    if not has_block(text):
        return
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif _is_closing(fence, opening):
            yield _read_block(opening, text[opening.end() : fence.start()]), opening.start(), fence.end()
            opening = None
    if opening is not None:
        yield _read_block(opening, text[opening.end() :]), opening.start(), len(text)


def _list_prose(text: str, blocks: Sequence[tuple[int, int]]) -> list[str]:
    """Return the texts before, between and after the blocks."""
    starts, ends = [0, *(end for _, end in blocks)], [*(start for start, _ in blocks), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _is_closing(fence: re.Match[str], opening: re.Match[str]) -> bool:
    sign, began = _get_sign(fence), _get_sign(opening)
    after = fence["info"] or fence["words"] or ""
    return sign[0] == began[0] and len(sign) >= len(began) and not after.strip() and not fence["item"]


def _get_sign(fence: re.Match[str]) -> str:
    return fence["ticks"] or fence["tildes"]


def _read_block(opening: re.Match[str], body: str) -> CodeBlock | None:
    body = body.removeprefix("\n")
    if opening["quote"]:
        body = _QUOTE.sub("", body)
    width = len(opening["indent"].expandtabs(4)) + len(opening["item"] or "")
    lines = [_outdent(line, width) for line in body.split("\n")]
    code = "\n".join(lines).strip("\n").rstrip()
    return CodeBlock((opening["info"] or opening["words"] or "").strip(), code) if code.strip() else None


def _outdent(line: str, width: int) -> str:
    """Remove the whitespace that only shows the depth of the block in a list."""
    removed = 0
    while removed < width and line[:1] in (" ", "\t"):
        removed += 4 if line[0] == "\t" else 1
        line = line[1:]
    return line


# Each form has words of which at least one must occur. Searching for them first is many times faster.
Ways = tuple[tuple[tuple[str, ...], str], ...]

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

_NOT = r"(?:n['\u2019]t| not)"

_DECISIONS: Ways = (
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
        r"\b(?:it|this|that|which) (?:was|is|has been|had been) (?:now )?(?:decided|agreed|settled)\b",
    ),
    (("ll ", " will ", "going to"), rf"\b{_WHO}{_WILL} (?:now )?{_CHOOSE}\b"),
    (
        ("going with", "sticking with", "staying with"),
        r"\b(?:we|i|you)(?:['\u2019]re| are|['\u2019]m| am)? (?:now )?(?:going|sticking|staying) with\b",
    ),
    (("going with",), r"(?:^|[.!\n:;,>*-] ?)(?:ok(?:ay)?,? )?going with\b"),
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
    (("agreed",), r"(?:^|[.!\n] ?)agreed[,.!:] (?:we|let|i|use|go|the)"),
    (
        ("instead of", "rather than", "in place of", "and not"),
        rf"\b(?:we|i|you)(?:['\u2019](?:ll|ve|re|d)| will| should| now| have| are)?"
        rf"(?: now| always| only| going to)? {_DO}\b[^.!?\n]{{1,120}}?\b{_THAN}\b",
    ),
    (
        ("instead of", "rather than", "in place of", "and not"),
        r"(?:^|(?<=[.!\n] )|(?<=\n)|(?<=[*-] )|(?<=, )|(?<=so ))"
        r"(?:please )?(?:use|take|keep|go with|choose|pick|prefer|store|put)\b"
        rf"[^.!?\n]{{1,120}}?\b{_THAN}\b",
    ),
    (
        ("instead of", "rather than"),
        # One name instead of another, and nothing more in the sentence.
        r"(?:^|(?<=[.!?\n] )|(?<=\n)|(?<=[*-] ))(?:ok(?:ay)?[,:] |so[,:]? )?"
        r"(?!(?-i:It|This|That|They|He|She|Nothing|Something)\b)(?-i:[A-Z])[\w.+#-]{1,30}"
        r"(?: (?!None|True|False|NaN)(?-i:[A-Z])[\w.+#-]{0,30})? (?:instead of|rather than) "
        r"[\w+#-][\w .+#-]{0,40}(?=[.!](?:\s|$)|\n|$)",
    ),
    ((" over ",), r"\b(?:chose|choose|picked|prefer(?:red)?|selected) [^.!?\n]{1,80}? over\b"),
    (("from now on",), r"\bfrom now on,? (?:we|i|you|all|every|use|no|always|never|only|it|the)\b"),
    (("choice",), r"\b(?:the|our) choice (?:is|was|fell)\b"),
    (("decision",), r"\b(?:we|i)(?:['\u2019]ve| have) (?:made|taken) (?:the|a|our) (?:final )?decision\b"),
    (("settled on", "opted for"), r"\b(?:settled on|opted for)\b"),
)
_PROBLEMS: Ways = (
    (("traceback (",), r"Traceback \(most recent call last\)"),
    (("error", "exception", "fault"), r"\b(?-i:[A-Z])\w*(?-i:Error|Exception|Fault)\b(?=[:(\n]|$| at | in )"),
    (("fatal", "error", "panic", "err!"), r"(?m:^[ \t>*-]*(?:fatal|error|panic|err!)(?:\[\w+\])?:)"),
    (
        ("error", "exception"),
        r"\b(?:an?|the|this|that|same|following|some|weird|strange|get|gets|getting|got|throws?|"
        r"threw|raises?|raised|unhandled|uncaught|syntax|type|runtime|build|compile|compiler|"
        r"import|internal server) (?:errors?|exceptions?)\b(?! (?:of|for|handl|class|type|code|page))",
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
    (("cannot",), r"\bcannot (?:find|open|read|import|resolve|connect|load|run|start|build)\b"),
    (("broken", "stuck", "failing"), r"\b(?:is|are|seems?|looks|completely|still|got) (?:broken|stuck|failing)\b"),
    (("exit", "return"), r"\b(?:exit(?:ed with)?|return(?:ed)?) (?:code|status):? ?[1-9]"),
    (("bug", "leak", "race"), r"\b(?:bug|memory leak|race condition)\b(?! ?-?(?:fix|report|tracker|free))"),
    (("failed", "failure", "error"), r"\b[1-9]\d* (?:failed|failures?|errors?)\b"),
)
_FIXES: Ways = (
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
    (("now ",), r"\bnow (?:passes|pass|works?|succeeds?|compiles|builds|runs|starts|returns|loads)\b"),
    (
        (" now", " again", " correctly"),
        r"\b(?:works|working|passes|passing|green|compiles|builds|runs) (?:now|again|correctly)\b",
    ),
    (("all ",), r"\ball (?:\d+ )?(?:the )?(?:tests|checks|specs) (?:are )?(?:now )?(?:pass|passed|passing|green)\b"),
    (("cause",), r"\bcause (?:was|is|of (?:this|that|the|it))\b"),
    (("the fix", "solution", "culprit"), r"\bthe (?:fix|solution|culprit) (?:is|was)\b"),
    (
        ("problem", "issue", "bug", "error"),
        r"\bthe (?:problem|issue|bug|error) (?:was|came from|is (?:that|because))\b",
    ),
    (("turn",), r"\bturn(?:s|ed) out (?:that|to|the)\b"),
    (("that did", "no longer"), r"\bthat did (?:it|the trick)\b|\bno longer (?:fails|crashes|hangs|happens|occurs)\b"),
)
# Words before the phrase that make the sentence a question, a wish or a thought.
_UNDECIDED = compile_late(
    r"\b(?:if|unless|whether|suppose|supposing|imagine|assuming|maybe|perhaps|might|may|could|would|"
    r"should we|shall we|can we|do we|did we|have we|are we|what if|why|how|when|once|until|before|"
    r"not sure|haven['\u2019]t|hasn['\u2019]t|have not|had not|has not|hadn['\u2019]t|never|nobody|"
    r"not yet|didn['\u2019]t|did not|wasn['\u2019]t|isn['\u2019]t|don['\u2019]t think|example|e\.g\.)(?!\w)",
    re.IGNORECASE,
)
# Words shortly before the phrase that negate it.
_NO_PROBLEM = compile_late(
    r"\b(?:no|without|any|zero|0|if|unless|never|when|case|whether|avoid|avoids|prevent|prevents|"
    r"should|must|not|n['\u2019]t|handle|handles|handling|on)(?:[ \t]+[\w-]+){0,3}[ \t]*$",
    re.IGNORECASE,
)
_NO_FIX = compile_late(
    r"\b(?:not|n['\u2019]t|never|if|once|when|until|unless|whether|to|must|might|maybe|perhaps|"
    r"could|is|needs?)(?:[ \t]+[\w-]+){0,3}[ \t]*$",
    re.IGNORECASE,
)
_INLINE = compile_late(r"`[^`\n]{1,300}`")
_QUOTED = compile_late(r"\"[^\"\n]{1,300}\"|\u201c[^\u201d\n]{1,300}\u201d|\u00ab[^\u00bb\n]{1,300}\u00bb")
_QUOTED_LINE = compile_late(r"^[ \t]*>.*$", re.MULTILINE)
_ENDS = compile_late(r"[.!?;](?=\s|$)|\n")
_NEAR_CHARACTERS = 400  # searched on each side within a sentence


@cache
def _compile_form(form: str) -> re.Pattern[str]:
    """Compile the form on first use, because compiling all of them takes longer than a hook has."""
    return re.compile(form, re.IGNORECASE)


class _Phrases:
    """Phrases with one meaning. `undone` matches words before a phrase that negate it."""

    def __init__(self, ways: Ways, undone: re.Pattern[str]) -> None:
        self._ways = ways
        self._undone = undone

    def list_possible(self, text: str) -> list[re.Pattern[str]]:
        lowered = text.lower()
        return [_compile_form(form) for words, form in self._ways if any(word in lowered for word in words)]

    def is_said_in(self, text: str, *, asked: bool = False) -> bool:
        """Return whether the text has one of the phrases. Pass `asked` to include questions."""
        return any(
            not self._undone.search(_get_text_before(text, found)) and (asked or not _is_asked(text, found))
            for form in self.list_possible(text)
            for found in form.finditer(text)
        )


_DECISION_PHRASES = _Phrases(_DECISIONS, _UNDECIDED)
_PROBLEM_PHRASES = _Phrases(_PROBLEMS, _NO_PROBLEM)
_FIX_PHRASES = _Phrases(_FIXES, _NO_FIX)


def is_decision(text: str) -> bool:
    """Return whether the text states a decision that is not a question, a thought or a quotation."""
    return bool(_DECISION_PHRASES.list_possible(text)) and _DECISION_PHRASES.is_said_in(_remove_quotes(text))


def has_problem(text: str) -> bool:
    """Return whether the text says that something fails, in the words of a person or a program."""
    return _PROBLEM_PHRASES.is_said_in(text, asked=True)


def has_fix(text: str) -> bool:
    """Return whether the text says that something was fixed, or names the cause of a problem."""
    return bool(_FIX_PHRASES.list_possible(text)) and _FIX_PHRASES.is_said_in(remove_blocks(text))


def _remove_quotes(text: str) -> str:
    said = remove_blocks(text)
    if "`" in said:
        said = _INLINE.sub("it", said)
    if ">" in said:
        said = _QUOTED_LINE.sub("", said)
    return _QUOTED.sub("it", said)


def _get_text_before(text: str, found: re.Match[str]) -> str:
    """Return the part of the sentence before the match."""
    start = max(0, found.start() - _NEAR_CHARACTERS)
    ends = [end.end() for end in _ENDS.finditer(text, start, found.start())]
    return text[ends[-1] if ends else start : found.start()]


def _is_asked(text: str, found: re.Match[str]) -> bool:
    end = _ENDS.search(text, max(found.start(), found.end() - 1), found.end() + _NEAR_CHARACTERS)
    return end is not None and end.group() == "?"
