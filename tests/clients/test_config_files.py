import errno
import os
import stat
from pathlib import Path

import pytest

from everkept.clients.config_files import (
    ConfigFileContent,
    back_up,
    list_backups,
    read_config_file,
    remove_config_file,
    replace_config_file,
)
from everkept.errors import EverkeptError, ReadOnly, Refused, StorageFull, Unavailable

is_posix = os.name == "posix"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_read_with_the_mark_before_it_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert read_config_file(file) is None
    file.write_bytes(b"\xef\xbb\xbf{}\r\n")
    held = read_config_file(file)
    assert held == ConfigFileContent(b"\xef\xbb\xbf{}\r\n", "{}\r\n", has_mark=True)
    assert held.encode_text("[]\r\n") == b"\xef\xbb\xbf[]\r\n"


def test_what_is_no_file_of_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    (tmp_path / "file").write_text("", encoding="utf-8")
    for path in ("folder", "latin", "file/below"):
        with pytest.raises(Refused) as raised:
            read_config_file(tmp_path / path)
        assert str(tmp_path / path) in raised.value.message


def test_replacing_keeps_the_permissions_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")
    file.chmod(0o640)
    before = mode(file)
    replace_config_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert mode(file) == before
    assert names(tmp_path) == ["a.json"]


def test_a_new_file_is_its_owners_unless_it_is_shared(tmp_path: Path) -> None:
    replace_config_file(tmp_path / "deep" / "er" / "a.json", b"x")
    replace_config_file(tmp_path / "b.json", b"x", is_shared=True)
    assert (tmp_path / "deep" / "er" / "a.json").read_bytes() == b"x"
    if is_posix:
        assert mode(tmp_path / "deep" / "er" / "a.json") == 0o600
        assert mode(tmp_path / "b.json") == 0o644


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles" / "a.json", tmp_path / "a.json"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    copy = back_up(link, b"old", "now")
    replace_config_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert copy.parent == tmp_path
    assert names(target.parent) == ["a.json"]


def test_a_link_that_leads_nowhere_yet_gets_its_file(tmp_path: Path) -> None:
    link = tmp_path / "a.json"
    link.symlink_to(tmp_path / "later" / "b.json")
    assert read_config_file(link) is None
    replace_config_file(link, b"new")
    assert (tmp_path / "later" / "b.json").read_bytes() == b"new"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(EverkeptError):
        read_config_file(tmp_path / "a")


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")
    file.chmod(0o444)
    with pytest.raises(ReadOnly):
        replace_config_file(file, b"new")
    assert file.read_bytes() == b"old"
    file.chmod(0o644)
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StorageFull), (errno.EACCES, ReadOnly), (errno.EROFS, ReadOnly), (errno.EIO, Unavailable)],
)
def test_what_the_system_refuses_is_told_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[EverkeptError]
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(kind) as raised:
        replace_config_file(file, b"new")
    assert str(file) in raised.value.message
    with pytest.raises(kind):
        back_up(file, b"old", "now")
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["a.json"]


def test_copies_lie_beside_the_file_and_never_over_each_other(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"three")
    file.chmod(0o600)
    (tmp_path / "a.json5").write_bytes(b"another")
    first = back_up(file, b"one", "20260102-030405")
    second = back_up(file, b"two", "20260102-030405")
    third = back_up(file, b"three", "20260102-030406")
    assert first.name == "a.json.everkept-backup-20260102-030405"
    assert list_backups(file) == [third, second, first]
    assert [copy.read_bytes() for copy in list_backups(file)] == [b"three", b"two", b"one"]
    if is_posix:
        assert mode(first) == 0o600
    remove_config_file(first)
    remove_config_file(first)
    assert list_backups(file) == [third, second]
    assert list_backups(tmp_path / "none" / "x") == []


def test_copies_that_lie_elsewhere_are_their_owners_alone(tmp_path: Path) -> None:
    copies = tmp_path / "data" / "copies"
    for folder in ("one", "two"):
        file = tmp_path / folder / "a.json"
        file.parent.mkdir()
        file.write_bytes(folder.encode())
        file.chmod(0o644)
        assert list_backups(file, copies) == []
        copy = back_up(file, folder.encode(), "now", copies)
        assert list_backups(file, copies) == [copy]
        assert copy.read_bytes() == folder.encode()
        assert names(file.parent) == ["a.json"]
        if is_posix:
            assert mode(copy) == 0o600
            assert {mode(each) for each in copy.parents[:3]} == {0o700}
