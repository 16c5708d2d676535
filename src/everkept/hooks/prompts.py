"""Analysis of a prompt before any store is opened: what it asks for, and whether a search would help."""

import re
from typing import Literal, NamedTuple

from everkept.language.past_forms import OVERVIEW, PastTrigger, find_trigger, list_foreign_indicators, list_indicators
from everkept.language.telling_words import TellingWord, find_telling_words

# Only the beginning and the end of a longer prompt are read. People state their request before or after a pasted log,
# and most programs print the failure last.
HEAD_CHARACTERS, TAIL_CHARACTERS = 2_500, 1_500
MIN_WORDS = 3  # content words that a prompt needs if nothing in it hints at the past
MIN_HINTED_WORDS = 2  # if something in it hints at the past
MIN_TOPIC_WORDS = 2  # with fewer, the rest of the prompt says more about the topic

# Words that say when something was said, not what.
_LAST_TALK = r"(?i)\b(?:last|previous) (?:session|conversation|chat|discussion|talk|meeting)\b"
# Texts that a program writes in the user's name, and commands to the program.
_NON_PROMPT_PREFIXES = ("<command-", "<local-command", "<task-notification", "<bash-", "!")


class ParsedPrompt(NamedTuple):
    """Prompt that may be answered, and its content words.

    If the prompt asks for the past, `words` are those of its topic and `around` are all its words. If it asks for
    everything recent, `words` is empty. `error_lines` are the normalized lines with an error.
    """

    prompt: str
    words: tuple[TellingWord, ...]
    around: tuple[TellingWord, ...] = ()
    trigger: PastTrigger | None = None
    has_indicator: bool = False
    is_debugging: bool = False
    error: tuple[TellingWord, ...] = ()
    error_lines: tuple[str, ...] = ()
    is_foreign: bool = False


def parse_prompt(prompt: str) -> ParsedPrompt | None:
    """Parse a prompt. Return None if it says too little, such as `yes` or `/clear`."""
    text = shorten_prompt(prompt)
    if not text or _is_command(text):
        return None
    words = find_telling_words(text)
    if trigger := find_trigger(text):
        return _parse_triggered(text, trigger, words)
    if len(words) < MIN_HINTED_WORDS:
        return None
    hints, foreign = list_indicators(text), list_foreign_indicators(text)
    debugs = is_debugging(text)
    lines = extract_error_lines(text) if debugs else ()
    if len(words) < MIN_WORDS and not (hints or foreign or lines):
        return None
    return ParsedPrompt(
        text,
        words,
        has_indicator=bool(hints or foreign),
        is_debugging=debugs,
        error=extract_error_words(text) if debugs else (),
        error_lines=lines,
        is_foreign=bool(foreign),
    )


def shorten_prompt(prompt: str) -> str:
    """Return the part of a prompt that is read."""
    if len(prompt) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return prompt.strip()
    return f"{prompt[:HEAD_CHARACTERS].strip()}\n{prompt[-TAIL_CHARACTERS:].strip()}"


def _parse_triggered(text: str, trigger: PastTrigger, words: tuple[TellingWord, ...]) -> ParsedPrompt | None:
    if trigger.wanted == OVERVIEW:
        return ParsedPrompt(text, (), (), trigger)
    topic = _select_topic_words(trigger, find_telling_words(re.sub(_LAST_TALK, " ", text)))
    return ParsedPrompt(text, topic, words, trigger, is_foreign=trigger.is_foreign) if topic else None


def _is_command(text: str) -> bool:
    """Return whether the text is a command to the assistant's program. A path is not a command."""
    first = text.split(maxsplit=1)[0]
    return text.startswith(_NON_PROMPT_PREFIXES) or (first.startswith("/") and first.count("/") == 1)


def _select_topic_words(trigger: PastTrigger, around: tuple[TellingWord, ...]) -> tuple[TellingWord, ...]:
    words = find_telling_words(trigger.topic)
    if len(words) < MIN_TOPIC_WORDS:
        words = tuple(dict.fromkeys((*words, *around)))
    return words or find_telling_words(trigger.topic, commonplace=True)


SuggestionReason = Literal["similar work", "how to", "similar error", "related feature"]

MIN_WORK_SIMILARITY = 0.7
MIN_COMPLEXITY = 0.5
MIN_ERROR_SIMILARITY = 0.6
MIN_DOMAIN_OVERLAP = 0.5

LONG_PROMPT_WORDS = 40  # prompts of this length or more get the full points for length
MAX_ERROR_WORDS = 16
MAX_ERROR_CHARACTERS = 300  # read of each line
MIN_ERROR_CHARACTERS = 16  # a shorter line does not identify an error
MIN_ERROR_WORDS = 2
MAX_ERROR_LINES = 6


class PromptSignals(NamedTuple):
    """Measurements of a prompt; every number is between 0 and 1.

    - `similarity_to_past`: the share of its content words that one passage of a past record has.
      Rare words count more, and a prompt of few words counts less: three common words occur in any text.
      A word that no record has counts against it like the rarest words.
    - `asking_how_to`: it asks how to do something, or for the best way to do it.
    - `complexity`: its amount of content: length, code names, files and clauses.
    - `debugging`: it reports an error or a failure, or asks why something does not work.
    - `error_similarity`: like `similarity_to_past`, over the words of the error and past records with a failure;
      1 if a record has the same line.
    - `new_feature`: it asks for something new.
    - `domain_overlap`: like `similarity_to_past`, over all passages of this project's past together that
      have at least two of the words.
    """

    similarity_to_past: float = 0.0
    asking_how_to: bool = False
    complexity: float = 0.0
    debugging: bool = False
    error_similarity: float = 0.0
    new_feature: bool = False
    domain_overlap: float = 0.0


def find_reason(signals: PromptSignals) -> SuggestionReason | None:

    if signals.debugging and signals.error_similarity > MIN_ERROR_SIMILARITY:
        return "similar error"
    if signals.similarity_to_past > MIN_WORK_SIMILARITY:
        return "similar work"
    if signals.asking_how_to and signals.complexity > MIN_COMPLEXITY:
        return "how to"
    if signals.new_feature and signals.domain_overlap > MIN_DOMAIN_OVERLAP:
        return "related feature"
    return None


def is_how_to(prompt: str) -> bool:
    """Return whether a prompt asks how to do something: `how do I …`, `how to …`, but not `how are you`."""
    lowered = prompt.lower()
    return ("how" in lowered or "way" in lowered) and _matches(
        r"\bhow (?:do|can|could|should|would|might|shall|must) (?:i|we|you|one)\b"
        r"|\bhow to \w+|\bhow (?:is|are|does|do) [^.?!\n]{1,80} (?:work|works|implemented|handled"
        r"|done|built|configured|wired|set up)\b"
        r"|\b(?:best|right|cleanest|simplest|proper|recommended|idiomatic|easiest) way (?:to|of)\b"
        r"|\bwhat(?:'s| is| would be) the way (?:to|of)\b|\bshow me how\b|\bany idea how\b",
        prompt,
    )


def is_debugging(prompt: str) -> bool:
    """Return whether a prompt shows an error or a failure, or asks why something does not work."""
    lowered = prompt.lower()
    has_failure_word = any(word in lowered for word in _FAILURE_STEMS)
    return has_failure_word and (bool(_select_error_lines(prompt)) or _matches(_FAILING, prompt))


def is_feature_request(prompt: str) -> bool:
    """Return whether a prompt asks to add, build or support something, not to fix, rename or explain it."""
    return _matches(
        r"(?:^|[.!?\n][^\S\n]*+|\b(?:please|to|let's|let us|can you|could you|and|then|now|should)\s+)"
        r"(?:implement|build|create|introduce|develop|scaffold|support|design|add)"
        r"\s+(?:me\s+|us\s+)?(?:a|an|another|the|some|new|support|(?!it\b|this\b|that\b|them\b"
        r"|sure\b|these\b|those\b)\w+)\s+\w"
        r"|\bnew (?:feature|endpoint|page|command|screen|module|service|api|component|option"
        r"|flag|tool|integration|importer|exporter|job|worker|table|form)\b",
        prompt,
    ) and not _matches(r"^\W*(?:why|what|where|who|when|which|is|are|does|do|did)\b", prompt)


def compute_complexity(prompt: str) -> float:
    """Return the complexity, 0 to 1: up to 0.4 for length and 0.3 each for code names, files and clauses."""
    words = prompt.split()
    bare = [word.strip("`'\"()[]{}<>,;:!?.") for word in words]
    files = sum(_is_file(word) for word in bare)
    names = sum(_is_name(word) for word in bare) - files
    clauses = len(re.findall(_CLAUSE, prompt, re.IGNORECASE))
    return min(
        1.0,
        0.4 * min(len(words) / LONG_PROMPT_WORDS, 1)
        + 0.1 * min(max(names, 0), 3)
        + 0.15 * min(files, 2)
        + 0.1 * min(clauses, 3),
    )


def extract_error_words(prompt: str) -> tuple[TellingWord, ...]:
    """Return the content words of error lines, otherwise of sentences about a failure, without numbers and paths."""
    lines = _select_error_lines(prompt) or [
        sentence for sentence in re.split(r"[.?!]\s|\n", prompt) if _matches(_FAILING, sentence)
    ]
    read = [re.sub(_LOCATION, " ", line[:MAX_ERROR_CHARACTERS]) for line in lines[-MAX_ERROR_LINES:]]
    words = find_telling_words("\n".join(read))
    return tuple(word for word in words if not word.text[0].isdigit())[:MAX_ERROR_WORDS]


def extract_error_lines(prompt: str) -> tuple[str, ...]:
    """Return the normalized lines that identify an error, from its name on. Omit lines of code that raise one."""
    sign = re.compile(_ERROR_LINE, re.MULTILINE)
    lines = [line for line in _select_error_lines(prompt) if not re.match(_CODE, line)]
    found = [match for line in lines[-MAX_ERROR_LINES:] if (match := sign.search(line))]
    said = [match.string[match.start() :][:MAX_ERROR_CHARACTERS] for match in found]
    telling = [line for line in said if len(find_telling_words(line)) >= MIN_ERROR_WORDS]
    plain = [line for line in map(normalize_error, telling) if len(line) >= MIN_ERROR_CHARACTERS]
    return tuple(dict.fromkeys(plain))


def normalize_error(text: str) -> str:
    """Return the text without parts that differ when the same error occurs again: addresses, line numbers, quotes."""
    return " ".join(re.sub(r"0x[0-9a-f]+|\bline \d+|['\"`]", "", text.lower()).split())


# Patterns are strings, compiled only when a prompt needs them. A prompt without one of these words needs none.
_FAILURE_WORDS = """
    error exception err_ fail crash fault panic fatal debug trace deadlock regression time leak
    hang flaky broken n't not unable why bug exit status http denied refused such unexpected memory
"""
_FAILURE_STEMS = tuple(_FAILURE_WORDS.split())
_FAILING = (
    r"\b(?:debug(?:ging)?|stack ?trace|traceback|crash(?:es|ed|ing)?|segfaults?|deadlocks?"
    r"|regression|timed out|times out|time ?outs?|hangs|flaky|broken|leak(?:s|ing)?)\b"
    r"|\b(?:fails?|failed|failing)\b"
    r"|\b(?:does|do|did|is|are|was|wo|ca|could)(?:n't| not) (?:work|start|compile|build|load"
    r"|run|connect|respond|pass|find|open|resolve)(?:ing)?\b"
    r"|\b(?:cannot|unable to) \w+|\bwhy (?:is|are|does|do|did|am|isn't|doesn't|don't) "
    r"[^.?!\n]{0,80}(?:not|n't|error|wrong|slow|empty|missing|null|none|undefined|nan)\b"
    r"|\b(?:an?|this|that|same|following|weird|strange|get|gets|getting|got|throws?|raises?)"
    r" (?:errors?|exceptions?)\b(?! (?:page|handl|class|type|boundar|state|screen))"
    r"|\b(?:a|the|this|that|weird) bug\b"
    r"|\b(?:access|permission) denied\b|\b(?:connection|access) (?:was )?(?:refused|reset)\b"
    r"|\bno such (?:file|table|column|module|host|command|directory)\b|\bout of memory\b"
    r"|\b(?:command|module|package|host) not found\b|\bunexpected (?:token|end of|indent)\b"
)
# Clauses that give a condition, an alternative or a purpose.
_CLAUSE = (
    r"\b(?:when|while|if|unless|without|because|so that|but|although|after|before|instead of"
    r"|as well as|in case|whenever|until|and then|which|where)\b|[,;]\s"
)
_CODE = r"\W*(?:raise|throws?|except|catch|import|from|class|def|return|if|new|assert)\b"
# Locations, which differ the next time.
_LOCATION = r"(?<![\w.@+-])(?:[A-Za-z]:)?(?:[\w.@+-]*+[/\\])++[\w.@+-]*+|\bline \d+|0x[0-9a-fA-F]+|\b\d[\d.:,-]*"
_ERROR_LINE = (
    r"\b[A-Za-z]\w{0,80}?(?:Error|Exception|Fault|Panic)\b|\b(?:ERR|E)_?[A-Z]{3,}\w*|\bE\d{3,}\b"
    r"|(?i:^[^\w\n]*(?:error|fatal|panic|exception|err!)\b[^\n]{0,20}:)|(?i:\berror: )"
    r"|(?i:\b(?:exit (?:code|status)|status(?: code)?|http)\W{0,3}[1-9]\d*)|\bsegmentation fault\b"
)


def _select_error_lines(prompt: str) -> list[str]:
    sign = re.compile(_ERROR_LINE, re.MULTILINE)
    return [line for line in prompt.splitlines() if sign.search(line)]


def _is_file(word: str) -> bool:
    name, dot, ending = word.rpartition(".")
    has_ending = bool(dot and name) and ending.isalnum() and ending.islower() and len(ending) <= 5
    return has_ending or (word.count("/") > 1 and "://" not in word)


def _is_name(word: str) -> bool:
    """Return whether a word is a code name: with underscores or inner capitals, or followed by a parenthesis."""
    inner = word[1:]
    has_hump = word.isidentifier() and inner != inner.lower() and inner != inner.upper()
    return has_hump or ("_" in word.strip("_") and word.isidentifier()) or word.endswith("(")


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text.replace("’", "'").lower()) is not None
