"""Words that say what a text is about, words that say little, and how much a rare one tells.

The lists decide rankings: a change of one is a change of what is found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from itertools import chain, islice
from math import log
from typing import NamedTuple

from everkept.language.sentences import split_sentences
from everkept.language.spellings import fold, split_parts, split_tokens, stem
from everkept.language.words import FOREIGN_STOP_WORDS, STOP_WORDS, build_index_text
from everkept.patterns import compile_late

# What people say to an assistant about anything. Only where somebody asks for the past by name
# are these words what is asked for.
_COMMON_WORD_LIST = """
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
COMMON_WORDS = frozenset(_COMMON_WORD_LIST.split())

# The same in German, Spanish and French, written without accents. English words of programs,
# such as `sin` or `solo`, are not here.
_GERMAN = """
    ahnlich alle alles anders arbeiten aufgehort beim bereits beschlossen besprochen brauche
    brauchen damals danke daran datei dateien denen einfach einmal entschieden erinnere
    erinnerst erneut erst fehler festgelegt finde fruher funktion funktioniert fur ganz geandert
    gemacht genau genauso gerade gesagt gestern getan gewesen geworden gleich gut hab hast
    hattest immer irgendwie kommen kommt konnen konnte letzte letzten letztes los mach mache
    machen macht mal nachste neue neuen neulich nochmal schau schon sollen sonst stehen uber
    unsere unseren vereinbart vielleicht vorher weiss weisst weshalb wieder wieso will woche
    wollen wollten worden wurde wurden zeig zuletzt zuvor
"""
_SPANISH = """
    acordamos acuerdas ahora al algo alguna alguno anterior anteriormente antes aqui archivo asi
    ayer bien cada como con cosa cual cuando cuanto decidimos dejamos del desde despues dia dije
    dijimos donde el ella ellos entonces eran esa ese eso esta estaba estado estamos estan estar
    estas este esto estos favor fue fueron gracias habia habiamos hablamos hace hacemos hacer
    hacia han hasta hay haz hemos hice hicimos hizo igual las los luego manera mas mejor misma
    mismo mucho muy nada nos nosotros nuestra nuestro nueva nuevo nunca otra otro para parecido
    pasada pero poco podemos porque puede puedes puse pusimos que queda quedamos quien quiero
    recuerdas semana ser siempre sobre somos soy sus tambien tenemos tengo tiene tienes todavia
    todo todos ultima una unas unos usamos vamos vez voy ya
"""
_FRENCH = """
    ajouter apres arrete arretes auparavant avaient avais avait avions bien bonjour ca cette
    choisi chose comme convenu decide deja dernier derniere dire dit dois encore etaient etais
    etait ete etions etre fais faisait fallait fichier fois hier ici jamais maintenant maniere
    meme merci nouveau nouvelle parce pareil passe peux precedemment probleme quelque rappelles
    rien semaine similaire souviens souvient toujours tres trop utilise veux voir vois voudrais
"""
FOREIGN_COMMON_WORDS = frozenset((*_GERMAN.split(), *_SPANISH.split(), *_FRENCH.split()))

# What texts of every topic say.
_DULL_WORD_LIST = """
    add added adding after again agreed already always amazing another asked asks awesome back
    became before began best better bit call called change changed changes check checked code
    come cool decided did different discussed done each every feel feeling few file files first
    fixed found gave get gets getting give given glad go goes good got great hey hi hope
    instead just keep kept last later like likes long look lot lots love made make makes making
    many memory method more most much must need needed needs never new next nice note noted now
    okay old once one only other over prefers pretty project put ran really remember removed
    replaced run running runs said same say says see seen session set short since still sure
    switched take thank thanks thing things time today took totally tried try two under until
    up updated us use used user users uses using via want wanted wants way well went within
    without work worked working works wow yeah yesterday
"""
DULL_WORDS = frozenset(_DULL_WORD_LIST.split())

# Words of a question that tell nothing by themselves, beside those that no search counts.
_EMPTY_WORD_LIST = """
    able actually add added again already always another anything around ask asked before
    between bit bring came change changed changes check choose chose chosen come currently
    decide decided discuss discussed done earlier either else ever every exactly except far few
    find fix fixed found get gets getting give given go goes going gone good got happen happened
    happens implement implemented instead just keep kind know last like little locate look
    looked looking looks lot made make makes making many maybe mean meant mention mentioned more
    most much need needed needs next now often ok okay old once one only other others out over
    possible previous previously put quick quickly really recall recently regarding remember
    remind right said say says see seems seen show shown similar since solve solved someone
    something somewhere sort still talk talked thing things think though thought through time
    times together tried try trying until up us use used uses using usually via want wanted
    wants way ways went whether without work worked working works write written wrote yes yet
"""
EMPTY_WORDS = frozenset(_EMPTY_WORD_LIST.split())

# Words that say what is wanted of a thing where they are part of a form of question, as in
# `callers of`, and which thing is meant elsewhere.
_ASKING_WORD_LIST = """
    affect affected affects agreement anatomy architecture behind between blast body break
    breaks built call called callees callers calling calls chain changing chat chats class
    classes code codebase coded component components conclusion connected consumers consumes
    conversation conversations created decision decisions declared define defined defines
    definition delete deleted deleting depend dependencies dependency dependent dependents
    depends describe design designed diagram difference discussion discussions edit editing
    example examples explain extend extends fail fails file files flow function functions graph
    grep guide handle handled handles handling hierarchy impact impacted implementation
    implementing implements import importers importing imports inherit inherits interact
    internals invoke invokes layers layout list located logic main meeting messages method
    methods modify modifying module modules move moving organisation organised organization
    organized outcome outline outlines overview package parts picture pieces problem question
    radius rationale reason reasoning refactor refactoring reference references relate related
    relationship relationships relies rely remove removes removing rename renames renaming
    replace replacing ripgrep same sample samples script search session sessions set signature
    snippet snippets source structure structured subclass subclasses take talk touch touching
    trace tree usage usages verdict walk wired
"""
ASKING_WORDS = frozenset(_ASKING_WORD_LIST.split())

# What one says to begin, to agree, to go on or to end.
_FILLER_WORD_LIST = """
    a again ahead all alright and bye cheers commit continue cool danke do done exactly fine for go
    good great hallo hello hey hi hm hmm ja just k keep let's lgtm lol me more morning nein nice no
    now ok okay on one perfect please proceed really right so sorry sure test testing thank thanks
    that the then there this try up weiter well wow y yeah yep yes you
"""
FILLER_WORDS = frozenset(_FILLER_WORD_LIST.split())

# Of programming languages; what is written in them is told by other words.
_CODE_WORD_LIST = """
    args await bool const def elif false fn func impl int let nil none null pub return self
    str struct true undefined var void
"""
CODE_WORDS = frozenset(_CODE_WORD_LIST.split())


MAX_WORDS = 24  # that are looked up; what has more of them is a document
LAST_WORDS = 8  # of these, from the end
MAX_WORD_CHARACTERS = 40  # what is longer is a key or a hash
MIN_DIGITS = 3  # of a number that tells something, as 404 does
MIN_PART_CHARACTERS = 3  # letters of a part of a name that stands for itself

_TYPED = compile_late(r"[^\W_]+")
_ELIDED = compile_late(r"\b(?:qu|[cdjlmnst])'(?=\w)", re.IGNORECASE)  # l'export is an export
_STOP_WORDS = STOP_WORDS | FOREIGN_STOP_WORDS | FOREIGN_COMMON_WORDS
_EDGES = ".,;:!?()[]{}<>*_\"'`-"


def list_stems(text: str) -> frozenset[str]:
    """What a text says, as far as words tell: those of `refreshToken` too, and no stop words."""
    return frozenset(map(stem, list_index_words(text)))


def list_index_words(text: str) -> list[str]:
    """The words that the index has of a text, but stop words."""
    words = map(str.lower, split_tokens(build_index_text(text)))
    return [word for word in words if word not in STOP_WORDS]


def list_spoken_words(text: str) -> list[str]:
    """The words of a text as it is written, but stop words."""
    return [word for word in split_tokens(fold(text)) if word not in STOP_WORDS]


@cache
def list_dull_stems() -> frozenset[str]:
    """The stems of what texts of every topic say."""
    return frozenset(map(stem, DULL_WORDS))


def has_telling_words(text: str, count: int) -> bool:
    """Return whether so many words of a text say what it is about: a path is one of them."""
    if not text.isascii():  # what has no spaces is many words
        return len(list_stems(text)) >= count
    words = (word.strip(_EDGES).lower() for word in text.split())
    telling = (w for w in words if w and w not in STOP_WORDS and stem(w) not in list_dull_stems())
    return len(list(islice(telling, count))) == count


class TellingWord(NamedTuple):
    """A telling word. A name made of several, such as LoginLimiter, has them as its `parts`."""

    text: str
    parts: tuple[str, ...] = ()

    @property
    def stems(self) -> frozenset[str]:
        """What the index may call it."""
        return frozenset(map(stem, (self.text, *self.parts)))

    def is_in(self, said: Set[str]) -> bool:
        """Whether a text with these stems has it, in one word or in its parts."""
        return stem(self.text) in said or (bool(self.parts) and all(stem(part) in said for part in self.parts))


def find_telling_words(text: str, *, commonplace: bool = False) -> tuple[TellingWord, ...]:
    """The words of a text that say what it is about, each once, in their order.

    Those that people say of anything count only where `commonplace` ones are wanted.
    """
    plain = text if text.isascii() else fold(text)
    typed = dict.fromkeys(_TYPED.findall(_ELIDED.sub(" ", plain).replace("'", "")))
    found: dict[str, TellingWord] = {}
    for word in filter(None, map(_parse_word, typed)):
        if commonplace or not is_common_word(word):
            found.setdefault(word.text, word)
    words = list(found.values())
    if len(words) > MAX_WORDS:
        words = words[: MAX_WORDS - LAST_WORDS] + words[-LAST_WORDS:]
    once: dict[str, TellingWord] = {}
    for word in words:
        once.setdefault(stem(word.text), word)
    return tuple(once.values())


def is_common_word(word: TellingWord) -> bool:
    """Whether people say it of anything."""
    return word.text in COMMON_WORDS


def _parse_word(typed: str) -> TellingWord | None:
    spoken = split_tokens(typed)
    if len(spoken) != 1 or len(typed) > MAX_WORD_CHARACTERS or len(spoken[0]) < 2:
        return None
    text = spoken[0]
    if text in _STOP_WORDS:
        return None
    if text.isdigit() and len(text) < MIN_DIGITS:
        return None
    if typed.islower() or typed.istitle() or typed.isupper():
        return TellingWord(text)
    parts = [part.lower() for part in split_parts([typed]) if len(part) >= MIN_PART_CHARACTERS]
    return TellingWord(text, tuple(parts) if len(parts) > 1 else ())


MIN_SHARE = 0.001  # the share of records below which a word tells no more
COMMON_WEIGHT = 0.5  # the weight below which a word tells little
HALF_TRUST_WEIGHT = 1.0  # the rarest words that a text must have for half of what they say to be believed
# Beside those at hand: what all of three texts have is their topic, and not an empty word.
OTHER_TEXTS = 20


def compute_rarity(share: float, least: float = MIN_SHARE) -> float:
    """How much a word tells that this share of records has."""
    return 1 + log(1 / max(share, least))


def compute_rarities(texts: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """How much each word tells among these texts, of which each is given as its words."""
    found_in = Counter(word for text in texts for word in set(text))
    count = len(texts) + OTHER_TEXTS
    return {word: log(1 + count / found) for word, found in found_in.items()}


class WordRarity:
    """The weights of words, 0 to 1: the rarer, the heavier.

    A word that nobody has ever used is as heavy as can be.
    """

    def __init__(self, shares: "Mapping[TellingWord, float]") -> None:
        """`shares` is the share of records that have each word, 0 to 1."""
        known = [share for share in shares.values() if share > 0]
        # In a small store no share is near the rarest one; a new word is half as common there.
        least = max(MIN_SHARE, min(known, default=MIN_SHARE) / 2)
        heaviest = compute_rarity(least, least)
        self._known = {word for word, share in shares.items() if share > 0}
        self._weights = {word: compute_rarity(share, least) / heaviest for word, share in shares.items()}

    def is_known(self, word: "TellingWord") -> bool:
        """Whether anybody has ever used it."""
        return word in self._known

    def has_rare(self, words: "Iterable[TellingWord]") -> bool:
        """Whether any of them is known and not common."""
        return any(self.is_known(word) and self._weights[word] >= COMMON_WEIGHT for word in words)

    def sum_weights(self, words: "Iterable[TellingWord]") -> float:
        return sum(self._weights.get(word, 0.0) for word in words)

    def compute_share(self, words: "Sequence[TellingWord]", said: Set[str]) -> float:
        """How much of these words a text with these stems has, 0 to 1, rare ones counting more."""
        whole = self.sum_weights(words)
        return self.sum_weights(word for word in words if word.is_in(said)) / whole if whole else 0.0

    def compute_likeness(self, words: "Sequence[TellingWord]", said: Set[str]) -> float:
        """The share, as far as so many words can be believed: a few common ones come together in
        any long text. It comes near 1 where a text has many rare words, and all of them."""
        had = self.sum_weights(word for word in words if word.is_in(said))
        return self.compute_share(words, said) * had / (had + HALF_TRUST_WEIGHT)


Topic = tuple[str, ...]  # stems
Term = tuple[Topic, str]  # with a spelling of it

MAX_TOPICS = 5
TAG_WEIGHT = 2.0  # somebody chose it as the topic
NAME_WEIGHT = 1.5  # of an entity that the texts are linked to
CACHED_WORDS = 4_096

_WORD = compile_late(r"[^\W_](?:[\w+#'’-]*[\w+#])?")
_MIN_TOPIC_CHARACTERS = 3  # characters of a word that may be a topic
_MAX_TOPIC_CHARACTERS = 30


def find_key_topics(
    texts: Iterable[tuple[str, Sequence[str]]], names: Sequence[str] = (), limit: int = MAX_TOPICS
) -> list[str]:
    """What most of the texts speak of, spelled as they do, the weightiest first; each text comes
    with its tags."""
    said: list[tuple[list[Term], float]] = []
    for text, tags in texts:
        said.append((list(_list_terms(text)), 1.0))
        said.append(([(_to_topic(tag), tag) for tag in tags], TAG_WEIGHT))
    said.append(([(_to_topic(name), name) for name in names], NAME_WEIGHT))
    counts: defaultdict[Topic, float] = defaultdict(float)
    for terms, weight in said:
        for topic in {topic for topic, _ in terms} - {()}:
            counts[topic] += weight
    spellings: dict[Topic, Counter[str]] = {topic: Counter() for topic in _choose_topics(counts, limit)}
    for topic, spelled in chain.from_iterable(terms for terms, _ in said):
        if topic in spellings:
            spellings[topic][spelled] += 1
    return [_choose_spelling(counted) for counted in spellings.values()]


def _list_terms(text: str) -> Iterator[Term]:
    """Telling words, and pairs of them that stand side by side."""
    for sentence in split_sentences(text):
        before: Term | None = None
        for place, word in enumerate(_WORD.findall(sentence)):
            if not _is_telling(word):
                before = None
                continue
            # A capital that begins a sentence may not be the word's own.
            spelled = word.lower() if place == 0 and word.istitle() else word
            term = _to_topic(spelled), spelled
            yield term
            if before is not None:
                yield before[0] + term[0], f"{before[1]} {spelled}"
            before = term


@lru_cache(CACHED_WORDS)
def _is_telling(word: str) -> bool:
    folded = word.lower().replace("'", "").replace("’", "")
    is_word = _MIN_TOPIC_CHARACTERS <= len(folded) <= _MAX_TOPIC_CHARACTERS or (
        len(folded) == 2 and not folded.isascii()
    )
    return is_word and not folded[0].isdigit() and not _is_dull(folded)


def _is_dull(word: str) -> bool:
    if word in STOP_WORDS or word in FOREIGN_STOP_WORDS or word in CODE_WORDS:
        return True
    return stem(word) in list_dull_stems()


@lru_cache(CACHED_WORDS)
def _to_topic(term: str) -> Topic:
    """Equal for the spellings of one topic."""
    return tuple(stem(word) for word in split_tokens(fold(term.replace("-", " ").replace("_", " "))))


def _choose_topics(counts: Mapping[Topic, float], limit: int) -> list[Topic]:
    """The words of a pair give way to it where they mostly come together."""
    is_any_shared = max(counts.values(), default=0.0) > 1.0
    strengths = {
        topic: _compute_strength(topic, counts)
        for topic, count in counts.items()
        if count > 1.0 or (not is_any_shared and len(topic) == 1)
    }
    chosen: list[Topic] = []
    said: set[str] = set()
    for topic in sorted(strengths, key=lambda topic: (-strengths[topic], topic)):
        if said.isdisjoint(topic):
            chosen.append(topic)
            said |= {*topic}
    return chosen[:limit]


def _compute_strength(topic: Topic, counts: Mapping[Topic, float]) -> float:
    alone = max(counts.get((word,), 0.0) for word in topic)
    is_one_thing = len(topic) > 1 and 2 * counts[topic] >= alone
    return alone + counts[topic] / 2 if is_one_thing else counts[topic]


def _choose_spelling(spellings: Counter[str]) -> str:
    return min(spellings, key=lambda term: (-spellings[term], len(term), term))
