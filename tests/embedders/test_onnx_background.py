import pytest

from everkept.embedders.onnx import OnnxEmbedder, measure_background, read_texts
from hash_embedder import HashingEmbedder


def test_no_text_is_there_twice() -> None:
    texts = read_texts()
    assert len(set(texts)) == len(texts)
    assert len(texts) % 3 == 0


def test_what_belongs_together_is_nearer_than_what_does_not() -> None:
    for background in (OnnxEmbedder().background, HashingEmbedder().background):
        middle = len(background.unrelated) // 2
        assert background.unrelated[middle] < background.answers[middle] < background.alike[middle]
        for cosines in (background.unrelated, background.answers, background.alike):
            assert list(cosines) == sorted(cosines)


async def test_what_is_measured_of_the_shipped_model_ships_beside_it() -> None:
    embedder = OnnxEmbedder()
    measured = measure_background(await embedder.embed(read_texts()))
    await embedder.close()
    for pairs in ("unrelated", "answers", "alike"):
        assert getattr(measured, pairs) == pytest.approx(getattr(embedder.background, pairs), abs=0.02)
