"""Words that show what a text is about, common words that do not, and the weight of rare words.

The word lists affect rankings, so changing a list changes search results.
"""

import re
import unicodedata
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

# Words that people use with an assistant on any topic. They count only if a prompt explicitly asks about the past.
_COMMON_WORD_LIST = """
    able above actually add added adding again agree agreed ahead already also always another answer anything app apply
    around ask asked away back bad based before begin below best better big bit both break breaks broken bug bugs build
    built call called calls came case cases change changed changes changing check checked choose chose chosen clean
    clear code come command commit complete completely context continue correct correctly cover create created currently
    debug decide decided decision default define delete describe description details different directory discuss
    discussed discussion docs document documentation done each earlier easy edit either else end enough ensure error
    errors etc even every everything exactly example examples exist existing exists expect expected explain fail failed
    failing fails feature features few figure file files final finally find finding finds fine finish first fix fixed
    fixes fixing folder follow following forget forgot found full function functions further general get gets getting
    give given go goes going good got great guess handle happen happened happens hello help hey hi hope idea ideas
    implement implementation implemented implementing improve include including increase inside instead issue issues job
    just keep kind know last later least leave left less let like line lines list little logic long longer look looking
    looks lot made main make makes making many maybe mean mention mentioned method might mind missing modify more most
    move much must name names need needed needs never new next nice nothing notice noticed now number off ok okay old
    once one ones only open option other otherwise out output over own part pass perfect pick picked place plan plus
    point possible previous previously print problem problems project proper properly provide put question quick quickly
    quite read ready real really reason recall refactor related remember remove rename repo repository request respond
    rest result results return review rewrite right run running same save saw say says second see seem seems sense set
    settle settled setup several show side similar simple simply since single small solution solve something soon sorry
    start started stay stays step steps still stop stuff sure take talk talked task tasks test testing tests thank
    thanks thing things think though thought time times today together told tomorrow too took top total touch touched
    true try trying turn two type under understand until up update updated updating us use used useful user uses using
    usual usually value version via wait want wants way ways week well went whatever whether whole within without word
    words work worked working works write writing written wrong yeah yes yesterday yet
"""
COMMON_WORDS = frozenset(_COMMON_WORD_LIST.split())

# The same in German, Spanish and French, without accents. Words that are also English words of programs (`sin`, `solo`)
# are omitted.
_GERMAN = """
    ahnlich alle alles anders arbeiten aufgehort beim bereits beschlossen besprochen brauche brauchen damals danke daran
    datei dateien denen einfach einmal entschieden erinnere erinnerst erneut erst fehler festgelegt finde fruher
    funktion funktioniert fur ganz geandert gemacht genau genauso gerade gesagt gestern getan gewesen geworden gleich
    gut hab hast hattest immer irgendwie kommen kommt konnen konnte letzte letzten letztes los mach mache machen macht
    mal nachste neue neuen neulich nochmal schau schon sollen sonst stehen uber unsere unseren vereinbart vielleicht
    vorher weiss weisst weshalb wieder wieso will woche wollen wollten worden wurde wurden zeig zuletzt zuvor
"""
_SPANISH = """
    acordamos acuerdas ahora al algo alguna alguno anterior anteriormente antes aqui archivo asi ayer bien cada como con
    cosa cual cuando cuanto decidimos dejamos del desde despues dia dije dijimos donde el ella ellos entonces eran esa
    ese eso esta estaba estado estamos estan estar estas este esto estos favor fue fueron gracias habia habiamos
    hablamos hace hacemos hacer hacia han hasta hay haz hemos hice hicimos hizo igual las los luego manera mas mejor
    misma mismo mucho muy nada nos nosotros nuestra nuestro nueva nuevo nunca otra otro para parecido pasada pero poco
    podemos porque puede puedes puse pusimos que queda quedamos quien quiero recuerdas semana ser siempre sobre somos
    soy sus tambien tenemos tengo tiene tienes todavia todo todos ultima una unas unos usamos vamos vez voy ya
"""
_FRENCH = """
    ajouter apres arrete arretes auparavant avaient avais avait avions bien bonjour ca cette choisi chose comme convenu
    decide deja dernier derniere dire dit dois encore etaient etais etait ete etions etre fais faisait fallait fichier
    fois hier ici jamais maintenant maniere meme merci nouveau nouvelle parce pareil passe peux precedemment probleme
    quelque rappelles rien semaine similaire souviens souvient toujours tres trop utilise veux voir vois voudrais
"""
FOREIGN_COMMON_WORDS = frozenset((*_GERMAN.split(), *_SPANISH.split(), *_FRENCH.split()))

# Words that occur in texts on every topic.
_DULL_WORD_LIST = """
    add added adding after again agreed already always amazing another asked asks awesome back became before began best
    better bit call called change changed changes check checked code come cool decided did different discussed done each
    every feel feeling few file files first fixed found gave get gets getting give given glad go goes good got great hey
    hi hope instead just keep kept last later like likes long look lot lots love made make makes making many memory
    method more most much must need needed needs never new next nice note noted now okay old once one only other over
    prefers pretty project put ran really remember removed replaced run running runs said same say says see seen session
    set short since still sure switched take thank thanks thing things time today took totally tried try two under until
    up updated us use used user users uses using via want wanted wants way well went within without work worked working
    works wow yeah yesterday
"""
DULL_WORDS = frozenset(_DULL_WORD_LIST.split())

# Words of a question that carry no meaning alone, in addition to stop words.
_EMPTY_WORD_LIST = """
    able actually add added again already always another anything around ask asked before between bit bring came change
    changed changes check choose chose chosen come currently decide decided discuss discussed done earlier either else
    ever every exactly except far few find fix fixed found get gets getting give given go goes going gone good got
    happen happened happens implement implemented instead just keep kind know last like little locate look looked
    looking looks lot made make makes making many maybe mean meant mention mentioned more most much need needed needs
    next now often ok okay old once one only other others out over possible previous previously put quick quickly really
    recall recently regarding remember remind right said say says see seems seen show shown similar since solve solved
    someone something somewhere sort still talk talked thing things think though thought through time times together
    tried try trying until up us use used uses using usually via want wanted wants way ways went whether without work
    worked working works write written wrote yes yet
"""
EMPTY_WORDS = frozenset(_EMPTY_WORD_LIST.split())

# Words that state the intent if they are part of a form of question (`callers of`). Elsewhere they name the topic.
_ASKING_WORD_LIST = """
    affect affected affects agreement anatomy architecture behind between blast body break breaks built call called
    callees callers calling calls chain changing chat chats class classes code codebase coded component components
    conclusion connected consumers consumes conversation conversations created decision decisions declared define
    defined defines definition delete deleted deleting depend dependencies dependency dependent dependents depends
    describe design designed diagram difference discussion discussions edit editing example examples explain extend
    extends fail fails file files flow function functions graph grep guide handle handled handles handling hierarchy
    impact impacted implementation implementing implements import importers importing imports inherit inherits interact
    internals invoke invokes layers layout list located logic main meeting messages method methods modify modifying
    module modules move moving organisation organised organization organized outcome outline outlines overview package
    parts picture pieces problem question radius rationale reason reasoning refactor refactoring reference references
    relate related relationship relationships relies rely remove removes removing rename renames renaming replace
    replacing ripgrep same sample samples script search session sessions set signature snippet snippets source structure
    structured subclass subclasses take talk touch touching trace tree usage usages verdict walk wired
"""
ASKING_WORDS = frozenset(_ASKING_WORD_LIST.split())

# Words to greet, agree, continue or end.
_FILLER_WORD_LIST = """
    a again ahead all alright and bye cheers commit continue cool danke do done exactly fine for go good great hallo
    hello hey hi hm hmm ja just k keep let's lgtm lol me more morning nein nice no now ok okay on one perfect please
    proceed really right so sorry sure test testing thank thanks that the then there this try up weiter well wow y yeah
    yep yes you
"""
FILLER_WORDS = frozenset(_FILLER_WORD_LIST.split())

# Keywords of programming languages. Other words show what code is about.
_CODE_WORD_LIST = """
    args await bool const def elif false fn func impl int let nil none null pub return self str struct true undefined
    var void
"""
CODE_WORDS = frozenset(_CODE_WORD_LIST.split())

MAX_WORDS = 24  # looked up per text; a text with more words is a document
LAST_WORDS = 8  # of these, the last ones of the text
MAX_WORD_CHARACTERS = 40  # a longer word is a key or a hash
MIN_DIGITS = 3  # of a meaningful number, such as 404
MIN_PART_CHARACTERS = 3  # of a meaningful part of a name

_TYPED = compile_late(r"[^\W_]+")
_ELIDED = compile_late(r"\b(?:qu|[cdjlmnst])'(?=\w)", re.IGNORECASE)  # l'export becomes export
_STOP_WORDS = STOP_WORDS | FOREIGN_STOP_WORDS | FOREIGN_COMMON_WORDS
_EDGES = ".,;:!?()[]{}<>*_\"'`-"


def list_stems(text: str) -> frozenset[str]:
    """Return the stems of a text without stop words. `refreshToken` gives the stems of its parts too."""
    return frozenset(map(stem, list_index_words(text)))


def list_index_words(text: str) -> list[str]:
    """Return the words that the index stores for a text, without stop words."""
    words = map(str.lower, split_tokens(build_index_text(text)))
    return [word for word in words if word not in STOP_WORDS]


def list_spoken_words(text: str) -> list[str]:
    """Return the words of a text without stop words, and without other spellings."""
    return [word for word in split_tokens(fold(text)) if word not in STOP_WORDS]


@cache
def list_dull_stems() -> frozenset[str]:
    """Return the stems of words that occur in texts on every topic."""
    return frozenset(map(stem, DULL_WORDS))


def has_telling_words(text: str, count: int) -> bool:
    """Return whether at least `count` words of a text show what it is about. A path counts as one word."""
    if not text.isascii():  # text without spaces has many words
        return len(list_stems(text)) >= count
    words = (word.strip(_EDGES).lower() for word in text.split())
    telling = (w for w in words if w and w not in STOP_WORDS and stem(w) not in list_dull_stems())
    return len(list(islice(telling, count))) == count


class TellingWord(NamedTuple):
    """A telling word. A compound name, such as LoginLimiter, has its words in `parts`."""

    text: str
    parts: tuple[str, ...] = ()

    @property
    def stems(self) -> frozenset[str]:
        """Return the stems under which the index may have the word."""
        return frozenset(map(stem, (self.text, *self.parts)))

    def is_in(self, said: Set[str]) -> bool:
        """Return whether a text with these stems has the word, as one word or as all its parts."""
        return stem(self.text) in said or (bool(self.parts) and all(stem(part) in said for part in self.parts))


def find_telling_words(text: str, *, commonplace: bool = False) -> tuple[TellingWord, ...]:
    """Return the words that show what a text is about. Pass `commonplace` to include words used on any topic."""
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
    """Return whether people use the word on any topic."""
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


MIN_SHARE = 0.001  # the share of records below which the weight of a word no longer grows
COMMON_WEIGHT = 0.5  # a word below this weight is common
HALF_TRUST_WEIGHT = 1.0  # the weight of matching words at which half of the share counts
# Assumed other texts, because a word in all of three texts is their topic, not an empty word.
OTHER_TEXTS = 20


def compute_rarity(share: float, least: float = MIN_SHARE) -> float:
    """Return the weight of a word that this share of records contains."""
    return 1 + log(1 / max(share, least))


def compute_rarities(texts: Sequence[Sequence[str]]) -> Mapping[str, float]:
    """Return the weight of each word among these texts. Each text is a list of words."""
    found_in = Counter(word for text in texts for word in set(text))
    count = len(texts) + OTHER_TEXTS
    return {word: log(1 + count / found) for word, found in found_in.items()}


class WordRarity:
    """Weights of words from 0 to 1. Rare words weigh more, and unknown words weigh 1."""

    def __init__(self, shares: "Mapping[TellingWord, float]") -> None:
        """Compute the weights. `shares` maps each word to the share of records that contain it, 0 to 1."""
        known = [share for share in shares.values() if share > 0]
        # In a small store no share is near the minimum. Assume that an unknown word is half as common as the rarest
        # known word.
        least = max(MIN_SHARE, min(known, default=MIN_SHARE) / 2)
        heaviest = compute_rarity(least, least)
        self._known = {word for word, share in shares.items() if share > 0}
        self._weights = {word: compute_rarity(share, least) / heaviest for word, share in shares.items()}

    def is_known(self, word: "TellingWord") -> bool:
        """Return whether any record contains the word."""
        return word in self._known

    def has_rare(self, words: "Iterable[TellingWord]") -> bool:
        """Return whether any of the words is known and not common."""
        return any(self.is_known(word) and self._weights[word] >= COMMON_WEIGHT for word in words)

    def sum_weights(self, words: "Iterable[TellingWord]") -> float:
        return sum(self._weights.get(word, 0.0) for word in words)

    def compute_share(self, words: "Sequence[TellingWord]", said: Set[str]) -> float:
        """Return the weighted share of these words that a text with these stems has, 0 to 1."""
        whole = self.sum_weights(words)
        return self.sum_weights(word for word in words if word.is_in(said)) / whole if whole else 0.0

    def compute_likeness(self, words: "Sequence[TellingWord]", said: Set[str]) -> float:
        """Return the share, reduced if the matching words weigh little.

        A few common words occur together in any long text. The result is near 1 if a text has many rare words and all
        of them match.
        """
        had = self.sum_weights(word for word in words if word.is_in(said))
        return self.compute_share(words, said) * had / (had + HALF_TRUST_WEIGHT)


Topic = tuple[str, ...]  # its stems
Term = tuple[Topic, str]  # a topic and one spelling of it

MAX_TOPICS = 5
TAG_WEIGHT = 2.0  # a person chose the tag as the topic
CACHED_WORDS = 4_096

_WORD = compile_late(r"[^\W_](?:[\w+#'’-]*[\w+#])?")
_MIN_TOPIC_CHARACTERS = 3  # of a word that may be a topic
_MAX_TOPIC_CHARACTERS = 30


def find_key_topics(texts: Iterable[tuple[str, Sequence[str]]], limit: int = MAX_TOPICS) -> list[str]:
    """Return the topics that most texts share, in their spelling, strongest first. Each text comes with its tags."""
    said: list[tuple[list[Term], float]] = []
    for text, tags in texts:
        said.append((list(_list_terms(text)), 1.0))
        said.append(([(_to_topic(tag), tag) for tag in tags], TAG_WEIGHT))
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
    """Yield the telling words and the pairs of adjacent ones."""
    for sentence in split_sentences(text):
        before: Term | None = None
        for place, word in enumerate(_WORD.findall(sentence)):
            if not _is_telling(word):
                before = None
                continue
            # A capital at the start of a sentence may not belong to the word.
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
    if not is_word or folded[0].isdigit():
        return False
    if folded in STOP_WORDS or folded in FOREIGN_STOP_WORDS or folded in CODE_WORDS:
        return False
    return stem(folded) not in list_dull_stems()


@lru_cache(CACHED_WORDS)
def _to_topic(term: str) -> Topic:
    """Return the stems, which are equal for all spellings of one topic."""
    return tuple(stem(word) for word in split_tokens(fold(term.replace("-", " ").replace("_", " "))))


def _choose_topics(counts: Mapping[Topic, float], limit: int) -> list[Topic]:
    """Return the strongest topics. A pair replaces its words if they mostly occur together."""
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


MAX_READ_CHARACTERS = 1_000  # of a text whose language is wanted
MIN_FOREIGN_WORDS = 2
MIN_OTHER_LETTERS = 0.5  # share of letters that are not Latin
FOREIGN_SIGNS = frozenset("¿¡")

# Words of questions in other languages than those above, without accents. English words of programs are omitted.
_QUESTION_WORD_LIST = """
    abbiamo alla anche che chi cosa dalla degli della delle dove nella nelle perche quale quali quando quanto questa
    questo scelto siamo sono stato usiamo
    aos da das dos ela ele escolhemos esta estao foi isso na nas nao onde os pela pelo por porque qual quais quanto quem
    sao tem temos usamos
    cuales cuantas cuantos los quienes se
    een geen gekozen het hoe kan maar naar niet onze staan te uit voor waar waarom wanneer wat welk welke werd wie
    worden zijn zonder
    czy dla dlaczego gdzie jak jaka jaki jakie jest jestem kiedy kto ktora ktore ktory nie przez sie uzywa uzywamy
    att denna det detta ett finns fran hur hvad hvem hvilken hvilket hvilke hvor hvorfor hvornar ikke inte jag oss som
    till vad var varfor vem vilka vilken vilket vores
    ama bir degil hangi icin ile kac kim nasil neden nerede
    jake jaky jsme jsou kde kdo kdy ktera ktere kteri proc
    cua khong nao
    adalah apa bagaimana dari dengan itu kami kapan mana mengapa siapa untuk yang
"""


def is_foreign(text: str) -> bool:
    """Return whether a text is in another language than English. A name or a single word is not."""
    beginning = text[:MAX_READ_CHARACTERS]
    letters = [sign for sign in beginning if sign.isalpha()]
    others = sum(not (sign.isascii() or unicodedata.name(sign, "").startswith("LATIN")) for sign in letters)
    if not FOREIGN_SIGNS.isdisjoint(beginning) or (letters and others >= MIN_OTHER_LETTERS * len(letters)):
        return True
    words = _TYPED.findall(beginning)
    # A capital letter inside a text begins a name, such as Los Angeles.
    foreign = sum(_is_foreign_word(word) for word in (*map(str.lower, words[:1]), *filter(str.islower, words[1:])))
    return foreign >= MIN_FOREIGN_WORDS and foreign > sum(fold(word).lower() in STOP_WORDS for word in words)


def _is_foreign_word(word: str) -> bool:
    """Return whether a word in lower case is common in another language, or has an accent."""
    return fold(word) in _list_foreign_words() or not word.isascii()


@cache
def _list_foreign_words() -> frozenset[str]:
    known = FOREIGN_STOP_WORDS | FOREIGN_COMMON_WORDS | frozenset(_QUESTION_WORD_LIST.split())
    return frozenset(map(fold, known)) - STOP_WORDS
