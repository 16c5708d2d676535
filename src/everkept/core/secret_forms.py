"""Known forms of secrets, placeholders for one, and passwords in the words of a command line."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from everkept.patterns import compile_late

# Kinds, the beginning that gives such a secret away, and the rest of it. The form is matched
# from a place where no letter or digit stands before it, and takes the rest of its word along.
FORMS: tuple[tuple[str, str, str], ...] = (
    ("aws access key", "AKIA", r"[A-Z0-9]{16}"),
    ("aws access key", "ASIA", r"[A-Z0-9]{16}"),
    ("github token", "gh", r"[pousr]_[A-Za-z0-9]{30,}"),
    ("github token", "github_pat_", r"\w{30,}"),
    ("gitlab token", "gl", r"(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-[\w-]{18,}"),
    ("slack token", "xox", r"[abeoprs]-[A-Za-z0-9-]{12,}"),
    ("slack token", "xapp-", r"\d-[A-Za-z0-9-]{12,}"),
    ("anthropic key", "sk-ant-", r"[\w-]{16,}"),
    ("openai key", "sk-", r"[\w-]{20,}"),
    ("google api key", "AIza", r"[\w-]{30,}"),
    ("google token", "ya29.", r"[\w-]{20,}"),
    ("google token", "GOCSPX-", r"[\w-]{20,}"),
    ("stripe key", "sk_", r"(?:live|test)_[A-Za-z0-9]{10,}"),
    ("stripe key", "rk_", r"(?:live|test)_[A-Za-z0-9]{10,}"),
    ("stripe key", "whsec_", r"[A-Za-z0-9+/=]{20,}"),
    ("npm token", "npm_", r"[A-Za-z0-9]{30,}"),
    ("pypi token", "pypi-", r"(?:AgE[\w-]{16,}|[\w-]{60,})"),
    ("hugging face token", "hf_", r"[A-Za-z0-9]{28,}"),
    ("json web token", "eyJ", r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}"),
    ("sendgrid key", "SG.", r"[\w-]{16,}+\.[\w-]{16,}"),
    ("twilio key", "SK", r"[0-9a-f]{32}"),
    ("digitalocean token", "do", r"[oprt]_v1_[0-9a-f]{40,}"),
    ("groq key", "gsk_", r"[A-Za-z0-9]{30,}"),
    ("replicate token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("docker token", "dckr_pat_", r"[\w-]{20,}"),
    ("vault token", "hvs.", r"[\w-]{20,}"),
    ("atlassian token", "ATATT3", r"[\w=-]{40,}"),
    ("shopify token", "shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("databricks token", "dapi", r"[0-9a-f]{32}"),
    ("linear key", "lin_api_", r"[A-Za-z0-9]{30,}"),
    ("notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    ("grafana token", "glsa_", r"[A-Za-z0-9]{30,}"),
    ("age key", "AGE-SECRET-KEY-", r"[A-Z0-9]{40,}"),
    ("everkept token", "evk", r"[up]?_[\w-]{40,}"),
)
LOOSE_FORMS = frozenset({"openai key", "slack token"})  # so short a beginning that words have it too

# What instructions have in place of a secret: within it, or instead of it.
FILLERS = ("xxxx", "your", "...", "…", "***", "placeholder", "redacted", "changeme", "change_me")
PLACEHOLDER_WORDS = frozenset(
    {
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "str",
        "string",
        "bytes",
        "required",
        "optional",
        "empty",
        "unset",
        "default",
        "password",
        "passwd",
        "pass",
        "secret",
        "token",
        "key",
        "api_key",
        "apikey",
        "value",
        "test",
        "todo",
        "tbd",
        "n/a",
        "hidden",
        "example",
        "replace_me",
        "dummy",
        "xxx",
    }
)
# Signs of a template, which stands where a secret would.
TEMPLATE_MARKS = ("<", "$", "%", "{", "[", "*")


def is_placeholder(body: str) -> bool:
    return not body or body.startswith(TEMPLATE_MARKS) or body.lower() in PLACEHOLDER_WORDS or has_filler(body)


def has_filler(body: str) -> bool:
    """Whether it stands for a secret, as `xxxx` does in instructions."""
    lowered = body.lower()
    return any(filler in lowered for filler in FILLERS)


MAX_COMMAND_CHARACTERS = 2_000  # characters of a command behind its program
MAX_NESTED_PROGRAMS = 8  # names of programs among the words of one, so that no text takes its square
MIN_PASSWORD_CHARACTERS = 3  # less is a switch of its own, or says nothing


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


def find_argument_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the passwords stand that programs are given which have an option for them."""
    if " -" not in text:
        return
    programs = list(_compile_programs().finditer(text))
    for number, program in enumerate(programs):
        options = _PROGRAMS[program[1]]
        further = programs[number + MAX_NESTED_PROGRAMS : number + MAX_NESTED_PROGRAMS + 1]
        end = further[0].start() if further else len(text)
        words = [word.span("word") for word in _split_words(text, program.end(), end)]
        if not options.verb or any(text[s:e] == options.verb for s, e in words[:2]):
            yield from _find_passwords(text, words, options)


@cache
def _compile_programs() -> re.Pattern[str]:
    names = "|".join(map(re.escape, _PROGRAMS))
    return re.compile(rf"(?<![\w.-])({names})(?:\.exe)?(?=[ \t])")


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
            found = _find_after_colon(text, following)
        elif option := _find_option(word, (*options.values, *options.joined)):
            found = (start + len(option), end)
        elif option := _find_option(word, options.pairs):
            found = _find_after_colon(text, (start + len(option), end))
        if found and (span := _strip_value(text, found)):
            yield span


def _find_option(word: str, options: tuple[str, ...]) -> str:
    """The option that stands in one word with its value."""
    return next((o for o in options if word.startswith(o) and len(word) > len(o)), "")


def _find_after_colon(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    colon = text.find(":", *span)
    return None if colon < 0 else (colon + 1, span[1])


def _strip_value(text: str, span: tuple[int, int]) -> tuple[int, int] | None:
    """Without quotes and the sign of equality; None where it is no secret."""
    start, end = span
    attached = _ATTACHED.match(text, start, end)
    start = attached.end() if attached else start
    end = max(start, end - 1) if text[end - 1 : end] in _QUOTES and end > start else end
    body = text[start:end]
    is_switch = body.startswith("-") or len(body) < MIN_PASSWORD_CHARACTERS
    return None if is_switch or is_placeholder(body) else (start, end)
