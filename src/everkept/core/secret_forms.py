"""Secrets that their own shape gives away: tokens that begin like one, webhooks, hashes of passwords.

A form begins with letters that no word has. So a text is first read for long words, and a word is compared only with
the forms that begin as it does. Other secrets have a mark in their middle, and are read around it.

The words of a command line give away passwords too, for programs that have an option for one.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from everkept.core.secret_values import MASK_BEGINS, has_filler, is_placeholder, measure_entropy
from everkept.patterns import compile_late

_RUN_CHARACTERS = 16  # of the shortest word that is compared with the forms
_RUN = b"a" * _RUN_CHARACTERS
_WORD_BYTES = bytes(
    ord("a") if chr(code) in "-._" or (code < 128 and chr(code).isalnum()) else 32 for code in range(256)
)
_REST_OF_WORD = compile_late(r"[\w-]*+")
_REFUSED_CHARACTERS = 128  # of a refused text, in whose first half no other one is looked for


class _Form(NamedTuple):
    kind: str
    beginning: str  # at least two characters
    rest: str  # without an upper limit only for its last characters, because it may begin at many places
    bits: float = 0.0  # of entropy for each character, for a beginning that words have too


_FORMS = (
    _Form("aws access key", "AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _Form("aws access key", "ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _Form("aws session token", "FwoGZX", r"[A-Za-z0-9+/]{80,}={0,2}"),
    _Form("aws session token", "IQoJb3", r"[A-Za-z0-9+/]{80,}={0,2}"),
    _Form("github token", "gh", r"[pousr]_[A-Za-z0-9]{30,}"),
    _Form("github token", "github_pat_", r"\w{30,}"),
    _Form("gitlab token", "gl", r"(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas|ffct|wt)-[\w.-]{18,}"),
    _Form("slack token", "xox", r"[abceoprsd](?:\.xox[bp])?-[A-Za-z0-9-]{12,}", 3.0),
    _Form("slack token", "xapp-", r"\d-[A-Za-z0-9-]{12,}"),
    _Form("anthropic key", "sk-ant-", r"[\w-]{16,}"),
    _Form("openai key", "sk-", r"[\w-]{20,}", 3.0),
    _Form("google api key", "AIza", r"[\w-]{30,}"),
    _Form("google token", "ya29.", r"[\w.-]{20,}"),
    _Form("google token", "GOCSPX-", r"[\w-]{20,}"),
    _Form("stripe key", "sk_", r"(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    _Form("stripe key", "rk_", r"(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    _Form("stripe key", "whsec_", r"[A-Za-z0-9+/=]{20,}"),
    _Form("npm token", "npm_", r"[A-Za-z0-9]{30,}"),
    _Form("pypi token", "pypi-", r"(?:AgE[\w-]{16,}|[\w-]{60,})"),
    _Form("hugging face token", "hf_", r"[A-Za-z0-9]{28,}"),
    _Form("hugging face token", "api_org_", r"[A-Za-z0-9]{28,}"),
    _Form("json web token", "eyJ", r"[\w-]{8,1000}+\.eyJ[\w-]{8,16000}+\.[\w-]{8,}"),
    _Form("sendgrid key", "SG.", r"[\w-]{16,99}+\.[\w-]{16,}"),
    _Form("twilio key", "SK", r"[0-9a-f]{32}"),
    _Form("digitalocean token", "do", r"[oprt]_v1_[0-9a-f]{40,}"),
    _Form("groq key", "gsk_", r"[A-Za-z0-9]{30,}"),
    _Form("replicate token", "r8_", r"[A-Za-z0-9]{30,}"),
    _Form("docker token", "dckr_", r"(?:pat|oat)_[\w-]{20,}"),
    _Form("vault token", "hv", r"[sbr]\.[\w-]{20,}"),
    _Form("atlassian token", "ATATT3", r"[\w=-]{40,}"),
    _Form("bitbucket token", "ATBB", r"[A-Za-z0-9]{28,}"),
    _Form("shopify token", "shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _Form("databricks token", "dapi", r"[0-9a-f]{32}"),
    _Form("linear key", "lin_", r"(?:api|oauth)_[A-Za-z0-9]{30,}"),
    _Form("notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    _Form("notion token", "secret_", r"[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    _Form("grafana token", "glsa_", r"[A-Za-z0-9]{30,}"),
    _Form("grafana token", "glc_", r"[A-Za-z0-9+/]{32,}={0,2}"),
    _Form("age key", "AGE-SECRET-KEY-", r"[A-Z0-9]{40,}"),
    _Form("everkept token", "evk", r"[up]?_[\w-]{40,}"),
    _Form("mailgun key", "key-", r"[0-9a-z]{32}(?![\w-])", 3.0),
    _Form("heroku key", "HRKU-", r"[\w-]{30,}"),
    _Form("new relic key", "NRAK-", r"[A-Z0-9]{27}"),
    _Form("new relic key", "NRII-", r"[\w-]{32}"),
    _Form("sentry token", "sntry", r"[su]_[A-Za-z0-9+/=_-]{40,}"),
    _Form("airtable token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _Form("square token", "EAAA", r"[\w-]{56,}"),
    _Form("square token", "sq0", r"(?:csp|atp|idp)-[\w-]{20,}"),
    _Form("facebook token", "EAA", r"[A-Za-z0-9]{80,}"),
    _Form("figma token", "fig", r"[dou]r?_[\w-]{36,}"),
    _Form("supabase token", "sbp_", r"[0-9a-f]{40}"),
    _Form("supabase token", "sb_secret_", r"[\w-]{24,}"),
    _Form("tailscale key", "tskey-", r"[a-z]{1,20}-[A-Za-z0-9]{8,40}-[A-Za-z0-9]{20,}"),
    _Form("postman key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    _Form("xai key", "xai-", r"[A-Za-z0-9]{60,}"),
    _Form("nvidia key", "nvapi-", r"[\w-]{50,}"),
    _Form("perplexity key", "pplx-", r"[A-Za-z0-9]{40,}"),
    _Form("langsmith key", "lsv2_", r"(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _Form("tavily key", "tvly-", r"[A-Za-z0-9-]{28,}"),
    _Form("elevenlabs key", "sk_", r"[0-9a-f]{48}"),
    _Form("pinecone key", "pcsk_", r"\w{40,}"),
    _Form("cloudflare key", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{100,}"),
    _Form("netlify token", "nfp_", r"[A-Za-z0-9]{30,}"),
    _Form("netlify token", "nf", r"[coubk]_[A-Za-z0-9]{36}"),
    _Form("fly token", "fm", r"[12][ar]?_[A-Za-z0-9+/,_=-]{60,}"),
    _Form("doppler token", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _Form("pulumi token", "pul-", r"[0-9a-f]{40}"),
    _Form("planetscale token", "pscale_", r"(?:tkn|pw|oauth)_[\w.=-]{30,}"),
    _Form("neon password", "npg_", r"[A-Za-z0-9]{12,}"),
    _Form("gem key", "rubygems_", r"[0-9a-f]{48}"),
    _Form("crates token", "cio", r"[A-Za-z0-9]{32}(?![\w-])", 3.5),
    _Form("clojars token", "CLOJARS_", r"[0-9a-z]{60}"),
    _Form("artifactory key", "AKCp", r"[A-Za-z0-9]{60,}"),
    _Form("nuget key", "oy2", r"[0-9a-z]{43}(?![\w-])", 3.5),
    _Form("adafruit key", "aio_", r"[A-Za-z0-9]{28}"),
    _Form("easypost key", "EZ", r"[AT]K[A-Za-z0-9]{54}"),
    _Form("flutterwave key", "FLWSECK", r"(?:_TEST)?-[0-9a-fA-F]{12,}(?:-X)?"),
    _Form("dynatrace token", "dt0", r"[a-z]\d{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _Form("launchdarkly key", "sdk-", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    _Form("posthog key", "phx_", r"[A-Za-z0-9]{30,}"),
    _Form("prefect key", "pn", r"[ub]_[A-Za-z0-9]{36}"),
    _Form("brevo key", "xkeysib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    _Form("sourcegraph token", "sgp_", r"(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}"),
    _Form("typeform token", "tfp_", r"[\w.-]{40,}"),
    _Form("woocommerce key", "ck_", r"[0-9a-f]{40}"),
    _Form("woocommerce key", "cs_", r"[0-9a-f]{40}"),
    _Form("yandex token", "t1.", r"[A-Za-z0-9+/=_-]{20,1000}+\.[A-Za-z0-9_-]{60,}"),
    _Form("yandex token", "AQVN", r"[\w-]{35,}"),
    _Form("alibaba key", "LTAI", r"[A-Za-z0-9]{16,24}(?![\w-])", 3.0),
    _Form("tencent key", "AKID", r"[A-Za-z0-9]{32}"),
    _Form("twitter token", "AAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9]{10,99}+%[A-Za-z0-9%]{20,}"),
    _Form("dropbox token", "sl.", r"(?:u\.)?[AB][\w-]{100,}"),
    _Form("contentful token", "CFPAT-", r"[\w-]{40,}"),
    _Form("onepassword token", "ops_eyJ", r"[A-Za-z0-9+/_=-]{100,}"),
    _Form("buildkite token", "bkua_", r"[0-9a-f]{40}"),
    _Form("circleci token", "CCIPAT_", r"[A-Za-z0-9]{20,99}+_[0-9a-f]{40}"),
    _Form("sonar token", "sq", r"[paub]_[0-9a-f]{40}"),
    _Form("resend key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    _Form("duffel token", "duffel_", r"(?:live|test)_[\w=-]{43}"),
    _Form("readme key", "rdme_", r"[0-9a-z]{70}"),
    _Form("shippo token", "shippo_", r"(?:live|test)_[0-9a-f]{40}"),
    _Form("octopus key", "API-", r"[A-Z0-9]{26}(?![\w-])", 3.5),
    _Form("cloudsmith key", "ctio_", r"[A-Za-z0-9]{30,}"),
)


# Whole words without such a beginning, by their length and their inner signs.
_SHAPES = (
    ("discord token", compile_late(r"[MNO][\w-]{22,28}\.[\w-]{6}\.[\w-]{27,}")),
    ("mailchimp key", compile_late(r"[0-9a-f]{32}-us\d{1,2}(?![\w-])")),
    ("terraform token", compile_late(r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}")),
)
_SHAPE_CHARACTERS = 36
# Words behind a colon, whose secret begins before it.
_BEHIND_COLON = (
    ("telegram bot token", "AA", compile_late(r"(?:(?<=bot)|(?<![\w:]))\d{8,10}:AA[\w-]{33,}+"), range(8, 11)),
    ("firebase key", "APA91b", compile_late(r"(?<![\w-])[\w-]{11}:APA91b[\w-]{100,}+"), range(11, 12)),
    ("asana token", "", compile_late(r"(?<![\w/])\d/\d{16}:[0-9a-f]{32}(?![\w-])"), range(18, 19)),
)


class _Mark(NamedTuple):
    """Content of a secret, the text right before it, and the context that makes it one."""

    kind: str
    mark: str
    pattern: re.Pattern[str]  # its first group is the secret, if it has one
    before: int = 0  # characters of the pattern before the mark


_MARKS = (
    _Mark("azure signature", "sig=", compile_late(r"(?<![A-Za-z0-9_])sig=([A-Za-z0-9%+/=_-]{30,})")),
    _Mark(
        "slack webhook",
        "hook",
        compile_late(
            r"hooks\.slack\.com/(?:services|[a-z]{4,20}/[A-Z0-9]{1,20})/[A-Z0-9]{1,20}/[A-Z0-9]{1,20}/([A-Za-z0-9]{16,})"
        ),
    ),
    _Mark("zapier webhook", "hook", compile_late(r"hooks\.zapier\.com/hooks/catch/\d+/(\w{5,})")),
    _Mark("discord webhook", "hook", compile_late(r"hooks/\d{15,20}/([\w-]{50,})")),
    _Mark("teams webhook", "hook", compile_late(r"hook/([0-9a-f]{32}[\w/-]*)")),
    _Mark("openshift token", "~", compile_late(r"sha256~[\w-]{40,}"), 6),
    _Mark("azure secret", "~", compile_late(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}"), 5),
    _Mark("braintree token", "$", compile_late(r"access_token\$\w+\$[0-9a-z]{16}\$[0-9a-f]{32}"), 12),
    _Mark(
        "password hash",
        "$",
        compile_late(r"\$(?:[156y]|2[abxy]|apr1|argon2i?d?)\$(?=[^$\s]{0,60}\$|[^$\s]{40})[\w./=,+$-]{20,300}"),
    ),
    _Mark("url password", "jdbc:", compile_late(r"jdbc:oracle:\w{1,9}:[\w.-]{1,60}/([^\s@\"'<>]{3,100})@")),
    _Mark("password", "5432:", compile_late(r"5432:[^\s:]{1,60}:[^\s:/]{1,60}:([^\s:]{4,100})(?=\s|$)")),
    _Mark(
        "secret",
        "jwt.",
        compile_late(r"jwt\.(?:sign|encode|verify|decode)\([^,\n]{1,60},[ ]?[\"']([^\"'\s]{8,200})[\"']"),
    ),
)


@cache
def _group_forms() -> Mapping[str, Sequence[tuple[_Form, re.Pattern[str]]]]:
    """The forms by their first two characters, each pattern compiled when a text needs it."""
    groups: defaultdict[str, list[tuple[_Form, re.Pattern[str]]]] = defaultdict(list)
    for form in _FORMS:
        groups[form.beginning[:2]].append((form, compile_late(form.rest)))
    return dict(groups)


@cache
def _compile_inner_starts() -> re.Pattern[str]:
    """Return what finds the beginnings of forms inside a word, such as `build-ghp_…`."""
    seconds: defaultdict[str, str] = defaultdict(str)
    for first, second in sorted(_group_forms()):
        seconds[first] += re.escape(second)
    return re.compile("[._-](?=" + "|".join(f"{first}[{seconds[first]}]" for first in seconds) + ")")


def find_known_forms(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where a word has the form of a secret, and the kind. The text is a flat one."""
    groups = _group_forms()
    flags = text.encode("latin-1").translate(_WORD_BYTES)
    start = flags.find(_RUN)
    while start >= 0:
        end = flags.find(b" ", start)
        end = len(flags) if end < 0 else end
        done = start
        for at in _find_starts(text, start, end):
            if at >= done and text[at : at + 2] in groups:
                done, kind = _match_form(text, at, groups)
                if kind:
                    yield at, done, kind
        if end - start >= _SHAPE_CHARACTERS and (text.find(".", start, end) > 0 or text.find("-us", start, end) > 0):
            yield from _match_shapes(text, start)
        if text[start - 1] == ":":
            yield from _match_behind_colon(text, start)
        start = flags.find(_RUN, max(end, done))


def _find_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where a form may begin in a word."""
    yield start
    for separator in _compile_inner_starts().finditer(text, start, end):
        yield separator.end()


def _match_form(
    text: str, at: int, groups: Mapping[str, Sequence[tuple[_Form, re.Pattern[str]]]]
) -> tuple[int, str | None]:
    """Return the end of the form here and its kind. Without one, return where the next may begin."""
    refused = 0
    for form, rest in groups[text[at : at + 2]]:
        if text.startswith(form.beginning, at) and (found := rest.match(text, at + len(form.beginning))):
            body = found.group()
            if not has_filler(body) and (not form.bits or _is_dense(body, form.bits)):
                word = _REST_OF_WORD.match(text, found.end())
                return word.end() if word else found.end(), form.kind
            refused = max(refused, len(body))
    return at + (refused // 2 if refused > _REFUSED_CHARACTERS else 0), None


def _is_dense(body: str, bits: float) -> bool:
    """Return whether the text is random: it has digits, and as many different characters as chance gives."""
    return any(c.isdigit() for c in body) and measure_entropy(body) >= bits


def _match_shapes(text: str, start: int) -> Iterator[tuple[int, int, str]]:
    for kind, shape in _SHAPES:
        if found := shape.match(text, start):
            yield *found.span(), kind


def _match_behind_colon(text: str, start: int) -> Iterator[tuple[int, int, str]]:
    for kind, beginning, pattern, distances in _BEHIND_COLON:
        if text.startswith(beginning, start):
            for distance in distances:
                if start > distance and (found := pattern.match(text, start - 1 - distance)):
                    yield *found.span(), kind


def find_marked_forms(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where a secret is around or behind a mark that only such secrets have, and the kind."""
    for mark, group in groupby(_MARKS, key=lambda one: one.mark):
        marks = list(group)
        at = text.find(mark)
        while at >= 0:
            end = at + len(mark)
            for one in marks:
                if found := one.pattern.match(text, max(0, at - one.before)):
                    number, end = found.lastindex or 0, found.end()
                    if not has_filler(found.group(number)):
                        yield *found.span(number), one.kind
                    break
            at = text.find(mark, end)


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
            has_value = len(words) - place > 3 and not text.startswith(MASK_BEGINS, words[-2][0])
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
