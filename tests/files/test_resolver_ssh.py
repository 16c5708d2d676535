"""What is particular to folders on other machines."""

import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from everkept.core.files import FileStore
from everkept.errors import EverkeptError, InvalidInput, Refused, StorageFull
from everkept.files.resolver import FileStoreResolver, SshConnections, SshOptions
from ssh_servers import LOOPBACK, Keys, SftpFactory, asyncssh_server


@asynccontextmanager
async def store_on(folder: Path, sftp: SftpFactory | None = None) -> AsyncIterator[FileStore]:
    """Of `files` in the folder, on a server that may have its own ideas."""
    keys = Keys.made_in(folder / "keys")
    async with asyncssh_server(folder, keys, sftp=sftp) as server:
        connections = SshConnections(server.options)
        path = str(folder / "files") if sftp else "/files"
        yield await connections.open_folder(server.user, LOOPBACK, server.port, path)
        await connections.close()


async def test_an_address_leads_to_the_store_that_has_it(tmp_path: Path) -> None:
    keys = Keys.made_in(tmp_path / "keys")
    async with asyncssh_server(tmp_path, keys) as server:
        files = FileStoreResolver(server.options)
        address = f"ssh://{server.user}@{LOOPBACK}:{server.port}/50%25 of it"
        store = await files.open_folder(address)
        await store.write("note.md", b"there")
        assert store.address == address
        assert store.is_remote
        assert (tmp_path / "50% of it" / "note.md").read_bytes() == b"there"
        await files.close()


@pytest.mark.parametrize("path", ["/~/notes", "~/notes", "notes", "/~/notes/"])
async def test_a_tilde_means_where_a_session_begins(tmp_path: Path, path: str) -> None:
    keys = Keys.made_in(tmp_path / "keys")
    async with asyncssh_server(tmp_path, keys) as server:
        connections = SshConnections(server.options)
        store = await connections.open_folder(server.user, LOOPBACK, server.port, path)
        await store.write("a/note.md", b"there")
        assert (tmp_path / "notes" / "a" / "note.md").read_bytes() == b"there"
        assert store.address.endswith("/~/notes")
        await connections.close()


@pytest.mark.parametrize("path", ["", "/a\0b", "/a\nb"])
async def test_a_path_that_names_nothing_is_an_error(path: str) -> None:
    with pytest.raises(InvalidInput):
        await SshConnections(SshOptions()).open_folder("ada", "example.org", None, path)


async def test_one_folder_has_one_store() -> None:
    connections = SshConnections(SshOptions())
    first, again, other = [
        await connections.open_folder("ada", "example.org", None, path) for path in ("/a", "/a/", "/b")
    ]
    assert first is again
    assert first is not other


def test_a_program_without_far_folders_does_not_load_ssh() -> None:
    code = "import everkept.files.resolver, sys; sys.exit('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_server_that_cannot_replace_a_file_is_refused(tmp_path: Path) -> None:
    class Old(asyncssh.SFTPServer):
        def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
            raise NotImplementedError

    async with store_on(tmp_path, Old) as store:
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "note.md").write_bytes(b"old")
        with pytest.raises(Refused) as caught:
            await store.write("note.md", b"new")
        assert "posix-rename@openssh.com" in str(caught.value.hint)
        assert os.listdir(tmp_path / "files") == ["note.md"]  # noqa: PTH208 (hidden ones too)
        assert await store.read("note.md") == b"old"


async def test_a_server_without_fsync_and_links_still_writes_and_locks(tmp_path: Path) -> None:
    class Plain(asyncssh.SFTPServer):
        def fsync(self, file_obj: object) -> None:
            raise NotImplementedError

        def link(self, oldpath: bytes, newpath: bytes) -> None:
            raise NotImplementedError

    async with store_on(tmp_path, Plain) as store:
        async with store.lock("bank"):
            await store.write("note.md", b"new")
        async with store.lock("bank"):
            assert await store.read("note.md") == b"new"
        assert [path.name for path in (tmp_path / "files").iterdir()] == ["note.md"]


def full(says: Exception, free: int) -> SftpFactory:
    """A server that has no room left after the first bytes of a file."""

    class Full(asyncssh.SFTPServer):
        def write(self, file_obj: object, offset: int, data: bytes) -> int:
            if offset > 0 or b"long" in data:
                super().write(file_obj, offset, data[:10])  # type: ignore[arg-type]
                raise says
            return super().write(file_obj, offset, data)  # type: ignore[return-value]

        def statvfs(self, path: bytes) -> asyncssh.SFTPVFSAttrs:
            return asyncssh.SFTPVFSAttrs(bsize=512, frsize=512, bavail=free, bfree=free)

    return Full


@pytest.mark.parametrize(
    "server",
    [
        full(OSError(errno.ENOSPC, "No space left on device"), free=1000),
        full(OSError(errno.EDQUOT, "Disk quota exceeded"), free=1000),
        full(asyncssh.SFTPFailure("Failure"), free=0),
    ],
    ids=["no space", "quota", "without a reason"],
)
async def test_a_full_disk_changes_nothing_and_is_named(tmp_path: Path, server: SftpFactory) -> None:
    async with store_on(tmp_path, server) as store:
        await store.write("note.md", b"old")
        with pytest.raises(StorageFull):
            await store.write("note.md", b"long" * 1000)
        with pytest.raises(StorageFull):
            await store.append("note.md", b"long" * 1000)
        assert [path.name for path in (tmp_path / "files").iterdir()] == ["note.md"]
        assert await store.read("note.md") == b"old"


async def test_a_failure_without_a_reason_is_no_full_disk(tmp_path: Path) -> None:
    async with store_on(tmp_path, full(asyncssh.SFTPFailure("Failure"), free=1000)) as store:
        with pytest.raises(EverkeptError) as caught:
            await store.write("note.md", b"long")
        assert caught.value.code == "unavailable"


async def test_a_link_out_of_what_the_server_shows_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shown = tmp_path / "shown"
    for folder in (outside, shown / "files"):
        folder.mkdir(parents=True)
    (outside / "secret.md").write_bytes(b"secret")
    (shown / "files" / "way").symlink_to(outside)
    (shown / "files" / "file.md").symlink_to(outside / "secret.md")
    async with store_on(shown) as store:
        for path in ("file.md", "way/secret.md", "way/new/other.md"):
            with pytest.raises(Refused):
                await store.read(path)
            with pytest.raises(Refused):
                await store.write(path, b"")
        assert await store.list() == []
    assert [path.name for path in outside.iterdir()] == ["secret.md"]


async def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    async with store_on(tmp_path) as store:
        await store.write("note.md", b"old")
        file = tmp_path / "files" / "note.md"
        file.chmod(0o640)
        before = file.stat().st_mode
        await store.write("note.md", b"new")
        assert file.stat().st_mode == before


async def test_a_large_file_comes_and_goes_in_many_requests(tmp_path: Path) -> None:
    data = os.urandom(9_000_000)
    async with store_on(tmp_path) as store:
        await store.write("large.bin", data)
        assert (tmp_path / "files" / "large.bin").read_bytes() == data
        assert await store.read("large.bin") == data
        assert await store.read("large.bin", start=8_999_990) == data[-10:]
        assert await store.read("large.bin", start=9_000_001) == b""


async def test_the_log_is_quiet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        async with store_on(tmp_path) as store:
            await store.write("note.md", b"new")
    assert [record for record in caplog.records if record.name.startswith("asyncssh")] == []
