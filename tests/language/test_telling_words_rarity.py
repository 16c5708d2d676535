"""How much words tell."""

from hypothesis import given
from hypothesis import strategies as st

from everkept.language.telling_words import Rarity, Word, rarity_among

COMMON, RARE, NEW = Word("common"), Word("rare"), Word("new")
RARITY = Rarity({COMMON: 0.5, RARE: 0.01, NEW: 0.0})


def test_the_rarer_word_is_the_heavier_one() -> None:
    assert 0 < RARITY.weight([COMMON]) < RARITY.weight([RARE]) < RARITY.weight([NEW]) <= 1


def test_a_word_that_nobody_has_used_counts_fully_against_a_text() -> None:
    said = {"common", "rare"}
    assert RARITY.share([COMMON, RARE], said) == 1
    assert RARITY.share([COMMON, RARE, NEW], said) < RARITY.share([COMMON, RARE, COMMON], said)


def test_a_word_is_rare_where_somebody_has_used_it_and_hardly_anybody_else() -> None:
    assert RARITY.is_known(COMMON)
    assert not RARITY.is_known(NEW)
    assert RARITY.has_rare([COMMON, RARE])
    assert not RARITY.has_rare([COMMON, NEW])


def test_nothing_asked_is_nothing_had() -> None:
    assert RARITY.share([], {"common"}) == 0
    assert RARITY.likeness([], {"common"}) == 0
    assert Rarity({}).share([RARE], {"rare"}) == 0


def test_many_rare_words_are_believed_sooner_than_a_few_common_ones() -> None:
    many = [Word(f"w{n}") for n in range(8)]
    shares: dict[Word, float] = dict.fromkeys(many, 0.001)
    rarity = Rarity({**shares, COMMON: 0.5})
    said = {word.text for word in many} | {"common"}
    assert rarity.likeness([COMMON], said) < 0.2
    assert rarity.likeness(many[:2], said) < 0.7 < rarity.likeness(many, said) < 1


@given(
    st.dictionaries(st.text("abc", min_size=1).map(Word), st.floats(0, 1), max_size=8),
    st.sets(st.text("abc", min_size=1)),
)
def test_shares_and_likenesses_are_from_0_to_1(shares: dict[Word, float], said: set[str]) -> None:
    rarity = Rarity(shares)
    words = list(shares)
    assert 0 <= rarity.likeness(words, said) <= rarity.share(words, said) <= 1.0000001


def test_a_rare_word_tells_more_than_a_common_one() -> None:
    telling = rarity_among([["redis", "bug"], ["bug"], ["bug"]])
    assert telling["redis"] > telling["bug"] > 0
