"""Search for a wheel of pip, for a Python without pip and ensurepip."""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import sys
import sysconfig
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

FINAL_RELEASE = re.compile(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl")
OLDEST_PYTHON = re.compile(r">=\s*3\.(\d+)")
TIMEOUT = 30  # seconds


@dataclass(frozen=True, slots=True)
class Wheel:
    url: str
    sha256: str | None
    version: tuple[int, ...]


def bundled() -> Path | None:
    """Return the newest wheel of pip on this machine, of any Python."""
    return max(_on_this_machine(), key=_version, default=None)


def fetch(into: Path, environ: Mapping[str, str]) -> Path | None:
    """Download the newest pip from the index that the user's settings of pip or uv name.

    Raise OSError if no index can be reached, or if a download does not match its announced digest.
    """
    wheels: list[Wheel] = []
    unreachable: OSError | None = None
    for page in _pages(environ):
        try:
            wheels += _wheels_on(page)
        except OSError as error:
            unreachable = error
    if not wheels:
        if unreachable:
            raise unreachable
        return None
    newest = max(wheels, key=lambda wheel: wheel.version)
    content = _read(newest.url)
    if newest.sha256 not in {None, hashlib.sha256(content).hexdigest()}:
        raise OSError("the wheel of pip does not have the hash its index announced")
    wheel = into / _name(newest.url)
    wheel.write_bytes(content)
    return wheel


def _on_this_machine() -> Iterator[Path]:
    places = [
        Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/usr/share/python-wheels"),
        Path("/usr/share/python-wheels"),
        *Path(sys.base_prefix).glob("lib*/python3*/ensurepip/_bundled"),
        Path(sys.base_prefix, "Lib/ensurepip/_bundled"),
    ]
    for place in places:
        yield from filter(_version, place.glob("pip-*.whl"))


def _version(wheel: Path | str) -> tuple[int, ...]:
    """Return the version, or an empty one if it is not a final release of pip."""
    match = FINAL_RELEASE.fullmatch(Path(wheel).name)
    return tuple(map(int, match[1].split("."))) if match else ()


def _pages(environ: Mapping[str, str]) -> Iterator[str]:
    """Return the addresses of pages or folders that may list wheels of pip."""
    settings = {key: value.split() for key, value in _pip_settings(environ).items()}
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        if name in environ:
            settings[name.removeprefix("PIP_").lower().replace("_", "-")] = environ[name].split()
    indexes = [*settings.get("index-url", []), *settings.get("extra-index-url", [])]
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        # uv lets an index carry a name: `inner=https://...`
        indexes += [re.sub(r"^[\w.-]+=", "", part) for part in environ.get(name, "").split()]
    folders = [*settings.get("find-links", []), *environ.get("UV_FIND_LINKS", "").split(",")]
    yield from (f"{index.rstrip('/')}/pip/" for index in indexes)
    for folder in filter(None, folders):
        yield folder if "://" in folder else f"{Path(folder).absolute().as_uri()}/"


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    home = Path(environ.get("HOME") or Path.home())
    files = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        Path(environ.get("ProgramData", "C:/ProgramData")) / "pip/pip.ini",
        home / ".pip/pip.conf",
        home / "Library/Application Support/pip/pip.conf",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf",
        Path(environ.get("APPDATA") or home) / "pip/pip.ini",
    ]
    named = environ.get("PIP_CONFIG_FILE")
    if named:
        # pip's convention for "read no settings"
        files = [] if named == os.devnull else [*files, Path(named)]
    parser = configparser.RawConfigParser(strict=False)
    parser.read(files, encoding="utf-8")
    sections = [parser[name] for name in ("global", "install") if parser.has_section(name)]
    return {key: value for section in sections for key, value in section.items()}


def _wheels_on(page: str) -> Iterator[Wheel]:
    links = _Links()
    links.feed(_listing(page))
    for address, requires_python in links.found:
        oldest = OLDEST_PYTHON.search(requires_python)
        if oldest and int(oldest[1]) > sys.version_info.minor:
            continue
        url, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(page, address))
        if version := _version(_name(url)):
            sha256 = fragment.removeprefix("sha256=") if "sha256=" in fragment else None
            yield Wheel(url, sha256, version)


class _Links(HTMLParser):
    """The links of a page, each with the Pythons it is for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a" and (address := attributes.get("href")):
            self.found.append((address, attributes.get("data-requires-python") or ""))


def _listing(page: str) -> str:
    folder = _local(page)
    if folder is None:
        return _read(page).decode("utf-8", "replace")
    if (folder / "index.html").is_file():
        return (folder / "index.html").read_text(encoding="utf-8")
    return "".join(f'<a href="{wheel.as_uri()}"></a>' for wheel in folder.glob("pip-*.whl"))


def _read(url: str) -> bytes:
    path = _local(url)
    if path is not None:
        return path.read_bytes()
    request = urllib.request.Request(_trusted(url), headers={"Accept": "text/html, */*"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        _trusted(response.url)
        return response.read()


def _local(url: str) -> Path | None:
    parts = urllib.parse.urlsplit(url)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None


def _trusted(url: str) -> str:
    """Return the address. Raise OSError unless no one between this machine and the index can change its pages."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" or parts.hostname in {"localhost", "127.0.0.1", "::1"}:
        return url
    raise OSError("an index must be reached by https")


def _name(url: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]
