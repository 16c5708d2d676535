"""Passwords in the words of a command line, for programs that have an option for one."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from everkept.core.secret_values import is_placeholder
from everkept.patterns import compile_late

MAX_COMMAND_CHARACTERS = 2_000  # characters of a command behind its program, and of a line before an option
MIN_PASSWORD_CHARACTERS = 3  # a shorter word is a switch


class _Options(NamedTuple):
    """The options of one program whose value is a password, or ends with one behind a separator.

    `verb` is the word that must come first. The value of a `joined` option is in the same word. With a switch in
    `last`, the last word is the password.
    """

    values: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    verb: str = ""
    separator: str = ":"
    last: tuple[str, ...] = ()


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
    "htpasswd": _Options(last=("-b", "-bc", "-cb", "-nb", "-bB", "-Bb", "-nbB", "-bn")),
    "http": _Options(pairs=("-a", "--auth")),
    "https": _Options(pairs=("-a", "--auth")),
    "openssl": _Options(values=("-k",), pairs=("-pass", "-passin", "-passout")),
    "redis-cli": _Options(values=("-a",)),
    "smbclient": _Options(pairs=("-U",), separator="%"),
    "sshpass": _Options(values=("-p",)),
    "twine": _Options(values=("-p",)),
}
_WORD = compile_late(r"[ \t]+(?P<word>(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|\\.|[^\s'\"|;&`\\])+)")
_QUOTES = "'\""
_ATTACHED = compile_late(r"[=\s]?[\"']?")  # what may be between an option and its value
_OPTION_LETTERS = frozenset("PUSabknpuw-c")
_MASK_BEGINS = "[masked:"
_OTHER_SOURCES = ("file:", "env:", "fd:")  # of a password, in a pair of openssl

# Programs that read the password from the one before the pipe, and what writes it there.
_READERS = ("--password-stdin", "--stdin", "-S")
_WRITTEN = compile_late(r"\b(?:echo|printf)(?:[ ]-[a-zA-Z]{1,4})?[ ]+[\"']?([^\s|;&]{3,200}?)[\"']?[ ]*\|(?!\|)")
_NET_USE = compile_late(r"net use [^\s]{1,10} [^\s]{1,200} (?![/*]|\[masked:)([^\s]{3,100})", re.IGNORECASE)


def find_argument_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of passwords passed to programs as options. `text` is flat."""
    for first, last in _find_command_lines(text):
        programs = list(_compile_programs().finditer(text, first, last))
        for number, program in enumerate(programs):
            # A name can also be a word of this command; the second one always ends it.
            end = programs[number + 2].start() if number + 2 < len(programs) else last
            yield from _find_in_command(text, program, end)
        yield from _find_piped(text, first, last)
    for use in _find_all(text, "net use "):
        if found := _NET_USE.match(text, use):
            yield found.span(1)


def _find_all(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def _find_command_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines that have one of the options, each once."""
    options = _list_options()
    at, done = text.find(" -"), 0
    while at >= 0:
        if text[at + 2 : at + 3] in _OPTION_LETTERS and text.startswith(options, at + 1):
            earliest = max(done, at - MAX_COMMAND_CHARACTERS)
            first = max(earliest, text.rfind("\n", earliest, at))
            done = text.find("\n", at)
            done = len(text) if done < 0 else done
            yield first, done
        at = text.find(" -", max(at + 2, done))


@cache
def _list_options() -> tuple[str, ...]:
    given = _PROGRAMS.values()
    options = {one for options in given for one in (*options.values, *options.pairs, *options.joined, *options.last)}
    return tuple(sorted({*options, *_READERS}))


@cache
def _compile_programs() -> re.Pattern[str]:
    names = "|".join(map(re.escape, _PROGRAMS))
    return re.compile(rf"(?<![\w.-])({names})(?:\.exe)?(?=[ \t])")


def _find_in_command(text: str, program: re.Match[str], end: int) -> Iterator[tuple[int, int]]:
    options = _PROGRAMS[program[1]]
    words = [word.span("word") for word in _split_words(text, program.end(), end)]
    if not options.verb or any(text[s:e] == options.verb for s, e in words[:2]):
        yield from _find_passwords(text, words, options)


def _split_words(text: str, at: int, end: int) -> Iterator[re.Match[str]]:
    """Up to the end of the line, or to another command."""
    last = min(at + MAX_COMMAND_CHARACTERS, end)
    while (word := _WORD.match(text, at, last)) is not None:
        yield word
        at = word.end()


def _find_passwords(text: str, words: list[tuple[int, int]], options: _Options) -> Iterator[tuple[int, int]]:
    for place, (start, end) in enumerate(words):
        word = text[start:end]
        following = words[place + 1] if place + 1 < len(words) else (end, end)
        found = None
        if word in options.values:
            found = following
        elif word in options.pairs:
            found = _find_after(text, following, options.separator)
        elif word in options.last:
            has_value = len(words) - place > 3 and not text.startswith(_MASK_BEGINS, words[-2][0])
            found = words[-1] if has_value else None
        elif option := _find_option(word, (*options.values, *options.joined)):
            found = (start + len(option), end)
        elif option := _find_option(word, options.pairs):
            found = _find_after(text, (start + len(option), end), options.separator)
        if found and (span := _strip_value(text, found)):
            yield span


def _find_option(word: str, options: tuple[str, ...]) -> str:
    """The option that is in one word with its value."""
    return next((o for o in options if word.startswith(o) and len(word) > len(o)), "")


def _find_after(text: str, span: tuple[int, int], separator: str) -> tuple[int, int] | None:
    at = text.find(separator, *span)
    return None if at < 0 or text.startswith(_OTHER_SOURCES, span[0]) else (at + 1, span[1])


def _strip_value(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return the span without quotes and the equals sign, or None if it is not a secret."""
    start, end = span
    attached = _ATTACHED.match(text, start, end)
    start = attached.end() if attached else start
    end = max(start, end - 1) if text[end - 1 : end] in _QUOTES and end > start else end
    body = text[start:end]
    is_switch = body.startswith("-") or len(body) < MIN_PASSWORD_CHARACTERS
    return None if is_switch or is_placeholder(body) else (start, end)


def _find_piped(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield what is written to a program that reads a password."""
    if "|" not in text[first:last]:
        return
    for found in _WRITTEN.finditer(text, first, last):
        reader = next((one for one in _READERS if text.find(one, found.end(), found.end() + 200) >= 0), None)
        start, end = found.span(1)
        if reader and not is_placeholder(text[start:end]) and end - start >= 6:
            yield start, end
