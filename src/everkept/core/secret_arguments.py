"""Passwords among the words of a command line: `mysql -psecret`, `curl -u me:secret`."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from everkept.core.secret_forms import is_placeholder
from everkept.patterns import compile_late

LONGEST = 2_000  # characters of a command behind its program
MOST_INSIDE = 8  # names of programs among the words of one, so that no text takes its square
SHORTEST = 3  # characters; less is a switch of its own, or says nothing


class _Options(NamedTuple):
    """Of one program: those whose value is a password, or ends with one behind a colon.

    `verb` is the word that must come first. What is `joined` has its value in the same word alone.
    """

    values: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    verb: str = ""


_SQL = _Options(joined=("-p",))
_LOGIN = _Options(values=("-p",), verb="login")
_MONGO = _Options(values=("-p",))
_LDAP = _Options(values=("-w",))
_PROGRAMS: Mapping[str, _Options] = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlsh"), _SQL),
    **dict.fromkeys(("mariadb", "mariadb-dump", "mariadb-admin", "7z", "7za"), _SQL),
    **dict.fromkeys(("docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras"), _LOGIN),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore"), _MONGO),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete"), _LDAP),
    **dict.fromkeys(("zip", "unzip", "sqlcmd"), _Options(values=("-P",))),
    "az": _LOGIN,
    "curl": _Options(pairs=("-u", "--user", "-U", "--proxy-user")),
    "http": _Options(pairs=("-a", "--auth")),
    "redis-cli": _Options(values=("-a",)),
    "sshpass": _Options(values=("-p",)),
}
_WORD = compile_late(r"[ \t]+(?P<word>(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|\\.|[^\s'\"|;&`\\])+)")
_QUOTES = "'\""
_ATTACHED = compile_late(r"[=\s]?[\"']?")  # what may stand between an option and its value


def argument_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the passwords stand that programs are given which have an option for them."""
    if " -" not in text:
        return
    programs = list(_programs().finditer(text))
    for number, program in enumerate(programs):
        options = _PROGRAMS[program[1]]
        further = programs[number + MOST_INSIDE : number + MOST_INSIDE + 1]
        end = further[0].start() if further else len(text)
        words = [word.span("word") for word in _words(text, program.end(), end)]
        if not options.verb or any(text[s:e] == options.verb for s, e in words[:2]):
            yield from _given(text, words, options)


@cache
def _programs() -> re.Pattern[str]:
    names = "|".join(map(re.escape, _PROGRAMS))
    return re.compile(rf"(?<![\w.-])({names})(?:\.exe)?(?=[ \t])")


def _words(text: str, at: int, end: int) -> Iterator[re.Match[str]]:
    """Up to the end of the line, or to another command."""
    last = min(at + LONGEST, end)
    while (word := _WORD.match(text, at, last)) is not None:
        yield word
        at = word.end()


def _given(text: str, words: list[tuple[int, int]], options: _Options) -> Iterator[tuple[int, int]]:
    for place, (start, end) in enumerate(words):
        word = text[start:end]
        following = words[place + 1] if place + 1 < len(words) else (end, end)
        found = None
        if word in options.values:
            found = following
        elif word in options.pairs:
            found = _behind_colon(text, following)
        elif option := _begun(word, (*options.values, *options.joined)):
            found = (start + len(option), end)
        elif option := _begun(word, options.pairs):
            found = _behind_colon(text, (start + len(option), end))
        if found and (span := _bare(text, found)):
            yield span


def _begun(word: str, options: tuple[str, ...]) -> str:
    """The option that stands in one word with its value."""
    return next((o for o in options if word.startswith(o) and len(word) > len(o)), "")


def _behind_colon(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    colon = text.find(":", *span)
    return None if colon < 0 else (colon + 1, span[1])


def _bare(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Without quotes and the sign of equality; None where it is no secret."""
    start, end = span
    attached = _ATTACHED.match(text, start, end)
    start = attached.end() if attached else start
    end = max(start, end - 1) if text[end - 1 : end] in _QUOTES and end > start else end
    body = text[start:end]
    is_switch = body.startswith("-") or len(body) < SHORTEST
    return None if is_switch or is_placeholder(body) else (start, end)
