"""Realistic texts with and without secrets. The files hold shapes; the values are random, so that no line is a key."""

import base64
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent.parent / "core" / "data"
ALPHABETS = {
    "an": string.ascii_letters + string.digits,
    "lo": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "az": string.ascii_lowercase,
    "d": string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b64": string.ascii_letters + string.digits + "+/",
    "b64u": string.ascii_letters + string.digits + "-_",
    "pw": string.ascii_letters + string.digits + "!#%*+-.:=?^_~",
}
SHAPE = re.compile("⟨(?:(uuid|jwt)|(b64u|b64|[a-zA-Z]+)([0-9]+))⟩")
SECRET = re.compile("⟪(.*?)⟫", re.DOTALL)
PIECE = 8  # characters of a secret in a row that must not remain


class SecretSample(NamedTuple):
    shape: str  # the line of the file
    text: str
    secrets: tuple[str, ...]

    def shows_secret(self, masked: str) -> bool:
        """Return whether a telling piece of a secret remains in the masked text."""
        return any(
            secret[start : start + PIECE] in masked
            for secret in self.secrets
            for start in range(max(1, len(secret) - PIECE + 1))
        )


def read_secrets() -> list[SecretSample]:
    return list(_read("secrets.txt"))


def read_harmless() -> list[SecretSample]:
    return list(_read("harmless.txt"))


def _read(name: str) -> Iterator[SecretSample]:
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        if line and line != "#" and not line.startswith("# "):
            marked = expand(line)
            yield SecretSample(line, re.sub("[⟪⟫]", "", marked), tuple(SECRET.findall(marked)))


def expand(line: str) -> str:
    """Fill the shapes of a line with random characters that are the same in each run."""
    draw = random.Random(line)
    return SHAPE.sub(lambda found: _fill(draw, found), line).replace("⏎", "\n")


def _fill(draw: random.Random, found: re.Match[str]) -> str:
    kind, alphabet, count = found.groups()
    if kind == "uuid":
        return "-".join(_characters(draw, "hex", length) for length in (8, 4, 4, 4, 12))
    if kind == "jwt":
        head = _encode(b'{"alg":"HS256","typ":"JWT"}')
        body = _encode(f'{{"sub":"{_characters(draw, "an", 12)}","iat":1767600000}}'.encode())
        return f"{head}.{body}.{_characters(draw, 'b64u', 43)}"
    return _characters(draw, alphabet, int(count))


def _characters(draw: random.Random, alphabet: str, count: int) -> str:
    return "".join(draw.choice(ALPHABETS[alphabet]) for _ in range(count))


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
