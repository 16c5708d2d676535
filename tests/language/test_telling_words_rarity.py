"""How much words tell."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.language.telling_words import TellingWord, WordRarity, compute_rarities

COMMON, RARE, NEW = TellingWord("common"), TellingWord("rare"), TellingWord("new")
RARITY = WordRarity({COMMON: 0.5, RARE: 0.01, NEW: 0.0})


def test_the_rarer_word_is_the_heavier_one() -> None:
    assert 0 < RARITY.sum_weights([COMMON]) < RARITY.sum_weights([RARE]) < RARITY.sum_weights([NEW]) <= 1


def test_a_word_that_nobody_has_used_counts_fully_against_a_text() -> None:
    said = {"common", "rare"}
    assert RARITY.compute_share([COMMON, RARE], said) == 1
    assert RARITY.compute_share([COMMON, RARE, NEW], said) < RARITY.compute_share([COMMON, RARE, COMMON], said)


def test_a_word_is_rare_where_somebody_has_used_it_and_hardly_anybody_else() -> None:
    assert RARITY.is_known(COMMON)
    assert not RARITY.is_known(NEW)
    assert RARITY.has_rare([COMMON, RARE])
    assert not RARITY.has_rare([COMMON, NEW])


def test_nothing_asked_is_nothing_had() -> None:
    assert RARITY.compute_share([], {"common"}) == 0
    assert RARITY.compute_likeness([], {"common"}) == 0
    assert WordRarity({}).compute_share([RARE], {"rare"}) == 0


def test_many_rare_words_are_believed_sooner_than_a_few_common_ones() -> None:
    many = [TellingWord(f"w{n}") for n in range(8)]
    shares: dict[TellingWord, float] = dict.fromkeys(many, 0.001)
    rarity = WordRarity({**shares, COMMON: 0.5})
    said = {word.text for word in many} | {"common"}
    assert rarity.compute_likeness([COMMON], said) < 0.2
    assert rarity.compute_likeness(many[:2], said) < 0.7 < rarity.compute_likeness(many, said) < 1


@given(
    st.dictionaries(st.text("abc", min_size=1).map(TellingWord), st.floats(0, 1), max_size=8),
    st.sets(st.text("abc", min_size=1)),
)
def test_shares_and_likenesses_are_from_0_to_1(shares: dict[TellingWord, float], said: set[str]) -> None:
    rarity = WordRarity(shares)
    words = list(shares)
    assert 0 <= rarity.compute_likeness(words, said) <= rarity.compute_share(words, said) <= 1.0000001


def test_a_rare_word_tells_more_than_a_common_one() -> None:
    telling = compute_rarities([["redis", "bug"], ["bug"], ["bug"]])
    assert telling["redis"] > telling["bug"] > 0
