import sys
from pathlib import Path

import pytest

from everkept.core.extras import format_install_hint
from everkept.errors import InvalidInput, Unavailable
from everkept.files.resolver import FileStoreResolver, SshAddress, parse_address
from file_stores import outcome


@pytest.mark.parametrize(
    ("address", "user", "host", "port", "path"),
    [
        ("ssh://ada@example.org/srv/bank", "ada", "example.org", None, "/srv/bank"),
        ("ssh://ada@example.org:2222/srv/bank/", "ada", "example.org", 2222, "/srv/bank"),
        ("SSH://ada@Example.org/", "ada", "Example.org", None, "/"),
        ("ssh://ada@[2001:db8::1]/srv", "ada", "2001:db8::1", None, "/srv"),
        ("ssh://ada@[fe80::1%eth0]:22/srv", "ada", "fe80::1%eth0", 22, "/srv"),
        ("ssh://ada@10.0.0.7/a%20b/%C3%A4%2525", "ada", "10.0.0.7", None, "/a b/ä%25"),
        ("ssh://ada.b-c_d@host/x@y:z", "ada.b-c_d", "host", None, "/x@y:z"),
        ("ssh://we%40corp@host/x", "we@corp", "host", None, "/x"),
    ],
)
def test_an_address_of_ssh_is_taken_apart(address: str, user: str, host: str, port: int | None, path: str) -> None:
    assert parse_address(address) == SshAddress(user, host, port, path)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "  ",
        "memory-bank",
        "./memory-bank",
        "../memory-bank",
        "a/../b",
        "/a\0b",
        "/a\nb",
        "~nobody-of-this-name/x",
        "ssh:/host/path",
        "ssh://",
        "ssh:///path",
        "ssh://host/path",
        "ssh://@host/path",
        "ssh://ada@/path",
        "ssh://ada@host",
        "ssh://ada@host:/path",
        "ssh://ada@host:0/path",
        "ssh://ada@host:65536/path",
        "ssh://ada@host:99999999999999999999/path",
        "ssh://ada@host:x/path",
        "ssh://ada@host:²/path",
        "ssh://ada@-oProxyCommand=x/path",
        "ssh://ada@ho st/path",
        "ssh://ada@2001:db8::1/path",
        "ssh://ada@[2001:db8::1/path",
        "ssh://ada@[host]/path",
        "ssh://ada@host/%zz",
        "ssh://ada@host/%2",
        "ssh://ada@host/%ff",
        "ssh://ada@host/a%00b",
        "ssh://ada@host/a%0Ab",
        "http://host/path",
        "file:///path",
        "sftp://ada@host/path",
    ],
    ids=repr,
)
async def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        await FileStoreResolver().open_folder(address)


@pytest.mark.parametrize(
    "address",
    [
        "ssh://ada:hunter2@host/path",
        "ssh://ada:hunter2@/path",
        "ssh://ada:hunter2@host:x/path",
        "ssh://ada:hunter2@host/%zz",
        "ssh://ada:a/hunter2@host/path",
        "ssh://ada:hunter2@b@host/path",
        "ssh://:hunter2@host/path",
        "http://ada:hunter2@host/path",
    ],
)
async def test_a_password_is_refused_and_never_repeated(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await FileStoreResolver().open_folder(address)
    assert "hunter2" not in str(caught.value.to_envelope())


async def test_a_path_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    store = await FileStoreResolver().open_folder(str(tmp_path / "bank"))
    assert store.address == str(tmp_path / "bank")
    assert not store.is_remote
    assert await store.read_info() is None


async def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert (await FileStoreResolver().open_folder("~/bank")).address == str(tmp_path / "bank")


async def test_one_folder_has_one_store_whatever_leads_to_it(tmp_path: Path) -> None:
    files = FileStoreResolver()
    (tmp_path / "bank").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "bank")
    store = await files.open_folder(str(tmp_path / "bank"))
    assert await files.open_folder(str(tmp_path / "link")) is store
    assert await files.open_folder(f"{tmp_path}/other/../bank/") is store
    assert await files.open_folder(str(tmp_path / "other")) is not store
    await files.close()


async def test_without_asyncssh_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    format_install_hint("ssh")  # loads what it needs while there is a path
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.delitem(sys.modules, "asyncssh", raising=False)
    files = FileStoreResolver()
    with pytest.raises(Unavailable) as caught:
        await files.open_folder("ssh://ada@host/path")
    assert caught.value.hint == format_install_hint("ssh")
    assert await outcome(files.close()) == "ok"
