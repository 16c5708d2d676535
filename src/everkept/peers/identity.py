"""The self-signed certificate that identifies this server to its peers."""

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from everkept.core.disk import create, make_folder, replace, translate_os_errors
from everkept.errors import Conflict, InvalidInput
from everkept.values import Value

CERTIFICATE_FILE, KEY_FILE = "peer-certificate.pem", "peer-key.pem"
VALID_YEARS = 10
MAX_FILE_BYTES = 1024 * 1024  # of a certificate file
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class ServerIdentity(Value):
    certificate: Path
    key: Path
    fingerprint: str
    is_new: bool


def ensure_identity(folder: Path) -> ServerIdentity:
    """Return the existing certificate, or create one. It is never replaced, because peers know its fingerprint."""
    certificate, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
    if certificate.exists() and key.exists():
        return ServerIdentity(certificate, key, read_fingerprint(certificate), is_new=False)
    if certificate.exists():
        raise Conflict(
            f"The certificate {certificate} has no key: {key} is missing.",
            hint="Restore the key, or delete the certificate to get a new one with a new fingerprint.",
            path=str(certificate),
        )
    secret, public = _create_certificate()
    with translate_os_errors(key):
        make_folder(folder)
        try:
            create(key, secret)
        except FileExistsError:
            raise Conflict(
                f"The key {key} has no certificate. Another process may be creating it.",
                hint="Try again. If the error stays, delete the key.",
                path=str(key),
            ) from None
        replace(certificate, public)
    return ServerIdentity(certificate, key, read_fingerprint(certificate), is_new=True)


def read_fingerprint(file: Path) -> str:
    """Return the fingerprint of the first certificate in a PEM or DER file. Raise InvalidInput if there is none."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidInput(
            f"Cannot read {file}: {error.strerror}.",
            hint="Check the path and its permissions.",
            argument="certificate",
            value=str(file),
        ) from None
    text = content.decode("ascii", "replace")
    try:
        if _BEGIN in text:
            block = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
            content = ssl.PEM_cert_to_DER_cert(block)
        # Reject other files: no server would ever have their fingerprint.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content)
    except (ValueError, ssl.SSLError):
        raise InvalidInput(
            f"{file} does not contain a certificate.",
            hint="Pass a certificate file in PEM or DER format.",
            argument="certificate",
            value=str(file),
        ) from None
    return hashlib.sha256(content).hexdigest()


def _create_certificate() -> tuple[bytes, bytes]:
    """Return a key and a certificate in PEM. Peers compare only the fingerprint, so its content does not matter."""
    from everkept.core.extras import expect_installed

    expect_installed("peers", "A new certificate")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "everkept")])
    begin = datetime.now(UTC) - timedelta(days=1)  # clocks may differ
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=365 * VALID_YEARS + VALID_YEARS // 4))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret, certificate.public_bytes(serialization.Encoding.PEM)
