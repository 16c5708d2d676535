import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.transcripts.gemini import GeminiProjects

FOLDER = "/home/ada/shop"
HASH = hashlib.sha256(FOLDER.encode()).hexdigest()


def session(home: Path, project: str) -> Path:
    return home / "tmp" / project / "chats" / "session-1.jsonl"


def listed(home: Path, content: object) -> GeminiProjects:
    (home / "projects.json").write_text(json.dumps(content), encoding="utf-8")
    return GeminiProjects(home)


@pytest.mark.parametrize("projects", [{FOLDER: "shop"}, {"shop": FOLDER}])
def test_a_short_name_stands_for_the_folder_that_the_list_has(projects: dict[str, str], tmp_path: Path) -> None:
    found = listed(tmp_path, {"projects": projects})
    assert found.find_folder(session(tmp_path, "shop"), "") == FOLDER
    assert found.find_folder(session(tmp_path, "other"), "") is None


def test_a_hash_stands_for_a_folder_of_the_list(tmp_path: Path) -> None:
    found = listed(tmp_path, {"projects": {FOLDER: "shop"}})
    assert found.find_folder(session(tmp_path, HASH), HASH) == FOLDER
    assert found.find_folder(Path("elsewhere.jsonl"), HASH) == FOLDER


def test_a_hash_stands_for_a_folder_that_the_user_trusts(tmp_path: Path) -> None:
    trusted = json.dumps({FOLDER: "TRUST_FOLDER"})
    (tmp_path / "trustedFolders.json").write_text(trusted, encoding="utf-8")
    assert GeminiProjects(tmp_path).find_folder(session(tmp_path, HASH), HASH) == FOLDER


def test_a_hash_stands_for_a_folder_that_is_given(tmp_path: Path) -> None:
    assert GeminiProjects(tmp_path, [FOLDER]).find_folder(session(tmp_path, HASH), "") == FOLDER


def test_the_folder_of_a_projects_sessions_may_name_it_itself(tmp_path: Path) -> None:
    place = session(tmp_path, "shop")
    place.parent.mkdir(parents=True)
    (place.parent.parent / ".project_root").write_text(FOLDER + "\n", encoding="utf-8")
    assert GeminiProjects(tmp_path).find_folder(place, "") == FOLDER
    assert GeminiProjects(tmp_path).find_folder(place.parent / "parent" / "agent.jsonl", "") == FOLDER


@settings(deadline=None)
@given(st.binary(max_size=20) | st.just(b'{"projects": [1]}') | st.just(b'{"projects": {"a": 1}}'))
def test_a_list_that_is_none_is_no_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    home = tmp_path_factory.mktemp("gemini")
    (home / "projects.json").write_bytes(content)
    assert GeminiProjects(home).find_folder(session(home, "shop"), HASH) is None


def test_a_name_that_is_no_folder_stands_for_none(tmp_path: Path) -> None:
    session = tmp_path / "tmp" / "p" / "chats" / "session.jsonl"
    session.parent.mkdir(parents=True)
    (tmp_path / "tmp" / "p" / ".project_root").write_text("/x" * 501, encoding="utf-8")
    assert GeminiProjects(tmp_path).find_folder(session, "") is None
