"""The certificate that the HTTP server shows, read again when it is renewed."""

import logging
import os
import ssl
import stat
from pathlib import Path

from everkept.errors import InvalidInput

# In the line before each, of whatever kind it is.
A_CERTIFICATE, A_KEY = b"CERTIFICATE-----", b"PRIVATE KEY-----"
ANOTHERS = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
OTHERS = 0o077  # what group and others may do

Stamp = tuple[tuple[int, int, int], ...]

log = logging.getLogger(__name__)


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Speaks TLS with that certificate; without a `key` the file of the certificate holds it too.

    A file that was changed counts from the next connection on. While it cannot be used, the
    certificate before it does.
    """
    key = key or certificate
    for path, flag in ((certificate, "--certificate"), (key, "--certificate-key")):
        if not path.is_file():
            raise _wrong(flag, path, "which is no file")
    renewing = _Renewing(certificate, key)
    context = renewing.context
    context.sni_callback = renewing.choose
    return context


def key_warning(certificate: Path, key: Path | None) -> str | None:
    """What is not safe about the key, as far as the files can tell."""
    path = key or certificate
    if os.name != "posix" or not stat.S_IMODE(path.stat().st_mode) & OTHERS:
        return None
    return f"Other users of this machine may read the key {path}: chmod 600 {path}"


class _Renewing:
    """Looks at the files when a connection begins: two calls of the system."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._stamp = self._stamped()
        self.context = _loaded(certificate, key)

    def choose(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        try:
            self._renew()
        except (OSError, InvalidInput) as error:
            log.warning("the renewed certificate is not used: %s", error)
        connection.context = self.context

    def _renew(self) -> None:
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp  # one that cannot be used is told of once
            self.context = _loaded(self._certificate, self._key)

    def _stamped(self) -> Stamp:
        found = [path.stat() for path in (self._certificate, self._key)]
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)


def _loaded(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    asked: list[str] = []

    def no_password() -> str:
        asked.append("")
        return asked[-1]

    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as error:  # which ssl's own errors are too
        if asked:
            wrong = _wrong("--certificate-key", key, "which has a password; one without it works")
        elif not _holds(certificate, A_CERTIFICATE):
            wrong = _wrong("--certificate", certificate, "which holds no certificate")
        elif key == certificate and not _holds(key, A_KEY):
            what = "which holds no key; --certificate-key names the file that does"
            wrong = _wrong("--certificate", certificate, what)
        elif not _holds(key, A_KEY):
            wrong = _wrong("--certificate-key", key, "which holds no key")
        elif getattr(error, "reason", None) in ANOTHERS:
            wrong = _wrong("--certificate-key", key, f"which is not the key of {certificate}")
        else:
            what = f"which with its key cannot be used ({error.strerror or error})"
            wrong = _wrong("--certificate", certificate, what)
        raise wrong from error
    return context


def _holds(path: Path, what: bytes) -> bool:
    try:
        return what in path.read_bytes()
    except OSError:  # which is another matter
        return True


def _wrong(flag: str, path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{flag} names {path}, {what}.",
        hint="Both are files in PEM: the certificate with those it rests on, and its private key.",
        argument=flag,
        value=str(path),
    )
