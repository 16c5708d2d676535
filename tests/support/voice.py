"""Everything the project says, read from its sources, and the rules that its words follow.

Run it as a program to list what breaks a rule: `python tests/support/voice.py [FILE...]`.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parent.parent.parent
MAX_SENTENCE_WORDS = 25
NEEDS_HINT = {"InvalidInput", "NotFound", "Refused", "Conflict"}
# Not prose: SQL and patterns.
CODE = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DEFINE|JOIN|THROW|WHERE)\b|\(\?|\\b|\w\|\w+\)")
CONTRACTS = ("Entity with name {…} not found",)  # sentences of another server, which programs know
INSTRUCTION = re.compile(r"\b(must|[Ss]pecify|[Pp]ass|[Uu]se|[Cc]onfirm)\b")
VALUE = "{…}"  # a value that is filled in

# What is banned, and what to write instead.
BANNED = {
    r"(?<!here )\b(is|are|was) (no|none)\b(?! longer)": "is not a …, does not exist, has no …",
    r"\bwhere (nobody|none|nothing|it is|that is|they are|there is)\b": "if, when",
    r"[Ss]ay --": "pass --, use --",
    r"[Ww]hoever\b|\b[Ss]omebody\b|\b[Nn]obody\b": "the caller, the owner, someone, no one",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\banew\b|\bmeanwhile\b|\bany more\b|\ball the same\b": "again; since then; no longer; anyway",
    r"\bfor good\b": "permanently",
    r"\bat once\b": "immediately; in one call; at the same time",
    r"\b(is|are|was|went|goes) away\b|\bis (not )?well\b": "is unreachable; is (un)healthy",
    r"\btak(e|es|en|ing) (it |them )?in\b": "import, read",
    r"\b(bring|brings|brought) over\b": "send, sync, replay",
    r"\bset aside\b": "rejected",
    r"\blea(ve|ves) (\w+ ){0,3}out\b|\bleft out\b": "omit, skip, exclude",
    r"\bput (\w+ ){0,3}away\b|\b(bring|brings|brought) (\w+ ){0,3}back\b": "archive; restore",
    r"\btak(e|es|en) (\w+ ){0,3}back\b|\bgiv(e|es|en) (\w+ )?up\b": "undo, reverse; discard",
    r"\bgiven out\b|\blets? (in|out)\b": "return, show; give access, revoke access",
    r"\btells? (of|what|which|who|how|more|the)\b": "shows, reports",
    r"\bstands? (in|at|beside|before|behind)\b|\blies (in|at|beside|below)\b": "is, appears",
    r"\bfits? (several|two|in)\b|\bthat fits?\b": "matches",
    r"\bblanks?\b|\b(no|make|enough) room\b": "empty, whitespace; disk space",
    r", as (`|in |with )": "such as",
    r"\belse[.;]|, [a-z0-9]+ else\b": "otherwise",
    r"\balone[.;:)]|\bof (its|their|our|your) own\b": "only; its own X, private",
    r"\bmakes one\b|\b(is|was|be) made\b": "creates, is created",
    r"\b(are|is|be) meant\b": "Did you mean …?; selected",
    r"\bas (it|they) (is|are|was)\b|\bgoes? on\b": "unchanged; continue",
    r"\bwhat (waits|there is|is there|was there|is kept)\b": "name it: pending writes, files, memories",
    r"^(Likewise|Only these|This one|Kept with it|Do not ask|Most|More|Span)\.$": "a real description",
    r"\bhalf a character\b": "unpaired surrogate (invalid Unicode)",
}
# On pages for people, which say nothing of how the product came about.
BANNED_ON_PAGES = {r"\bthe design\b|\bthis family\b|\bthe original('s)?\b": "leave it out"}

Surface = Literal["docstring", "comment", "string", "page"]


@dataclass(frozen=True)
class Passage:
    """One text of the project, with its place."""

    file: Path
    line: int
    surface: Surface
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT).as_posix()}:{self.line}"


def find_faults(files: Iterable[Path]) -> Iterator[str]:
    """List what breaks a rule, one line each."""
    for file in files:
        for passage in read_passages(file):
            yield from (f"{passage}: {fault}" for fault in judge_passage(passage))
        if file.suffix == ".py":
            nodes = list_nodes(file.read_text(encoding="utf-8"))
            shown = file.relative_to(ROOT).as_posix()
            yield from (f"{shown}:{line}: {fault}" for line, fault in judge_counts(nodes))
            yield from (f"{shown}:{line}: {fault}" for line, fault in judge_errors(nodes))


@lru_cache(1)  # each reader of a file asks for them
def list_nodes(source: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(source))]


def judge_passage(passage: Passage) -> Iterator[str]:
    text = " ".join(re.sub(r"`[^`\n]*`", "`x`", passage.text).split())
    bans = BANNED | BANNED_ON_PAGES if passage.surface == "page" else BANNED
    for pattern, instead in bans.items():
        if found := re.search(pattern, text):
            near = text[max(0, found.start() - 30) : found.end() + 20]
            yield f'"{found.group()}" in "…{near}…"; write: {instead}'
    # A list of words is a string too; a sentence has an end.
    if passage.surface != "comment" and (passage.surface != "string" or text.endswith((".", "!", "?", "…"))):
        for sentence in split_sentences(passage.text):
            if len(sentence.split()) > MAX_SENTENCE_WORDS:
                yield f'{len(sentence.split())} words in one sentence: "{sentence[:70]}…"'


def judge_counts(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Find counts whose noun does not follow them: `{len(found)} entities`."""
    for node in nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if (
                isinstance(value, ast.FormattedValue)
                and isinstance(after, ast.Constant)
                and _is_count(value)
                and (noun := re.match(r" ([a-z]+s)\b(?!')", str(after.value)))
            ):
                yield node.lineno, f"a count with the fixed noun {noun.group(1)}; use format_count()"


def _is_count(value: ast.FormattedValue) -> bool:
    """Whether it is a number that may be 1: a length, or a name such as `count`. Constants are not."""
    inner = value.value
    if isinstance(inner, ast.Call):
        return isinstance(inner.func, ast.Name) and inner.func.id in {"len", "sum"}
    name = inner.attr if isinstance(inner, ast.Attribute) else inner.id if isinstance(inner, ast.Name) else ""
    if name.isupper():
        return False
    with_commas = value.format_spec is not None and ast.unparse(value.format_spec) == "f','"
    return with_commas or bool(re.fullmatch(r"n|count|total|\w*_(count|total)", name))


def judge_errors(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Find errors that the caller can act on and that do not say how."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NEEDS_HINT:
            if any(keyword.arg in {"hint", None} for keyword in node.keywords):
                continue
            said = " ".join(_join_literal(argument) for argument in ast.walk(node) if _is_literal(argument))
            if not INSTRUCTION.search(said) and not said.startswith(CONTRACTS):
                yield node.lineno, f"{node.func.id} without a hint: {said[:80]}"


def read_passages(file: Path) -> Iterator[Passage]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return _read_python(file, text)
    return _read_page(file, text)


def _read_python(file: Path, source: str) -> Iterator[Passage]:
    docs: set[int] = set()
    inner: set[int] = set()
    for node in list_nodes(source):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(first := node.body[0], ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            docs.add(id(first.value))
            yield Passage(file, first.lineno, "docstring", first.value.value)
    for node in list_nodes(source):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in ast.walk(node) if part is not node)
        if not _is_literal(node) or id(node) in docs or id(node) in inner:
            continue
        if " " in (said := _join_literal(node)) and not CODE.search(said):
            yield Passage(file, getattr(node, "lineno", 0), "string", said)
    comments = ""
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# noqa", "# type:", "# pyright:")):
            continue
        if token.start[0] != last + 1 and comments:
            yield Passage(file, begin, "comment", comments)
            comments = ""
        begin = begin if comments else token.start[0]
        last = token.start[0]
        comments += token.string.lstrip("#") + "\n"
    if comments:
        yield Passage(file, begin, "comment", comments)


def _is_literal(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _join_literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _read_page(file: Path, text: str) -> Iterator[Passage]:
    """Read a page without its code; a cell of a table is a text by itself."""
    text = re.sub(
        r"^( *)```.*?^\1```", lambda block: "\n" * block.group().count("\n"), text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"<!--.*?-->", lambda block: "\n" * block.group().count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraph, begin = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("|"):
            yield from (Passage(file, number, "page", cell.strip()) for cell in line.split("|") if cell.strip(" -:"))
        elif re.match(r"\s*([-*]|\d+\.|#+) ", line) or not line.strip():
            if paragraph:
                yield Passage(file, begin, "page", paragraph)
            paragraph, begin = line, number
            if not line.strip() or line.startswith("#"):
                if line.strip():
                    yield Passage(file, number, "page", line.strip("# "))
                paragraph = ""
        else:
            begin = begin if paragraph else number
            paragraph += "\n" + line


def split_sentences(text: str) -> Iterator[str]:
    """Split into sentences; a list's items, a colon at the end of a line and a diagram's lines end one too."""
    for block in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )|:\n|\n(?=.*[├└│])", text):
        if re.search(r"[├└│]|^\s*>>>", block):
            continue
        yield from (
            sentence.strip() for sentence in re.split(r"(?<=[.!?…;])\s+|:\s+(?=[A-Z`])", " ".join(block.split()))
        )


def list_files() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "plugin").glob("*.md")]
    pages += [*(ROOT / "plugin" / "commands").glob("*.md"), *(ROOT / "plugin" / "skills").rglob("*.md")]
    code = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    return sorted({*pages, *code})


if __name__ == "__main__":
    named = [Path(name).resolve() for name in sys.argv[1:]]
    chosen = [file for name in named for file in ([*name.rglob("*.py")] if name.is_dir() else [name])]
    for fault in find_faults(sorted(chosen) or list_files()):
        sys.stdout.write(f"{fault}\n")
