"""Bundle the views: one HTML file for each module in `src/everkept/views/source` that begins with `// view for`.

A view imports modules of the console and of that folder, and gets the styles that they use. `reference.py` writes
the files, beside everything else that comes from the code.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "everkept"
SOURCE = PACKAGE / "views" / "source"
TARGET = PACKAGE / "views"
CONSOLE = PACKAGE / "console" / "static"
STYLES = (*(CONSOLE / name for name in ("base.css", "parts.css", "pages.css")), SOURCE / "view.css")

HEAD = re.compile(r"^// view for (chat|browser): (.+)$", re.MULTILINE)
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
COMMENT = re.compile(r"/\*\*.*?\*/\s?|^[ \t]*//[^\n]*\n", re.MULTILINE | re.DOTALL)
LINE_START = re.compile(r"^\s+", re.MULTILINE)
NAME = re.compile(r"[.#]([A-Za-z][\w-]*)")
TAG = re.compile(r"(?<![\w.#:\-\[=\"])([a-z][a-z0-9]*)\b(?![-(])")
ALWAYS_THERE = {"html", "body"}

# No request of any kind, and no text that becomes HTML.
POLICY = (
    "default-src 'none'; script-src {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<script type="application/json" id="data">null</script>
<script>{script}</script>
</body>
</html>
"""


class Modules:
    """The modules of one view, each after the ones it imports."""

    def __init__(self, entry: Path) -> None:
        self.parts: list[str] = []
        self._names: dict[Path, str] = {}
        self._open: list[Path] = []
        self._add(entry)

    @property
    def script(self) -> str:
        script = '(() => {\n"use strict";\n' + "\n".join(self.parts) + "\n})();"
        for sign in ("</script", "<!--"):
            if sign in script.lower():
                raise SystemExit(f"A script cannot contain {sign}.")
        return script

    def _add(self, path: Path) -> str:
        if path in self._open:
            raise SystemExit(f"{path.name} imports itself by way of {self._open[-1].name}.")
        if path in self._names:
            return self._names[path]
        self._open.append(path)
        code = path.read_text(encoding="utf-8")
        uses = ""
        for names, address in IMPORT.findall(code):
            name = self._add((path.parent / address).resolve())
            uses += f"const {{{_compact(names).replace(' as ', ': ')}}} = {name};\n"
        code = IMPORT.sub("", code)
        exported = EXPORT.findall(code)
        code = EXPORT.sub("", LINE_START.sub("", COMMENT.sub("", code)))
        for statement in re.findall(r"^(?:import|export)\b.*", code, re.MULTILINE):
            raise SystemExit(f"{path.name}: the bundle does not know `{statement}`.")
        name = f"module{len(self._names)}"
        self._open.pop()
        self._names[path] = name
        self.parts.append(f"const {name} = (() => {{\n{uses}{code}return {{{', '.join(exported)}}};\n}})();")
        return name


def select_rules(style: str, script: str) -> str:
    """Return the rules whose elements, classes and ids the script names."""
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    kept = ""
    for head, body in _split_rules(style):
        if head.startswith("@media"):
            inner = select_rules(body, script)
            kept += f"{head}{{{inner}}}" if inner else ""
        elif head.startswith("@"):
            kept += f"{head}{{{_compact(body)}}}"
        else:
            used = [each for each in _split_selectors(head) if _is_used(each, script)]
            kept += f"{','.join(used)}{{{_compact(body)}}}\n" if used else ""
    return kept


def _split_rules(style: str) -> Iterator[tuple[str, str]]:
    depth = start = middle = 0
    for at, sign in enumerate(style):
        if sign == "{":
            depth += 1
            if depth == 1:
                middle = at
        elif sign == "}":
            depth -= 1
            if not depth:
                yield _compact(style[start:middle]), style[middle + 1 : at]
                start = at + 1


def _split_selectors(head: str) -> list[str]:
    return [each.strip() for each in re.split(r",(?![^(]*\))", head)]


def _is_used(selector: str, script: str) -> bool:
    plain = re.sub(r":not\([^)]*\)|\[[^\]]*\]", "", selector)
    names = {name for name in NAME.findall(plain) if not _is_named(name, script)}
    tags = {tag for tag in TAG.findall(NAME.sub("", re.sub(r"::?[\w-]+", "", plain))) if tag not in ALWAYS_THERE}
    return not names and all(f'"{tag}"' in script for tag in tags)


def _is_named(name: str, script: str) -> bool:
    """Return whether the script names a class. The digit of `kind-0` may be computed."""
    stem = re.sub(r"\d$", "${", name)
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", script) is not None or (stem != name and stem in script)


def _compact(text: str) -> str:
    return " ".join(text.split())


def bundle(entry: Path) -> str:
    """Return the HTML of a view."""
    code = entry.read_text(encoding="utf-8")
    [(place, title)] = HEAD.findall(code)
    script = Modules(entry).script
    style = select_rules("\n".join(path.read_text(encoding="utf-8") for path in STYLES), script)
    # A host may add a script or a style to a view in the chat.
    allowed = ("'unsafe-inline'", "'unsafe-inline'") if place == "chat" else (_hash(script), _hash(style))
    return PAGE.format(policy=POLICY.format(*allowed), title=title, style=style, script=script)


def _hash(text: str) -> str:
    """Return the source that allows this text in a policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def build_views() -> dict[Path, str]:
    """Return the HTML of each view by its path."""
    entries = [path for path in sorted(SOURCE.glob("*.js")) if HEAD.search(path.read_text(encoding="utf-8"))]
    return {TARGET / f"{entry.stem}.html": bundle(entry) for entry in entries}
