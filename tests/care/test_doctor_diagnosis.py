import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_folders import backed_up, cut_short, filled, statement
from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.care.doctor import diagnose
from everkept.values import replace
from examples import examples
from processes import said_by


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "data"
    filled(folder, "shop", "old", archived=("old",))
    return folder


def test_what_is_found_after_mending_is_told_with_what_was_done(context: CheckContext) -> None:
    (context.folder / "user.db").chmod(0o644)
    looked = diagnose(context)
    assert not looked.is_healthy
    assert looked.mended == []
    fixed = diagnose(context, fix=True)
    assert fixed.is_healthy
    assert "data folder" in {each.check for each in fixed.mended}


def test_checks_of_other_layers_are_asked_too(context: CheckContext) -> None:
    finding = DoctorFinding("else", "problem", "something else")
    found = diagnose(context, [("else", lambda _: [finding])])
    assert finding in found.findings
    assert not found.is_healthy


def test_while_a_restore_is_not_at_its_end_nothing_else_is_mended(context: CheckContext, tmp_path: Path) -> None:
    backed_up(context.folder, tmp_path / "copy.zip")
    cut_short(context.folder, tmp_path / "copy.zip", tmp_path / "safety.zip")
    statement(context.folder / "user.db", "INSERT INTO words(words) VALUES ('delete-all')")
    context = replace(context, settings=replace(context.settings, embedding_model="none"))
    before = said_by("digests", context.folder)
    found = diagnose(context, fix=True)
    assert said_by("digests", context.folder) == before
    assert found.mended == []
    problems = [finding for finding in found.findings if finding.severity == "problem"]
    assert {finding.check for finding in problems} == {"data folder", "databases", "projects"}
    assert {finding.command for finding in problems} == {
        f"everkept restore {tmp_path / 'copy.zip'} --replace --data-dir {context.folder}"
    }


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_broken_is_a_finding_and_a_look_changes_nothing(
    context: CheckContext, sound: Path, data: st.DataObject
) -> None:
    """Bytes of a file are overwritten anywhere, or it is gone or a folder."""
    shutil.rmtree(context.folder)
    shutil.copytree(sound, context.folder)
    files = sorted(path for path in context.folder.rglob("*.db"))
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    way = data.draw(st.sampled_from(["bytes", "cut", "gone", "folder"]))
    path.unlink()
    if way == "folder":
        path.mkdir(mode=0o700)
    elif way != "gone":
        start = data.draw(st.integers(0, len(content) - 1))
        if way == "cut":
            del content[start:]
        else:
            content[start : start + 200] = data.draw(st.binary(min_size=1, max_size=200))
        path.touch(mode=0o600)
        path.write_bytes(content)
    # The model is no part of this, and takes long to load.
    context = replace(context, settings=replace(context.settings, embedding_model="none"))
    before = said_by("digests", context.folder)
    found = diagnose(context)
    assert said_by("digests", context.folder) == before
    assert {finding.check for finding in found.findings} > {"versions", "databases", "clients"}
    assert not any("could not be looked at" in finding.what for finding in found.findings)
    diagnose(context, fix=True)
