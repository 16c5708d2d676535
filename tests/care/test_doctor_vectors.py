import asyncio
from pathlib import Path

import pytest

from data_folders import statement, vector_of
from everkept.app.app import App
from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes
from everkept.care.doctor import check_vectors
from everkept.embedders import onnx
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.settings import read_settings
from everkept.values import replace
from onnx_models import write_model
from tool_calls import Client


def worst(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_vectors(context) if finding.severity != "ok"]


def test_texts_that_wait_get_their_vectors(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everkept.care.doctor.MAX_UNREPORTED_TEXTS", 2)
    [finding] = worst(context)
    assert finding.severity == "advice"
    assert finding.what.startswith("5 embeddings pending")
    assert "of another model" in finding.what
    [done] = apply_fixes([finding])
    assert done.is_done
    assert done.did.startswith("embedded 5 texts")
    assert worst(context) == []
    assert any("All texts are embedded" in finding.what for finding in check_vectors(context))


def test_a_few_texts_are_no_advice_and_very_many_are_not_for_the_doctor(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worst(context) == []
    monkeypatch.setattr("everkept.care.doctor.MAX_UNREPORTED_TEXTS", 2)
    monkeypatch.setattr("everkept.care.doctor.MAX_FIXABLE_TEXTS", 4)
    [finding] = worst(context)
    assert finding.mend is None
    assert "everkept index" in (finding.command or "")


@pytest.mark.parametrize("content", [None, b"too short"])
def test_a_model_that_is_missing_or_damaged_is_a_problem(
    context: CheckContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / onnx.NETWORK_FILE).write_bytes(content)
    monkeypatch.setattr(onnx.OnnxEmbedder.__init__, "__defaults__", (tmp_path,))
    [finding] = worst(context)
    assert finding.severity == "problem"
    assert finding.command == "install Everkept again"


def test_a_model_of_the_right_size_that_is_damaged_is_a_problem(
    context: CheckContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in onnx.FILE_BYTES.items():
        (tmp_path / name).write_bytes(bytes(size))
    monkeypatch.setattr(onnx.OnnxEmbedder.__init__, "__defaults__", (tmp_path,))
    [finding] = worst(context)
    assert finding.severity == "problem"


def test_what_is_switched_off_is_not_looked_at(context: CheckContext) -> None:
    settings = replace(context.settings, embedding_model="none")
    [finding] = check_vectors(replace(context, settings=settings))
    assert finding.severity == "ok"


def test_a_damaged_database_does_not_keep_the_queue_from_being_counted(context: CheckContext) -> None:
    (context.folder / "user.db").write_bytes(b"scribbled over")
    assert worst(context) == []
    waiting = [f.what for f in check_vectors(context) if "pending" in f.what]
    assert waiting
    assert "2 embeddings pending" in waiting[0] or "3 embeddings pending" in waiting[0]


def test_an_empty_text_waits_for_nothing(context: CheckContext) -> None:
    async def embed() -> None:
        library = SqliteLibrary(context.folder)
        user = await library.open_user_store()
        ids = ["user shop is remembered", "user old is remembered"]
        await user.put_vectors("everkept-minilm-1", [vector_of(each, 1) for each in ids])
        await library.close()

    asyncio.run(embed())
    assert statement(context.folder / "user.db", "SELECT count(*) FROM vectors") == [(2,)]
    [what] = [f.what for f in check_vectors(context) if "pending" in f.what]
    assert "3 embeddings pending" in what


def test_a_database_that_cannot_be_read_keeps_no_other_from_its_vectors(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everkept.care.doctor.MAX_UNREPORTED_TEXTS", 2)
    [path] = (context.folder / "projects").glob("*.db")
    path.unlink()
    (context.folder / "history.db").write_bytes(b"scribbled over")
    waiting = [f for f in check_vectors(context) if f.what.startswith("2 embeddings pending")]
    [done] = apply_fixes(waiting)
    assert done.is_done
    assert done.did.startswith("embedded 2 texts")
    assert 'project "shop"' in done.did
    assert "not a database" in done.did


def test_another_engine_is_asked_for_its_queue(context: CheckContext, tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path / "other", "engine": "surreal", "config": "none", "project": "shop"}
    settings = read_settings(flags, {})
    asked = replace(context, settings=settings)
    assert worst(asked) == []

    async def fill() -> None:
        app = App(replace(settings, embedding_model="none"))
        for number in range(3):
            await Client(app)("store_memory", content=f"fact {number}")
        await app.close()

    asyncio.run(fill())
    [_, finding] = check_vectors(asked)
    assert finding.what == '3 embeddings pending in project "shop". 0 texts are embedded.'
    assert finding.mend is None


def test_progress_and_a_model_of_another_process_are_shown(context: CheckContext, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", config={"_name_or_path": "tiny"})
    chosen = replace(context, settings=replace(context.settings, embedding_model=str(folder)))
    [model, queue] = check_vectors(chosen)
    assert f"in {folder} works. Embeddings have 48 numbers." in model.what
    assert "0 texts are embedded" in queue.what
    assert apply_fixes([queue])[0].did.startswith("embedded 5 texts with tiny@")
    [_, replaced] = check_vectors(context)
    assert replaced.severity == "problem"
    assert "uses the embedding model tiny@" in replaced.what
    assert "`everkept index`" in (replaced.command or "")
    (folder / "tokenizer.json").unlink()
    [missing, _] = check_vectors(chosen)
    assert "has no tokenizer.json" in missing.what
    assert "`embedding_model`" in (missing.command or "")
