import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from account_homes import ANNA, DIARY, kept_at_home, made_account, recalled_at_home
from everkept.core.sessions import Account
from server_processes import HANG, environment

Run = Callable[..., Any]

SAID = "Logins are limited by a token bucket"
# Tells itself to end when the first database is copied.
ENDED_EARLY = """
import os, signal, sys
from everkept.cli.main import main
from everkept.engines.sqlite import snapshot

copy_to = snapshot.copy_to

def copy_and_end(*arguments):
    copy_to(*arguments)
    os.kill(os.getpid(), signal.SIGTERM)

snapshot.copy_to = copy_and_end
main(sys.argv[1:])
"""


@pytest.fixture
def stored(everkept: Run) -> Run:
    assert everkept("remember", SAID, "--project", "shop").status == 0
    return everkept


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "copy.zip"


def listed(everkept: Run, *flags: str) -> list[str]:
    rows = everkept("list", "--project", "shop", "--json", *flags).json["memories"]
    return [row["content"] for row in rows]


def test_a_backup_comes_back_elsewhere(stored: Run, file: Path, tmp_path: Path) -> None:
    made = stored("backup", str(file))
    assert made.status == 0
    assert "1 project" in made.out
    assert "memory bank files" in made.out
    elsewhere = str(tmp_path / "elsewhere")
    back = stored("restore", str(file), "--data-dir", elsewhere)
    assert back.status == 0
    assert listed(stored, "--data-dir", elsewhere) == [SAID] == listed(stored)


def test_json_tells_what_was_done(stored: Run, file: Path, tmp_path: Path) -> None:
    made = stored("backup", str(file), "--json").json
    assert made["file"] == str(file)
    assert made["projects"] == ["shop"]
    assert made["rows"]["records"] >= 1
    back = stored("restore", str(file), "--replace", "--yes", "--json").json
    assert Path(back["safety_copy"]).parent == tmp_path
    assert back["left"] == []


def test_a_file_that_is_there_is_the_callers_mistake(stored: Run, file: Path) -> None:
    file.touch()
    refused = stored("backup", str(file))
    assert refused.status == 2
    assert "--force" in refused.err
    assert stored("backup", str(file), "--force").status == 0


def test_replacing_asks_and_says_where_the_safety_copy_is(stored: Run, file: Path, tmp_path: Path) -> None:
    assert stored("backup", str(file)).status == 0
    assert stored("remember", "Said later", "--project", "shop").status == 0
    assert stored("restore", str(file)).status == 2
    assert stored("restore", str(file), "--replace").status == 2  # nobody can be asked
    declined = stored("restore", str(file), "--replace", stdin="n\n", terminal=True)
    assert "will be saved to" in declined.err
    assert listed(stored) == ["Said later", SAID]
    safety = tmp_path / "safety.zip"
    flags = ("--replace", "--safety-copy", str(safety))
    agreed = stored("restore", str(file), *flags, stdin="y\n", terminal=True)
    assert agreed.status == 0
    assert str(safety) in agreed.out
    assert listed(stored) == [SAID]
    assert zipfile.is_zipfile(safety)


def test_one_project_is_added_under_a_free_name(stored: Run, file: Path) -> None:
    assert stored("backup", str(file)).status == 0
    added = stored("restore", str(file), "--project", "shop")
    assert '"shop-2"' in added.out
    assert stored("restore", str(file), "--project", "nothing").status == 2
    replacing = stored("restore", str(file), "--project", "shop", "--replace", "--yes")
    assert replacing.status == 2
    assert "--replace" in replacing.err
    safety = stored("restore", str(file), "--project", "shop", "--safety-copy", "x.zip")
    assert safety.status == 2
    names = {p["name"] for p in stored("list-projects", "--json").json["projects"]}
    assert names == {"shop", "shop-2"}


def test_what_was_decided_since_the_backup_still_holds(stored: Run, file: Path) -> None:
    revoked = stored("token", "--json").json["id"]
    assert stored("backup", str(file)).status == 0
    assert stored("token", "revoke", revoked).status == 0
    assert stored("off", "--project", "shop").status == 0
    back = stored("restore", str(file), "--replace", "--yes")
    assert back.status == 0
    assert "Current tokens, accounts and grants are kept" in back.out
    assert "Memory is off for: shop." in back.out
    assert stored("list", "--project", "shop").status == 2
    assert revoked not in stored("token", "list").out
    added = stored("restore", str(file), "--project", "shop")
    assert "It is off" in added.out
    assert stored("list", "--project", "shop-2").status == 2
    assert stored("restore", str(file), "--project", "shop", "--json").json == {"project": "shop-3", "off": True}


def test_tokens_and_accounts_of_a_backup_are_counted_and_restored_on_request(
    stored: Run, file: Path, tmp_path: Path
) -> None:
    for user in ("anna", "bela"):
        assert stored("token", "--user", user).status == 0
        assert stored("grant", "shop", "--user", user).status == 0
    assert stored("revoke", "shop", "--user", "bela").status == 0
    assert stored("backup", str(file)).status == 0
    elsewhere = ("--data-dir", str(tmp_path / "elsewhere"))
    first = stored("restore", str(file), *elsewhere)
    assert "Not restored: 2 tokens, 2 accounts and 1 grant of the backup." in first.out
    assert f"everkept restore {file} --replace --with-access" in first.out
    assert stored("token", "list", "--json", *elsewhere).json["tokens"] == []
    second = stored("restore", str(file), "--replace", "--with-access", "--yes", *elsewhere)
    assert "Restored tokens, accounts and grants too." in second.out
    assert "Not restored" not in second.out
    assert len(stored("token", "list", "--json", *elsewhere).json["tokens"]) == 2
    safety = ("--safety-copy", str(tmp_path / "third.zip"))  # both in one second would have the same name
    third = stored("restore", str(file), "--replace", "--yes", "--json", *safety, *elsewhere)
    assert third.json["omitted"] == {"tokens": 0, "accounts": 0, "grants": 0}
    assert stored("restore", str(file), "--project", "shop", "--with-access").status == 2


def test_what_cannot_be_is_said_clearly(
    stored: Run, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert stored("backup", str(file), "--project", "shop").status == 2
    assert stored("restore", str(file)).status == 2
    file.write_text("no backup", encoding="utf-8")
    assert stored("restore", str(file), "--replace", "--yes").status == 2
    empty = stored("backup", str(tmp_path / "x.zip"), "--data-dir", str(tmp_path / "none"))
    assert empty.status == 2
    assert "nothing to back up" in empty.err
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    assert stored("restore", str(file), "--replace", "--yes").status == 2
    monkeypatch.setenv("EVERKEPT_DEPLOYMENT_MODE", "embedded-memory")
    assert stored("backup", str(file)).status == 2


def test_a_backup_that_is_ended_leaves_nothing(stored: Run, tmp_path: Path) -> None:
    arguments = ["backup", str(tmp_path / "copy.zip"), "--data-dir", str(tmp_path / "data")]
    ended = subprocess.run(
        [sys.executable, "-c", ENDED_EARLY, *arguments], env=environment(), timeout=HANG, check=False
    )
    assert ended.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_who_interrupts_a_backup_is_told_what_is_left(stored: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", interrupted)
        told = stored("backup", str(file))
    assert (told.status, told.err.strip()) == (130, f"Interrupted. {file} was not written.")
    assert not file.exists()
    stored("backup", str(file))
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", interrupted)
        told = stored("backup", str(file), "--force")
    assert told.err.strip() == f"Interrupted. {file} is unchanged."


def test_who_gives_up_a_restore_is_told_what_is_left(stored: Run, file: Path) -> None:
    stored("backup", str(file))
    told = stored("restore", str(file), "--replace", terminal=True)
    assert told.status == 130
    assert "is intact: unchanged" in told.err
    assert listed(stored) == [SAID]


def test_what_is_an_accounts_alone_comes_back_with_everything_and_never_as_a_project(
    stored: Run, file: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    kept_at_home(data)
    assert stored("backup", str(file), "--json").json["projects"] == ["shop"]
    refused = stored("restore", str(file), "--project", "@user (anna)")
    assert (refused.status, "private data of an account" in refused.err) == (2, True)
    assert "anna" not in stored("list-projects", "--status", "all").out
    assert "anna" not in stored("restore", str(file), "--project", "none").err
    assert "1 project," in stored("restore", str(file), "--replace", "--yes").out
    assert recalled_at_home(data) == [DIARY]


def test_what_was_a_removed_accounts_alone_does_not_come_back(stored: Run, file: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for account in (ANNA, Account("bela")):
        kept_at_home(data, account)
    assert stored("backup", str(file)).status == 0
    assert stored("account", "remove", "anna", "--yes").status == 0
    made_account(data)  # another of that name
    assert stored("restore", str(file), "--replace", "--yes").status == 0
    assert stored("status", "--json").json["accounts"]["accounts"] == 1  # bela's
    assert recalled_at_home(data) == []
    assert recalled_at_home(data, Account("bela")) == [DIARY]
    assert stored("doctor").status == 0
