import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from certificates import certificate
from everkept.errors import InvalidInput
from everkept.transports.http import build_tls_context, find_key_warning
from server_processes import HANG


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return certificate(folder)


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncGenerator[int, None]:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def shown(port: int, name: str = "") -> str:
    """The certificate that a client sees, whether it asks for a name or not."""
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(HANG):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        seen = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(seen)


def own(path: Path) -> str:
    """The certificate in a file that holds the key first."""
    text = path.read_text(encoding="ascii")
    return text[text.index("-----BEGIN CERTIFICATE") :]


def refusal(path: Path, key: Path | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        build_tls_context(path, key)
    return str(caught.value)


@pytest.mark.parametrize("name", ["", "memory.example"])
async def test_a_renewed_certificate_is_shown_to_the_next_who_comes(tmp_path: Path, name: str) -> None:
    first = made(tmp_path / "a")
    second = own(made(tmp_path / "b"))
    async with listening(build_tls_context(first, None)) as port:
        assert await shown(port, name) == own(first)
        (tmp_path / "b" / "certificate.pem").replace(first)
        assert await shown(port, name) == second


async def test_while_the_new_one_cannot_be_used_the_old_one_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path)
    text = path.read_text(encoding="ascii")
    async with listening(build_tls_context(path, None)) as port:
        path.write_text(text[:100], encoding="ascii")
        for _ in range(2):
            assert await shown(port) == text[text.index("-----BEGIN CERTIFICATE") :]
        assert caplog.text.count("is not used") == 1
        path.unlink()
        assert await shown(port) == text[text.index("-----BEGIN CERTIFICATE") :]


def test_a_key_of_another_certificate_is_refused_and_named(tmp_path: Path) -> None:
    path, other = made(tmp_path / "a"), made(tmp_path / "b")
    assert f"{other}, which is not the key of {path}" in refusal(path, other)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert str(tmp_path / "none.pem") in refusal(tmp_path / "none.pem")
    assert "--certificate-key" in refusal(path, tmp_path / "none.pem")
    assert "not a file" in refusal(tmp_path)


@pytest.mark.parametrize("text", ["", "nothing of the kind"])
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.pem"
    path.write_text(text, encoding="ascii")
    assert f"{path}, which does not contain a certificate" in refusal(path)
    good = made(tmp_path)
    assert f"{path}, which does not contain a key" in refusal(good, path)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    path = made(tmp_path)
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert "has a password" in refusal(path, locked)


def test_a_key_that_others_may_read_is_told_of(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.chmod(0o600)
    assert find_key_warning(path, None) is None
    key = tmp_path / "key.pem"
    key.write_bytes(path.read_bytes())
    key.chmod(0o644)
    told = find_key_warning(path, key)
    assert (str(key) in (told or "")) == (os.name == "posix")


def test_a_certificate_without_its_key_is_told_apart(tmp_path: Path) -> None:
    alone = tmp_path / "alone.pem"
    alone.write_text(own(made(tmp_path)), encoding="ascii")
    assert f"{alone}, which does not contain a key. Pass its file with --certificate-key" in refusal(alone)
