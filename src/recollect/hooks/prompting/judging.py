"""How much a record has of what is asked, and whether this session may be told of it."""

from typing import Literal, NamedTuple

from recollect.core.records import Record
from recollect.families.history.model import CODE, TURN
from recollect.hooks.prompting.rarity import Rarity
from recollect.hooks.prompting.wording import Word
from recollect.retrieval.excerpts import stems

Shelf = Literal["project", "user", "history"]

# As the memories and the transcripts have them, whose own modules take long to load.
MEMORY = "memory"
USER = "user"

LONGEST_COMPARED = 3_600  # characters of a text
PASSAGE, STEP = 1_200, 800  # characters; in a longer stretch any words come together
RELATED = 2  # words of a prompt that a passage has which speaks of the same things
SHORT_ANSWER = 80  # characters; such an answer says less than its question
FEWEST_NEW = 3  # words of an old question that a new one does not have, for it to tell anything


class Asked(NamedTuple):
    """What is looked for: the telling words of a prompt, and those of an error in it.

    Where `words` are those of a topic, `around` are those of all the prompt: it says more of what
    is meant, or something else. `kinds` are those of turns and code; memories are looked for
    always. With `everywhere` other projects count where this one has nothing.
    """

    words: tuple[Word, ...]
    around: tuple[Word, ...] = ()
    error: tuple[Word, ...] = ()
    kinds: tuple[str, ...] = (TURN, CODE)
    everywhere: bool = False

    @property
    def every_word(self) -> tuple[Word, ...]:
        return tuple(dict.fromkeys((*self.words, *self.around, *self.error)))


class Find(NamedTuple):
    """A record, where it was found, and how much it has of what is asked.

    `share` counts the words, `likeness` also whether they are many and rare.
    """

    record: Record
    shelf: Shelf
    share: float
    likeness: float
    shared: int  # words
    title: str = ""  # of the conversation
    error_likeness: float = 0.0

    @property
    def is_memory(self) -> bool:
        return self.record.kind == MEMORY


class Judging:
    """Who is asking and for what; `said` grows with the passages that speak of it."""

    def __init__(self, session: str, asked: Asked, rarity: Rarity) -> None:
        self.said: set[str] = set()
        self._session = session
        self.asked = asked
        self._every_word = asked.every_word
        self._rarity = rarity

    def may_be_told(self, record: Record) -> bool:
        """Not what this session said itself, nor what something else stands for by now."""
        facets = record.facets
        if record.kind == MEMORY:
            is_gone = facets.get("superseded_by") or facets.get("merged_into")
            return not is_gone and not (facets.get("automatic") and record.session == self._session)
        return self._session not in (record.session, facets.get("part_of"))

    def find(self, record: Record, answer: Record | None, title: str, shelf: Shelf) -> Find | None:
        """What the record is worth, or the answer to it where it is a question.

        None where it says nothing of what is asked, whatever stands above it.
        """
        shown, own = record, self._best(record)
        if record.kind == TURN and record.author == USER:
            if answer is not None and len(answer.text) >= SHORT_ANSWER:
                shown, own = answer, own | self._best(answer)
            elif self._is_told(own):
                return None
        if not any(word.is_in(own) for word in self._every_word):
            return None
        said = own | stems(f"{shown.name or ''}\n{title}")
        shared = sum(word.is_in(said) for word in self.asked.words)
        if shared >= RELATED:
            self.said |= said
        has_failed = bool(record.facets.get("problem") or shown.facets.get("problem"))
        return Find(
            shown,
            shelf,
            max(self._rarity.share(words, said) for words in (self.asked.words, self.asked.around)),
            self._rarity.likeness(self.asked.words, said),
            shared,
            title,
            self._rarity.likeness(self.asked.error, said) if has_failed else 0.0,
        )

    def _best(self, record: Record) -> frozenset[str]:
        """The stems of the passage that has most of what is asked."""
        text = record.text[:LONGEST_COMPARED]
        starts = range(0, max(len(text) - (PASSAGE - STEP), 1), STEP)
        return max(
            (stems(text[start : start + PASSAGE]) for start in starts),
            key=lambda said: self._rarity.share(self._every_word, said),
        )

    def _is_told(self, own: frozenset[str]) -> bool:
        """Whether an old question says hardly more than the new one."""
        return len(own - {each for word in self._every_word for each in word.stems}) < FEWEST_NEW
