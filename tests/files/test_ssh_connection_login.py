"""Who is let in, whose key is trusted, and what is said when it is not."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from everkept.core.files import FileStore
from everkept.errors import EverkeptError, InvalidInput, Refused, Unavailable
from everkept.files.resolver import SshConnections, SshOptions
from everkept.values import replace
from ssh_servers import LOOPBACK, Keys, SshServer, asyncssh_server, free_port


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys.made_in(tmp_path / "keys")


@pytest.fixture
async def server(tmp_path: Path, keys: Keys) -> AsyncIterator[SshServer]:
    served = tmp_path / "served"
    served.mkdir()
    (served / "note.md").write_bytes(b"there")
    async with asyncssh_server(served, keys) as server:
        yield server


async def read(server: SshServer, options: SshOptions, host: str = LOOPBACK) -> bytes:
    connections = SshConnections(options)
    try:
        files: FileStore = await connections.open_folder(server.user, host, server.port, "/")
        return await files.read("note.md")
    finally:
        await connections.close()


async def refusal(server: SshServer, options: SshOptions, host: str = LOOPBACK) -> EverkeptError:
    with pytest.raises(EverkeptError) as caught:
        await read(server, options, host)
    return caught.value


def fingerprint(key: Path) -> str:
    return asyncssh.read_public_key(key.with_suffix(".pub")).get_fingerprint()


async def test_a_known_host_lets_a_known_key_in(server: SshServer) -> None:
    assert await read(server, server.options) == b"there"


async def test_an_unknown_host_is_refused_with_the_way_to_accept_it(server: SshServer, keys: Keys) -> None:
    keys.known_hosts.unlink()
    error = await refusal(server, server.options)
    assert isinstance(error, Refused)
    assert error.facts["fingerprint"] == fingerprint(keys.host)
    assert fingerprint(keys.host) in error.message
    assert LOOPBACK in error.message
    assert f'ssh-keyscan -p {server.port} {LOOPBACK} >> "{keys.known_hosts}"' in str(error.hint)
    assert not keys.known_hosts.exists()


async def test_a_host_whose_key_was_changed_is_refused(server: SshServer, keys: Keys, tmp_path: Path) -> None:
    other = Keys.made_in(tmp_path / "other")
    other.make_known(server.port)
    error = await refusal(server, replace(server.options, known_hosts=other.known_hosts))
    assert isinstance(error, Refused)
    assert error.facts["fingerprint"] == fingerprint(keys.host)
    assert f'ssh-keygen -R "[{LOOPBACK}]:{server.port}"' in str(error.hint)


async def test_a_host_that_has_a_key_of_another_kind_now_is_refused(server: SshServer, keys: Keys) -> None:
    key = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
    keys.known_hosts.write_text(f"[{LOOPBACK}]:{server.port} {key}", encoding="ascii")
    error = await refusal(server, server.options)
    assert isinstance(error, Refused)
    assert "ssh-keygen -R" in str(error.hint)


async def test_a_revoked_key_is_refused(server: SshServer, keys: Keys) -> None:
    known = keys.known_hosts.read_text(encoding="ascii")
    keys.known_hosts.write_text(f"{known}\n@revoked {known}", encoding="ascii")
    assert isinstance(await refusal(server, server.options), Refused)


async def test_known_hosts_that_cannot_be_read_trust_nobody(server: SshServer, keys: Keys) -> None:
    keys.known_hosts.write_text("@nonsense\n", encoding="ascii")
    error = await refusal(server, server.options)
    assert isinstance(error, InvalidInput)
    assert str(keys.known_hosts) in error.message


async def test_a_configuration_that_trusts_every_host_is_not_followed(
    server: SshServer, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    keys.config.write_text("UserKnownHostsFile none\n", encoding="utf-8")
    assert isinstance(await refusal(server, replace(server.options, known_hosts=None)), Refused)


async def test_the_configuration_names_hosts_and_the_files_that_know_them(server: SshServer, keys: Keys) -> None:
    keys.config.write_text(
        f"Host notes\n  HostName {LOOPBACK}\n  UserKnownHostsFile {keys.known_hosts}\n", encoding="utf-8"
    )
    assert await read(server, replace(server.options, known_hosts=None), host="notes") == b"there"


async def test_the_way_to_accept_a_host_names_it_as_it_is_reached(
    server: SshServer, keys: Keys, tmp_path: Path
) -> None:
    keys.config.write_text(f"Host notes\n  HostName {LOOPBACK}\n", encoding="utf-8")
    keys.known_hosts.unlink()
    unknown = await refusal(server, server.options, host="notes")
    assert f'ssh-keyscan -p {server.port} {LOOPBACK} >> "{keys.known_hosts}"' in str(unknown.hint)
    assert f"notes ([{LOOPBACK}]:{server.port})" in unknown.message
    other = Keys.made_in(tmp_path / "other")
    other.make_known(server.port)
    options = replace(server.options, known_hosts=other.known_hosts)
    changed = await refusal(server, options, host="notes")
    assert f'ssh-keygen -R "[{LOOPBACK}]:{server.port}"' in str(changed.hint)


async def test_the_way_to_accept_a_host_has_the_port_of_the_configuration(server: SshServer, keys: Keys) -> None:
    keys.config.write_text(f"Host notes\n  HostName {LOOPBACK}\n  Port {server.port}\n", encoding="utf-8")
    keys.known_hosts.unlink()
    files = await SshConnections(server.options).open_folder(server.user, "notes", None, "/")
    with pytest.raises(Refused) as caught:
        await files.read("note.md")
    assert f"ssh-keyscan -p {server.port} {LOOPBACK} " in str(caught.value.hint)


async def test_a_key_that_has_another_name_is_accepted_through_ssh_itself(server: SshServer, keys: Keys) -> None:
    keys.config.write_text(f"Host notes\n  HostName {LOOPBACK}\n  HostKeyAlias shelf\n", encoding="utf-8")
    keys.known_hosts.unlink()
    error = await refusal(server, server.options, host="notes")
    assert f'UserKnownHostsFile="{keys.known_hosts}" -p {server.port} ' in str(error.hint)
    assert f"{server.user}@notes" in str(error.hint)
    assert "notes (shelf)" in error.message


async def test_a_configuration_that_is_not_there_is_an_error(server: SshServer, tmp_path: Path) -> None:
    error = await refusal(server, replace(server.options, config=tmp_path / "none"))
    assert isinstance(error, InvalidInput)


async def test_the_keys_in_the_home_folder_are_tried_without_another(
    server: SshServer, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    error = await refusal(server, replace(server.options, key=None))
    assert isinstance(error, Refused)
    assert "--ssh-key" in str(error.hint)
    (tmp_path / ".ssh").mkdir()
    keys.user.rename(tmp_path / ".ssh" / "id_ed25519")
    assert await read(server, replace(server.options, key=None)) == b"there"


async def test_a_key_that_the_host_does_not_know_is_refused(server: SshServer, tmp_path: Path) -> None:
    other = Keys.made_in(tmp_path / "other")
    error = await refusal(server, replace(server.options, key=other.user))
    assert isinstance(error, Refused)
    assert str(other.user) in error.message
    assert "authorized_keys" in str(error.hint)


async def test_an_encrypted_key_that_no_agent_has_open_is_named(
    server: SshServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = asyncssh.read_private_key(keys.user)
    keys.user.write_bytes(key.export_private_key("pkcs8-pem", passphrase="secret", cipher_name="aes256-cbc"))
    error = await refusal(server, server.options)
    assert isinstance(error, Refused)
    assert "passphrase" in error.message
    assert "ssh-add" in str(error.hint)


@pytest.mark.parametrize("content", [b"", b"no key at all", b"\xff\xfe\0"])
async def test_a_file_that_is_no_key_is_an_error_that_does_not_show_it(
    server: SshServer, keys: Keys, content: bytes
) -> None:
    keys.user.write_bytes(content)
    error = await refusal(server, server.options)
    assert isinstance(error, InvalidInput)
    assert str(keys.user) in error.message
    assert "no key at all" not in str(error.to_envelope())


async def test_the_public_half_of_a_key_does_not_do(server: SshServer, keys: Keys) -> None:
    error = await refusal(server, replace(server.options, key=keys.user.with_suffix(".pub")))
    assert isinstance(error, InvalidInput)
    assert ".pub" in str(error.hint)


async def test_a_key_that_is_not_there_is_named(server: SshServer, tmp_path: Path) -> None:
    error = await refusal(server, replace(server.options, key=tmp_path / "nowhere"))
    assert isinstance(error, InvalidInput)
    assert str(tmp_path / "nowhere") in error.message


async def test_a_folder_is_no_key(server: SshServer, tmp_path: Path) -> None:
    assert isinstance(await refusal(server, replace(server.options, key=tmp_path)), InvalidInput)


async def test_a_host_where_nobody_listens_is_unavailable(server: SshServer) -> None:
    error = await refusal(dataclasses.replace(server, port=free_port()), server.options)
    assert isinstance(error, Unavailable)
    assert error.retry_possible


async def test_a_host_that_says_nothing_is_given_up(server: SshServer) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, LOOPBACK, 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        error = await refusal(dataclasses.replace(server, port=port), replace(server.options, connect_seconds=0.05))
    assert isinstance(error, Unavailable)
    assert error.retry_possible


async def test_a_host_without_sftp_is_unavailable(tmp_path: Path, keys: Keys) -> None:
    async with asyncssh_server(tmp_path, keys, has_sftp=False) as server:
        error = await refusal(server, server.options)
    assert isinstance(error, Unavailable)
    assert "SFTP" in error.message
