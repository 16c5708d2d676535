"""Text for an assistant: marked as data in a fence that it cannot close, with an estimate of its tokens."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil
from operator import itemgetter

from everkept.core.text import blake2b
from everkept.patterns import compile_late

_MARK_DIGITS = 6

# Characters that people do not see but a model reads: those that Unicode lets programs ignore, such as text directions,
# variation selectors, fillers and tags. The two joiners are kept, because scripts and emoji need them.
_INVISIBLE = compile_late(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = compile_late("[\u200c\u200d]+")
_CONTROLS = dict.fromkeys([*range(0x20), 0x7F], " ")
_WHITESPACE = compile_late(r"[\s\x00-\x1f\x7f-\x9f]+")
_SPEAKERS = "memor|conversation|system|assistant|human|user|developer|instruction|prompt|tool|function|antml|im_"
# Closing tags, comments, and tags that name a speaker.
_MARKUP = compile_late(rf"<(?=\s*(?:[/!?|]|{_SPEAKERS}))", re.IGNORECASE)
# Tags that fetch something or hide what follows, tags with attributes (which can make any tag do so), and addresses.
_FETCHING_TAGS = (
    "img|image|picture|source|video|audio|track|i?frame|embed|object|link|script|style|svg|math"
    "|input|base|meta|form|portal|plaintext|textarea|title|xmp|noembed|noframes|noscript|template"
)
_TAG = compile_late(rf"<(?=(?:{_FETCHING_TAGS})\b|[a-z][\w.+-]*(?:[\s/]|:(?!:)|$))", re.IGNORECASE)
# Unlike in List<int>, a tag that is separate from a name may start HTML in Markdown.
_OPENING = compile_late(r"(?<!\w)<(?=[a-z/!?])", re.IGNORECASE)
# What turns words in brackets into an image or a link, here or in a definition.
_LINK = compile_late(r"!(?=\[)|\](?=\()")
_DEFINITION = compile_late(r"\](?=:)")
# In code, a closing tag is still a closing tag.
_SPEAKER = compile_late(rf"<(?=\s*(?:\||/?\s*(?:{_SPEAKERS})))", re.IGNORECASE)
_CONTROL = compile_late(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BACKTICKS = compile_late("`+")
_NO_LANGUAGE = compile_late(r"[^\w+#.-]")
_CODE_FENCE = compile_late(r"`{3,}|~{3,}")
_FENCE_LINE = compile_late(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = compile_late(r"(?:^#|(?<=\s)##)#*(?=\s|$)")
_LEADING = compile_late(r"^(?=[-+*>=_|:]|\d+[.)]|\[[^\]]*\]:)")


def as_data(text: str) -> str:
    """Return the text on one line, without anything that Markdown or a model could read as structure.

    A program that renders Markdown fetches nothing because of it.
    """
    line = _neutralize_line(_join_lines(text))
    if "```" in line or "~~~" in line:
        line = _CODE_FENCE.sub("''", line)
    if "#" in line:
        line = _HEADING.sub(lambda found: "＃" * len(found[0]), line)
    return _LEADING.sub(r"\\", line)


def as_quotation(text: str) -> str:
    """Return the text with its lines, each quoted.

    Images, links and HTML do nothing; code blocks stay unchanged.
    """
    lines = _neutralize_lines(sanitize_text(text).split("\n"))
    return "\n".join(f"> {line}".rstrip() for line in lines)


def as_code(text: str, language: str | None = None) -> str:
    """Return the text as a code block whose fence is longer than any fence in it."""
    code = sanitize_text(text)
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(code)), default=0))
    return f"{fence}{_NO_LANGUAGE.sub('', language or '')}\n{code}\n{fence}"


def _neutralize_lines(lines: Iterable[str]) -> Iterator[str]:
    """Find code blocks. Only a fence at the beginning of its line and outside a list opens one, because all programs
    agree on those.
    """
    fence = ""
    for line in lines:
        found = _FENCE_LINE.fullmatch(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
            yield line
        elif found:
            fence = found[1]
            yield line.lstrip()
        else:
            text = _OPENING.sub("‹", _CODE_FENCE.sub("''", line))
            yield _DEFINITION.sub("] ", _neutralize_line(text))


def _join_lines(text: str) -> str:
    """Remove hidden characters, and put single spaces between words."""
    if text.isascii():  # quicker, and nothing is hidden in it
        return " ".join((text if text.isprintable() else text.translate(_CONTROLS)).split())
    line = _JOINERS.sub(_keep_joiner, _INVISIBLE.sub("", text))
    return _WHITESPACE.sub(" ", line).strip()


def _neutralize_line(line: str) -> str:
    """Remove markup, images and links."""
    if "<" in line:
        line = _TAG.sub("‹", _MARKUP.sub("‹", line))
    return _LINK.sub(r"\g<0> ", line) if "[" in line or "](" in line else line


def sanitize_text(text: str) -> str:
    """Keep only line feeds, and remove hidden characters and speaker tags."""
    lines = _JOINERS.sub(_keep_joiner, _INVISIBLE.sub("", text)).splitlines()
    return _SPEAKER.sub("‹", "\n".join(_CONTROL.sub(" ", line).rstrip() for line in lines))


def _keep_joiner(found: re.Match[str]) -> str:
    """Keep one joiner between two letters of a script that needs it. Others carry hidden text."""
    text, (start, end) = found.string, found.span()
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    joins = end - start == 1 and before > "\x7f" and after > "\x7f"
    return found[0] if joins else ""


def wrap_in_fence(body: str, notice: str, tag: str) -> str:
    """Return the notice and the body between two tags whose number depends on the body.

    A stored text cannot close it, because `as_data` breaks tags and the number is known only at the end. The number
    consists of digits, so the frame has the same token count for every body.
    """
    mark = blake2b(body.encode("utf-8"), digest_size=8).digest()
    number = str(int.from_bytes(mark, "big"))[-_MARK_DIGITS:].zfill(_MARK_DIGITS)
    return f"{notice}\n<{tag}-{number}>\n{body}</{tag}-{number}>"


_CACHED_WORDS = 8_192  # words with a cached token count
_MAX_CACHED_CHARACTERS = 128  # characters of such a word
_SHORT_WORD_CHARACTERS = 4  # letters; nearly every vocabulary has such words as one token

# Minimum characters of one token in such a stretch. If vocabularies differ too much, one token counts as a single byte
# of UTF-8, the lower limit.
_CHARACTERS_PER_TOKEN = {
    "word": 3.0,
    "hump": 3.0,
    "crowded": 1.5,
    "capitals": 4 / 3,
    "digits": 2.0,
    "blanks": 8.0,
    "ones": 1.0,
}
# From each of these code points on, the tokens of one character. Other characters beyond ASCII count one token for each
# byte.
_TOKENS_PER_CHARACTER = (
    ("\u0080", 2),
    ("\u0430", 1),  # Cyrillic
    ("\u0450", 2),
    ("\u0800", 3),
    ("\u0900", 2),  # Devanagari
    ("\u0980", 3),
    ("\u0e00", 2),  # Thai
    ("\u0e80", 3),
    ("\u2010", 2),  # dashes and quotes
    ("\u2028", 3),
    ("\u3000", 2),  # kana
    ("\u3100", 3),
    ("\u4e00", 2),  # Han
    ("\ua000", 3),
    ("\uac00", 2),  # Hangul
    ("\ud7a4", 3),
    ("\uff00", 2),  # wide and narrow forms
    ("\ufff0", 3),
    ("\U00010000", 4),
    ("\U0001f300", 3),  # emoji
    ("\U0001fb00", 4),
)
_CONSONANT = "[b-df-hj-np-tv-xz]"
_STRETCHES = compile_late(
    rf"(?P<hump>(?<=[A-Za-z0-9])[A-Z](?:(?!{_CONSONANT}{{4}})[a-z])+)"  # such as in getName or in a key
    # A space before a letter is part of the letter's token.
    rf"|[ ]?(?:(?P<word>[A-Z]?(?:(?!{_CONSONANT}{{4}})[a-z])+)"
    rf"|(?P<crowded>{_CONSONANT}{{4,}})"  # not a word of any language: a key or a hash
    r"|(?P<capitals>[A-Z]+))"
    r"|(?P<digits>[0-9]+)"
    r"|(?P<blanks>[ ]+|\t+|[\r\n]+)"
    r"|(?P<ones>[\x00-\x7f])"  # the rest of ASCII
    # Compiling this as a character class would take a hook longer than its whole answer.
    r"|(?P<beyond>[^\x00-\x7f]+)"
)


def count_tokens(text: str) -> int:
    """Return an upper estimate of the tokens in common vocabularies; 0 only for the empty text.

    Compared with cl100k, o200k and a published Claude vocabulary, whichever counts most. English prose and code are 1.4
    to 1.8 times too high, other European languages 1.0 to 1.5. Chinese, Japanese and Russian are twice too high,
    base64, hashes and digits 1.0 to 1.2. The margin allows for vocabularies with shorter tokens. The estimate
    is too low, by up to a fifth, only for random lowercase letters and for rows of rare Chinese or Korean characters.
    """
    # No stretch crosses a single space, so words are counted one by one, and each only once.
    first, *rest = words = text.split(" ")
    if "" in rest or max(map(len, words)) > _MAX_CACHED_CHARACTERS:
        return _sum_tokens(text)  # spaces in a row count together, and long words are not cached
    return _count_word(first) + sum(map(_count_next_word, rest))


def _sum_tokens(text: str) -> int:
    return sum(_count_stretch(found) for found in _STRETCHES.finditer(text))


_count_word = lru_cache(_CACHED_WORDS)(_sum_tokens)


@lru_cache(_CACHED_WORDS)
def _count_next_word(word: str) -> int:
    """Return the tokens of a word with the space before it."""
    return _sum_tokens(f" {word}")


def _count_stretch(stretch: re.Match[str]) -> int:
    kind = stretch.lastgroup or ""
    if kind == "beyond":
        return sum(map(_count_character, stretch[0]))
    length = len(stretch[kind])
    if kind == "word" and length <= _SHORT_WORD_CHARACTERS:
        return 1
    return max(ceil(length / _CHARACTERS_PER_TOKEN[kind]), 2 if kind == "hump" else 1)


@lru_cache(_CACHED_WORDS)
def _count_character(character: str) -> int:
    return _TOKENS_PER_CHARACTER[bisect_right(_TOKENS_PER_CHARACTER, character, key=itemgetter(0)) - 1][1]
