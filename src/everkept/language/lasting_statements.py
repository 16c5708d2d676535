"""Sentences in which a person states a rule, a preference or a decision that lasts beyond the conversation."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from everkept.language.sentences import is_decision, remove_blocks, split_sentences
from everkept.patterns import compile_late

StatementKind = Literal["rule", "preference", "decision"]

MIN_WORDS, MAX_CHARACTERS = 4, 300  # of one sentence; a longer one explains something

# A text without any of them states nothing lasting.
_SIGN = compile_late(
    r"(?i)\b(?:always|never|ever|prefer|preference|from now on|going forward|in future|in the future|decided|agreed|"
    r"decision|like|hate)\b"
)
_LEAD = r"^(?:(?:and|also|but|so|ok|okay|oh|please|note|remember|important|reminder|hint)\b[\s,:!—-]*)*"
# A story of the past, or of what a program does, has one of these words next.
_TELLING = (
    r"(?!\s+(?:mind|been|had|have|has|seen|saw|was|were|got|did|does|heard|noticed|understood|knew|known|thought|"
    r"\w+ed)\b)"
)
_RULES = compile_late(
    rf"(?i){_LEAD}(?:"
    rf"(?:(?:always|never){_TELLING}|(?:don['’]t|do not) ever\b|(?:from now on|going forward|in (?:the )?future)\b)"
    rf"|(?:we|you|everyone|everybody|nobody|i want you to|make sure (?:you|we)|you should|we should|you must|we must|"
    rf"(?:in|for) (?:this|our|my|the) \w+,? (?:we|you))(?: (?:should|must|can|will|to|have to|need to))?"
    rf" (?:always|never){_TELLING}"
    r")"
)
_PREFERENCES = compile_late(
    rf"(?i){_LEAD}(?:(?:in|for) [\w ]{{1,40}},? )?"
    r"(?:(?:i|we)(?:['’]d| would)?(?: (?:always|usually|generally|strongly|really|much|still))? prefer\b(?! not to say)"
    r"|my preference is\b|i (?:really )?(?:hate|dislike|don['’]t like|do not like|like) (?:it when|when|to)\b)"
)


class LastingStatement(NamedTuple):
    kind: StatementKind
    text: str


def find_statements(text: str) -> Iterator[LastingStatement]:
    """Yield the statements of a person's text in order. Code, quotations and questions state nothing."""
    if not _SIGN.search(text):
        return
    for sentence in split_sentences(remove_blocks(text)):
        said = " ".join(sentence.split())
        if said.startswith(">") or said.endswith(("?", ":")) or not len(said.split()) >= MIN_WORDS:
            continue
        if len(said) <= MAX_CHARACTERS and (kind := _classify(said)):
            yield LastingStatement(kind, said)


def _classify(sentence: str) -> StatementKind | None:
    if _RULES.search(sentence):
        return "rule"
    if _PREFERENCES.search(sentence):
        return "preference"
    return "decision" if is_decision(sentence) else None
