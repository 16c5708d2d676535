import hashlib
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from certificates import certificate
from everkept.errors import Conflict, InvalidInput
from everkept.peers.identity import ensure_identity, read_fingerprint


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    first = ensure_identity(tmp_path / "data")
    again = ensure_identity(tmp_path / "data")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.fingerprint == again.fingerprint
    assert ensure_identity(tmp_path / "other").fingerprint != first.fingerprint


def test_a_server_can_use_it_and_only_its_owner_read_it(tmp_path: Path) -> None:
    made = ensure_identity(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    if sys.platform != "win32":
        assert {each.stat().st_mode & 0o777 for each in (made.key, made.certificate)} == {0o600}
    parsed = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    years = (parsed.not_valid_after_utc - datetime.now(UTC)).days / 365
    assert 9.9 < years < 10.1


def test_a_fingerprint_is_that_of_the_certificate_in_any_form(tmp_path: Path) -> None:
    both = certificate(tmp_path)  # key and certificate in one file
    pem = both.read_text(encoding="ascii")
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])
    (tmp_path / "plain.der").write_bytes(der)
    expected = hashlib.sha256(der).hexdigest()
    assert read_fingerprint(both) == read_fingerprint(tmp_path / "plain.der") == expected


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_has_no_fingerprint(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.pem"
    file.write_bytes(content)
    with pytest.raises(InvalidInput):
        read_fingerprint(file)
    with pytest.raises(InvalidInput):
        read_fingerprint(tmp_path / "nothing.pem")


def test_half_an_identity_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    made = ensure_identity(tmp_path)
    key = made.key.read_bytes()
    made.certificate.unlink()
    with pytest.raises(Conflict):
        ensure_identity(tmp_path)
    assert made.key.read_bytes() == key
    made.key.unlink()
    made.certificate.write_bytes(b"kept")
    with pytest.raises(Conflict):
        ensure_identity(tmp_path)
    assert made.certificate.read_bytes() == b"kept"
