"""`everkept export`, and `everkept import` of what it wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from account_homes import ANNA, DIARY, kept_at_home, made_account, recalled_at_home
from everkept.core.sessions import Account
from everkept.exchange import export_format

Run = Callable[..., Any]


def test_what_is_exported_is_taken_in_somewhere_else(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("remember", "We deploy on Fridays", "--project", "shop")
    folder = tmp_path / "out"
    told = everkept("export", str(folder))
    assert told.status == 0
    assert "of 1 project" in told.out
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(tmp_path / "elsewhere"))
    assert "Added 1 record" in everkept("import", str(folder)).out
    assert "updated 0, 1 unchanged" in everkept("import", str(folder)).out
    found = everkept("list", "--project", "shop", "--json").json["memories"]
    assert [memory["content"] for memory in found] == ["We deploy on Fridays"]


def test_an_export_tells_programs_what_it_wrote(everkept: Run, tmp_path: Path) -> None:
    everkept("remember", "A fact", "--project", "shop")
    told = everkept("export", str(tmp_path / "out"), "--no-history", "--json").json
    assert (told["projects"], told["records"]) == (1, 1)
    assert not (tmp_path / "out" / "history").exists()


def test_what_is_no_export_is_the_callers_mistake(everkept: Run, tmp_path: Path) -> None:
    missing = everkept("import", str(tmp_path / "none"))
    assert (missing.status, "does not exist" in missing.err) == (2, True)
    (tmp_path / "empty").mkdir()
    empty = everkept("import", str(tmp_path / "empty"))
    assert (empty.status, "is not an Everkept export" in empty.err) == (2, True)
    assert everkept("import", "--help").status == 0


def test_a_folder_of_other_things_is_not_written_into(everkept: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine", encoding="utf-8")
    told = everkept("export", str(tmp_path))
    assert (told.status, "not empty" in told.err) == (2, True)


def test_the_data_folder_is_not_written_into(everkept: Run, tmp_path: Path) -> None:
    everkept("remember", "A fact", "--project", "shop")
    told = everkept("export", str(tmp_path / "data" / "out"))
    assert (told.status, "inside the data folder" in told.err) == (2, True)


def test_who_interrupts_an_export_is_told_what_is_left(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("remember", "A fact", "--project", "shop")
    folder = tmp_path / "out"
    everkept("export", str(folder))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def interrupted(*_arguments: Any, **_more: Any) -> None:
        raise KeyboardInterrupt

    everkept("remember", "Another fact", "--project", "shop")
    with monkeypatch.context() as patched:
        patched.setattr(export_format, "make_folder", interrupted)
        told = everkept("export", str(folder))
    assert (told.status, "Interrupted. What is in" in told.err) == (130, True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", ["export", "import"])
def test_no_text_at_all_is_not_the_folder_one_is_in(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    told = everkept(command, "")
    assert (told.status, "Specify a folder" in told.err) == (2, True)
    assert list((tmp_path / "here").iterdir()) == []


def test_what_is_an_accounts_alone_comes_back_to_it_alone(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("remember", "We deploy on Fridays", "--project", "shop")
    kept_at_home(tmp_path / "data")
    folder, other = tmp_path / "out", tmp_path / "elsewhere"
    told = everkept("export", str(folder))
    assert "of 1 project" in told.out
    assert "private data of 1 account" in told.out
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(other))
    taken = everkept("import", str(folder))
    assert (taken.status, "Added 1 record " in taken.out) == (0, True)
    assert "everkept token --user anna" in taken.err
    everkept("token", "--user", "anna")
    taken = everkept("import", str(folder), "--json")
    assert taken.json["strangers"] == ["anna"]  # whoever has that name here may be another
    assert recalled_at_home(other) == []
    taken = everkept("import", str(folder), "--account", "Anna", "--json")
    assert taken.json["strangers"] == []
    assert recalled_at_home(other) == [DIARY]
    assert recalled_at_home(other, Account("bela")) == []
    assert "quokka" not in everkept("list", "--all-projects").out
    again = everkept("import", str(folder), "--account", "anna", "--json")
    assert again.json["unchanged"] == 2


def test_what_is_an_accounts_alone_can_be_left_out_and_tokens_and_grants_always_are(
    everkept: Run, tmp_path: Path
) -> None:
    everkept("remember", "We deploy on Fridays", "--project", "shop")
    kept_at_home(tmp_path / "data")
    everkept("token", "--user", "anna", "--label", "laptop")
    everkept("grant", "shop", "--user", "anna")
    for options, is_in in ((("--no-accounts",), False), ((), True), (("--no-accounts",), False)):
        told = everkept("export", str(tmp_path / "out"), *options, "--json").json
        assert told["accounts"] == ["anna"] * is_in
        files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        texts = "".join(f"{path} {path.read_text('utf-8')}" for path in files)
        assert (f"{Path('accounts', 'anna')}" in texts, "quokka" in texts) == (is_in, is_in)
        for secret in ("laptop", "evku_", '"write"', "secret_hash"):
            assert secret not in texts
        assert ("anna" in texts) == is_in


def test_the_next_of_a_name_gets_nothing_of_the_first_by_an_import(everkept: Run, tmp_path: Path) -> None:
    kept_at_home(tmp_path / "data")
    everkept("export", str(tmp_path / "out"))
    everkept("account", "remove", "anna", "--yes")
    made_account(tmp_path / "data")
    taken = everkept("import", str(tmp_path / "out"))
    assert (taken.status, "--account anna" in taken.err) == (0, True)
    assert recalled_at_home(tmp_path / "data") == []


def test_no_page_for_people_shows_what_is_an_accounts_alone(everkept: Run, tmp_path: Path) -> None:
    kept_at_home(tmp_path / "data", Account("con."))  # a name that no file system takes
    told = everkept("export", str(tmp_path / "out"), "--json").json
    assert (told["projects"], told["accounts"]) == (0, ["con."])
    holding = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    holding = [path for path in holding if "quokka" in path.read_text("utf-8")]
    [found] = [path.relative_to(tmp_path / "out").as_posix() for path in holding]
    assert found == "accounts/con%2E/user/records.jsonl"
    everkept("import", str(tmp_path / "out"))
    assert recalled_at_home(tmp_path / "data", Account("con.")) == [DIARY]


def test_a_home_is_exported_as_no_project(everkept: Run, tmp_path: Path) -> None:
    kept_at_home(tmp_path / "data")
    told = everkept("export", str(tmp_path / "out"), "--project", "@user (anna)")
    assert (told.status, "anna" in told.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_home_among_the_projects_of_an_export_is_not_taken_in(everkept: Run, tmp_path: Path) -> None:
    kept_at_home(tmp_path / "data")
    folder = tmp_path / "out"
    everkept("export", str(folder))
    (folder / "projects").mkdir()
    (folder / "accounts" / "anna" / "user").rename(folder / "projects" / "hers")
    facts = '{"name": "@user (anna)"}'
    (folder / "projects" / "hers" / "project.json").write_text(facts, encoding="utf-8")
    told = everkept("import", str(folder))
    assert (told.status, "accounts/anna/user" in told.err) == (2, True)


@pytest.mark.parametrize("name", ["Anna", "%61nna", "an na"])
def test_a_folder_that_is_no_accounts_is_named(everkept: Run, tmp_path: Path, name: str) -> None:
    kept_at_home(tmp_path / "data", ANNA)
    folder = tmp_path / "out"
    everkept("export", str(folder))
    (folder / "accounts" / "anna").rename(folder / "accounts" / name)
    told = everkept("import", str(folder))
    assert (told.status, "Traceback" in told.err) == (2, False)
    assert "valid user name" in told.err or "does not have the name" in told.err


@pytest.mark.parametrize(
    ("arguments", "typed", "is_linked"),
    [
        ((), {"stdin": "y\n", "terminal": True}, True),
        ((), {"stdin": "n\n", "terminal": True}, False),
        ((), {"stdin": "y\n"}, False),
        (("--yes",), {}, True),
        (("--no-folders", "--yes"), {}, False),
    ],
    ids=["agreed", "declined", "program", "yes", "none"],
)
def test_a_folder_that_an_export_claims_is_linked_only_if_a_person_agrees(
    everkept: Run, tmp_path: Path, arguments: tuple[str, ...], typed: dict[str, Any], is_linked: bool
) -> None:
    everkept("remember", "A fact", "--project", "shop")
    everkept("export", str(tmp_path / "out"))
    path = tmp_path / "out" / "projects" / "shop" / "project.json"
    path.write_text(json.dumps({"name": "foreign", "folders": [str(tmp_path)]}), encoding="utf-8")
    told = everkept("import", str(tmp_path / "out"), "--json", *arguments, **typed).json
    assert told["folders"] == ({str(tmp_path): "foreign"} if is_linked else {})


@pytest.mark.parametrize("name", ["projects/shop/records.jsonl", "projects/shop", "user", "everkept.json"])
def test_an_export_with_links_is_refused(everkept: Run, tmp_path: Path, name: str) -> None:
    everkept("remember", "A fact", "--project", "shop")
    folder = tmp_path / "out"
    everkept("export", str(folder))
    elsewhere = tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    try:
        (folder / name).symlink_to(elsewhere)
    except OSError:
        pytest.skip("this account may not create links")
    told = everkept("import", str(folder))
    assert (told.status, "is a link" in told.err) == (2, True)
