"""Optional packages: what each is for, whether it is installed, and how to install it."""

import json
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from everkept.errors import Unavailable
from everkept.values import Value

DISTRIBUTION = "everkept"
READY_FILE = ".everkept-ready"  # in an environment that `run` created; its first line is the checkout
BOOTSTRAP = Path("tools/bootstrap.py")  # of the checkout


class Extra(Value):
    """Optional packages under the name that installs them."""

    name: str
    package: str  # one that all uses import
    purpose: str

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None


EXTRAS = {
    each.name: each
    for each in (
        Extra("postgres", "psycopg", "PostgreSQL as the database"),
        Extra("surreal", "surrealdb", "SurrealDB as the database"),
        Extra("remote", "httpx2", "MCP servers at an address, in the gateway and in setup"),
        Extra("ssh", "asyncssh", "memory banks on other machines"),
        Extra("models", "tokenizers", "other embedding models, such as multilingual ones"),
        Extra("peers", "cryptography", "certificates of peer servers"),
        Extra("oauth", "jwt", "sign-in with an OpenID provider"),
    )
}


def expect_installed(extra: str, user: str, **facts: str) -> None:
    """Raise Unavailable if the package of an extra is missing. `user` is what needs it."""
    wanted = EXTRAS[extra]
    if not wanted.is_installed:
        raise Unavailable(
            f"{user} needs the package {wanted.package}, which is not installed.",
            hint=format_install_hint(extra),
            **facts,
        )


def find_own_checkout() -> Path | None:
    """Return the checkout whose `run` created this environment, if it can install more."""
    try:
        checkout = Path(Path(sys.prefix, READY_FILE).read_text(encoding="utf-8").split("\n", 1)[0])
    except OSError:
        return None
    return checkout if (checkout / BOOTSTRAP).is_file() else None


def format_install_hint(*names: str) -> str:
    """Return a sentence that explains how to install extras.

    It names the checkout, folder or wheel from which this program was installed.
    """
    if find_own_checkout() is not None:
        return f"To install it, run `everkept extras {' '.join(names)}`."
    source = _find_source()
    # These replace the environment, so they must name what it already has.
    held = {each.name for each in EXTRAS.values() if each.is_installed}
    if source is None:
        return f"Install the extra [{','.join(names)}] from the wheel or folder you installed Everkept from."
    parts = Path(sys.prefix).parts
    if "tools" in parts and "uv" in parts:
        return f"Run: uv tool install --force {_quote(source, {*names, *held})}"
    if "pipx" in parts:
        return f"Run: pipx install --force {_quote(source, {*names, *held})}"
    return f"Run: pip install {_quote(source, set(names))}"


def _quote(source: Path, names: set[str]) -> str:
    return shlex.quote(f"{source}[{','.join(sorted(names))}]")


def _find_source() -> Path | None:
    """Return the folder or file that pip installed this program from, if it still exists."""
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        url = str(cast(dict[str, Any], json.loads(text or "{}")).get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return None
    parts = urlsplit(url)
    path = Path(url2pathname(parts.path))
    return path if parts.scheme == "file" and path.exists() else None
