"""Memories of any number, as a developer's assistant would keep them, and questions about them."""

import itertools
import random
from dataclasses import dataclass, replace
from functools import cache

from everkept.embedders.onnx import MODEL_FOLDER, VOCABULARY_FILE

SESSION_LENGTH = 40  # memories
SPAN = 2 * 365 * 86_400  # seconds over which they were stored
STOP_WORDS = 150  # the commonest, which no question is made of
TOPICS = 300
TOPIC_WORDS = 40
TAGS = 200
AUTHORS = ("Ada", "Bela", "Carmen", "Dmitri", "Emre", "Fatou")
# What a memory is, and how far it reaches; the shares are in percent.
TYPES = (("episodic", 50), ("semantic", 30), ("procedural", 20))
SCOPES = (("project", 73), ("session", 25), ("user", 2))
ENTITY_TYPES = ("component", "file", "person", "concept", "library", "service")
VERBS = ("uses", "fixes", "depends_on", "mentions", "decides")
MEMORIES_PER_ENTITY = 20
TRUE_VECTORS = 2_000  # memories at most that have the vector of their text
# The commonest entity is in about every hundredth memory, not in every tenth as after Zipf.
EVENNESS = 10

_OPENINGS = {
    "episodic": (
        "{author} found a problem in {entity}:",
        "Today we changed {entity} so that",
        "The tests of {entity} failed because of",
        "{author} asked about {entity} and",
    ),
    "semantic": (
        "{entity} is made for",
        "We decided that {entity} takes",
        "{author} prefers",
        "The limit of {entity} is",
    ),
    "procedural": (
        "To release {entity}, run",
        "When {entity} is slow, look at",
        "Before {entity} is deployed,",
        "To test {entity}, start with",
    ),
}
_QUESTIONS = (
    "What did we decide about {words}?",
    "How do I handle {words}?",
    "Which problem was there with {words}?",
    "{words}",
)


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Memory:
    number: int
    content: str
    type: str
    scope: str
    session: str
    turn: int
    author: str
    importance: float
    tags: tuple[str, ...]
    entities: tuple[tuple[Entity, str], ...]  # each with how the memory relates to it
    age: float  # seconds before now


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks who remembers a few words of one memory."""

    text: str
    phrase: str  # three words as they stand there side by side
    about: Memory


class MemoryWorkload:
    """`size` memories, each made from its number alone: any of them is there without the others.

    What is asked and added follows from the seed.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.entity_count = max(50, size // MEMORIES_PER_ENTITY)
        self.session_count = max(1, size // SESSION_LENGTH)
        self.spacing = max(1, size // TRUE_VECTORS)  # from one with its own vector to the next
        self._seed = seed
        self._chance = random.Random(seed)
        self._added = 0
        self._sessions_taken = 0

    def memory(self, number: int, salt: str = "") -> Memory:
        chance = random.Random(f"{number} {salt}")
        session, turn = divmod(number, SESSION_LENGTH)
        topic = random.Random(session).randrange(TOPICS)
        kind = _drawn(chance, TYPES)
        author = chance.choice(AUTHORS)
        entities = self._entities(chance)
        opening = chance.choice(_OPENINGS[kind]).format(author=author, entity=entities[0][0].name)
        sentences = [_sentence(chance, topic) for _ in range(chance.randint(1, 3))]
        return Memory(
            number=number,
            content=f"{opening} {' '.join(sentences)}{f' ({salt})' if salt else ''}",
            type=kind,
            scope=_drawn(chance, SCOPES),
            session=f"session-{session:06}",
            turn=turn,
            author=author,
            importance=round(chance.triangular(0, 1, 0.5), 1),
            tags=_tags(chance, topic),
            entities=entities,
            age=SPAN * max(0.0, 1 - number / self.size),
        )

    def entity(self, number: int) -> Entity:
        words = _telling_words()
        first = words[number % len(words)]
        second = words[(number // len(words) + number * 7919) % len(words)]
        kind = ENTITY_TYPES[number % len(ENTITY_TYPES)]
        if kind == "file":
            return Entity(f"src/{first}/{second}.py", kind)
        if kind in {"person", "concept"}:
            return Entity(f"{first.capitalize()} {second.capitalize()}", kind)
        return Entity(f"{first}-{second}", kind)

    def new_memory(self) -> Memory:
        """One that is not there yet, from a session of this seed alone."""
        self._added += 1
        memory = self.memory(self.size + self._added, salt=f"{self._seed}.{self._added}")
        return replace(memory, session=f"{memory.session}.{self._seed}")

    def question(self) -> Question:
        about = self._asked_about()
        words = [word.strip(".,:") for word in about.content.split()]
        telling = [word for word in words if word.lower() not in _stop_words()]
        chosen = self._chance.sample(telling, min(len(telling), self._chance.randint(3, 5)))
        side_by_side = about.content.partition(".")[0].split()[-3:]
        return Question(
            text=self._chance.choice(_QUESTIONS).format(words=" ".join(chosen)),
            phrase=" ".join(side_by_side),
            about=about,
        )

    def some_entity(self) -> Entity:
        """One that memories are about, the more of them the likelier."""
        return self._asked_about().entities[0][0]

    def next_session(self) -> str:
        """Another one with each call, as long as there are any."""
        self._sessions_taken += 1
        return f"session-{self._sessions_taken % self.session_count:06}"

    def _asked_about(self) -> Memory:
        """One with the vector of its text, and not what another session keeps to itself."""
        while True:
            memory = self.memory(self._chance.randrange(0, self.size, self.spacing))
            if memory.scope != "session":
                return memory

    def _entities(self, chance: random.Random) -> tuple[tuple[Entity, str], ...]:
        count = chance.randint(1, 2)
        ratio = (self.entity_count + EVENNESS) / EVENNESS
        numbers = {
            min(int(EVENNESS * ratio ** chance.random()) - EVENNESS, self.entity_count - 1) for _ in range(count)
        }
        return tuple((self.entity(number), chance.choice(VERBS)) for number in sorted(numbers))


def _drawn(chance: random.Random, shares: tuple[tuple[str, int], ...]) -> str:
    names, percents = zip(*shares, strict=True)
    return chance.choices(names, percents)[0]


def _sentence(chance: random.Random, topic: int) -> str:
    """A third of the words belong to the topic, the others are as frequent as in real texts."""
    count = chance.randint(7, 14)
    words = chance.choices(_words(), cum_weights=_weights(), k=count)
    own = _topic_words(topic)
    for place in range(1, count, 3):
        words[place] = chance.choice(own)
    return " ".join(words) + "."


def _tags(chance: random.Random, topic: int) -> tuple[str, ...]:
    own = [f"tag-{topic % TAGS}", f"tag-{chance.randrange(TAGS)}", "bench"]
    return tuple(sorted({chance.choice(own) for _ in range(chance.randint(0, 3))}))


@cache
def _words() -> list[str]:
    """The whole words of the model's vocabulary, which has the frequent ones first."""
    pieces = (MODEL_FOLDER / VOCABULARY_FILE).read_text("utf-8").splitlines()
    return [word for word in pieces if len(word) > 1 and word.isascii() and word.isalpha()]


@cache
def _weights() -> list[float]:
    return list(itertools.accumulate(1 / rank for rank in range(1, len(_words()) + 1)))


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(_words()[:STOP_WORDS])


@cache
def _telling_words() -> list[str]:
    return _words()[STOP_WORDS:]


@cache
def _topic_words(topic: int) -> list[str]:
    return random.Random(topic).sample(_telling_words(), TOPIC_WORDS)
