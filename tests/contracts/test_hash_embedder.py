import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_embedder import HashingEmbedder

RECORDED = {15: 0.2051, 36: -0.2051, 93: -0.8887, 120: 0.2051, 221: 0.2051, 270: -0.2051}


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder()


async def test_the_same_text_has_the_same_vector_everywhere(embedder: HashingEmbedder) -> None:
    """Recorded once: another machine, Python or hash seed must not change it."""
    vector = (await embedder.embed(["memory"]))[0]
    found = {int(place): round(float(vector[place]), 4) for place in vector.nonzero()[0]}
    assert found == RECORDED


@settings(deadline=None)
@given(st.lists(st.text(), max_size=5))
async def test_every_text_has_a_vector_of_length_one(texts: list[str]) -> None:
    embedder = HashingEmbedder()
    vectors = await embedder.embed(texts)
    assert vectors.shape == (len(texts), embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)


async def test_shared_words_bring_texts_together(embedder: HashingEmbedder) -> None:
    vectors = await embedder.embed(
        ["The database moved to Postgres.", "We moved the DATABASE in March.", "Soup needs salt."]
    )
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


async def test_parts_of_words_bring_texts_together(embedder: HashingEmbedder) -> None:
    vectors = await embedder.embed(["embeddings", "embedding", "wardrobe"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


async def test_a_vector_does_not_depend_on_its_company(embedder: HashingEmbedder) -> None:
    texts = ["one", "two words", "", "三つの言葉", "!?"]
    together = await embedder.embed(texts)
    alone = np.concatenate([await embedder.embed([text]) for text in texts])
    assert np.array_equal(together, alone)
