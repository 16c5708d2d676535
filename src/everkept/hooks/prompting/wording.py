"""What a prompt is about: its telling words, read from a bounded part of it."""

import re
from collections.abc import Set
from typing import NamedTuple

from everkept.core.compounds import parts_of
from everkept.core.folding import fold, tokens
from everkept.core.stemming import stem
from everkept.core.words import STOP_WORDS
from everkept.hooks.prompting import languages
from everkept.patterns import compile_late
from everkept.retrieval.stop_words import FOREIGN_STOP_WORDS

# Of a prompt that is longer the beginning and the end are read: who pastes a log says before or
# after it what to do with it, and most programs end with what went wrong.
HEAD, TAIL = 2_500, 1_500  # characters
MOST_WORDS = 24  # that are looked up; what has more of them is a document
LAST_WORDS = 8  # of these, from the end
LONGEST_WORD = 40  # characters; what is longer is a key or a hash
FEWEST_DIGITS = 3  # of a number that tells something, as 404 does
SHORTEST_PART = 3  # letters of a part of a name that stands for itself

# What people say to an assistant about anything. Only where somebody asks for the past by name
# are these words what is asked for.
_COMMONPLACE_WORDS = """
    able above actually add added adding again agree agreed ahead already also always another
    answer anything app apply around ask asked away back bad based before begin below best
    better big bit both break breaks broken bug bugs build built call called calls came case
    cases change changed changes changing check checked choose chose chosen clean clear code
    come command commit complete completely context continue correct correctly cover create
    created currently debug decide decided decision default define delete describe description
    details different directory discuss discussed discussion docs document documentation done
    each earlier easy edit either else end enough ensure error errors etc even every everything
    exactly example examples exist existing exists expect expected explain fail failed failing
    fails feature features few figure file files final finally find finding finds fine finish
    first fix fixed fixes fixing folder follow following forget forgot found full function
    functions further general get gets getting give given go goes going good got great guess
    handle happen happened happens hello help hey hi hope idea ideas implement implementation
    implemented implementing improve include including increase inside instead issue issues job
    just keep kind know last later least leave left less let like line lines list little logic
    long longer look looking looks lot made main make makes making many maybe mean mention
    mentioned method might mind missing modify more most move much must name names need needed
    needs never new next nice nothing notice noticed now number off ok okay old once one ones
    only open option other otherwise out output over own part pass perfect pick picked place
    plan plus point possible previous previously print problem problems project proper properly
    provide put question quick quickly quite read ready real really reason recall refactor
    related remember remove rename repo repository request respond rest result results return
    review rewrite right run running same save saw say says second see seem seems sense set
    settle settled setup several show side similar simple simply since single small solution
    solve something soon sorry start started stay stays step steps still stop stuff sure take
    talk talked task tasks test testing tests thank thanks thing things think though thought
    time times today together told tomorrow too took top total touch touched true try trying
    turn two type under understand until up update updated updating us use used useful user
    uses using usual usually value version via wait want wants way ways week well went whatever
    whether whole within without word words work worked working works write writing written
    wrong yeah yes yesterday yet
"""
_COMMONPLACE = frozenset(_COMMONPLACE_WORDS.split())
_TYPED = compile_late(r"[^\W_]+")
_ELIDED = compile_late(r"\b(?:qu|[cdjlmnst])'(?=\w)", re.IGNORECASE)  # l'export is an export
_NEVER_TELLING = STOP_WORDS | FOREIGN_STOP_WORDS | languages.STOP_WORDS


class Word(NamedTuple):
    """A telling word. A name made of several, such as LoginLimiter, has them as its `parts`."""

    text: str
    parts: tuple[str, ...] = ()

    @property
    def stems(self) -> frozenset[str]:
        """What the index may call it."""
        return frozenset(map(stem, (self.text, *self.parts)))

    def is_in(self, said: Set[str]) -> bool:
        """Whether a text with these stems has it, in one word or in its parts."""
        return stem(self.text) in said or (
            bool(self.parts) and all(stem(part) in said for part in self.parts)
        )


def part_read(prompt: str) -> str:
    """As much of a prompt as is read, however long it is."""
    if len(prompt) <= HEAD + TAIL:
        return prompt.strip()
    return f"{prompt[:HEAD].strip()}\n{prompt[-TAIL:].strip()}"


def telling_words(text: str, *, commonplace: bool = False) -> tuple[Word, ...]:
    """The words of a text that say what it is about, each once, in their order.

    Those that people say of anything count only where `commonplace` ones are wanted.
    """
    plain = text if text.isascii() else fold(text)
    typed = dict.fromkeys(_TYPED.findall(_ELIDED.sub(" ", plain).replace("'", "")))
    found: dict[str, Word] = {}
    for word in filter(None, map(_word, typed)):
        if commonplace or not is_commonplace(word):
            found.setdefault(word.text, word)
    words = list(found.values())
    if len(words) > MOST_WORDS:
        words = words[: MOST_WORDS - LAST_WORDS] + words[-LAST_WORDS:]
    once: dict[str, Word] = {}
    for word in words:
        once.setdefault(stem(word.text), word)
    return tuple(once.values())


def is_commonplace(word: Word) -> bool:
    """Whether people say it of anything."""
    return word.text in _COMMONPLACE


def _word(typed: str) -> Word | None:
    spoken = tokens(typed)
    if len(spoken) != 1 or len(typed) > LONGEST_WORD or len(spoken[0]) < 2:
        return None
    text = spoken[0]
    if text in _NEVER_TELLING:
        return None
    if text.isdigit() and len(text) < FEWEST_DIGITS:
        return None
    if typed.islower() or typed.istitle() or typed.isupper():
        return Word(text)
    parts = [part.lower() for part in parts_of([typed]) if len(part) >= SHORTEST_PART]
    return Word(text, tuple(parts) if len(parts) > 1 else ())
