"""Names of code and files: their patterns in a question, and names that all code calls."""

import re

from everkept.patterns import compile_late

IDENTIFIER = r"[^\W\d]\w*"
_JOINT = r"(?:\.|::|->|#)"
_SNAKE = r"_*[^\W\d_][^\W_]*(?:_+[^\W_]+)+_*|__?[^\W\d_]\w*"
_CAMEL = r"[a-z][a-z0-9]*+[A-Z]\w*"
_PASCAL = r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)*"
_START, _END = r"(?<![\w.$/\\@-])", r"(?![\w$/\\@-])"

# A dotted name that is not a file, a call, and a word that does not occur in prose.
QUALIFIED = compile_late(
    rf"{_START}(?:(?:[A-Z]\w*|self|this|cls){_JOINT}|{IDENTIFIER}(?:::|->|#)){IDENTIFIER}"
    rf"(?:{_JOINT}{IDENTIFIER})*(?:\(\))?{_END}"
)
CALL = compile_late(rf"{_START}{IDENTIFIER}(?:{_JOINT}{IDENTIFIER})*\((?!e?s\))[^()]{{0,80}}\)?")
CASED_NAME = compile_late(rf"{_START}(?:{_SNAKE}|{_CAMEL}|{_PASCAL}){_END}")
DECLARED_NAMES = (
    compile_late(rf"{_START}(?:class|struct|interface|enum)\s+(?P<name>[A-Z]\w*){_END}"),
    compile_late(
        rf"{_START}(?:function|method|def|func|fn)\s+(?:called\s+|named\s+)?(?P<name>{IDENTIFIER}){_END}", re.IGNORECASE
    ),
    compile_late(rf"{_START}(?P<name>{IDENTIFIER})\s+(?:function|method|class|struct){_END}", re.IGNORECASE),
)
_DECLARED_FORM = compile_late(
    rf"(?:{IDENTIFIER}{_JOINT})+{IDENTIFIER}(?:\(\))?|{IDENTIFIER}\(\)|{_SNAKE}|{_CAMEL}|{_PASCAL}"
)
# Product names that look like names of code.
_PRODUCT_NAMES = """
    airtable angular.js asp.net bitbucket chatgpt claudecode clickhouse cockroachdb d3.js deepseek devops digitalocean
    dynamodb ebay elasticsearch express.js fastapi fastmcp github gitlab graphql ios ipad iphone javascript jetbrains
    langchain latex linkedin macos mariadb mongodb mysql next.js node.js nosql numpy nuxt.js onedrive openai openapi
    openssh openssl opentelemetry paypal postgresql powerpoint powershell pycharm pypi pytorch rabbitmq react.js readme
    restructuredtext scylladb sharepoint socket.io sqlalchemy sqlite stackoverflow tensorflow three.js typescript vscode
    vue.js webassembly webrtc websocket websockets webstorm whatsapp wifi wordpress youtube
"""
_PRODUCTS = frozenset(_PRODUCT_NAMES.split())

_ENDINGS = (
    "py pyi ipynb js jsx mjs cjs ts tsx mts cts vue svelte astro go rs java kt kts scala groovy "
    "gradle c h cc cpp cxx hpp hh cs fs vb swift m mm rb erb php pl pm lua r jl ex exs erl hs clj "
    "cljs elm dart zig nim sh bash zsh fish ps1 bat cmd sql graphql gql proto tf hcl html htm css "
    "scss sass less xml svg json jsonc jsonl json5 yaml yml toml ini cfg conf env lock csv tsv "
    "parquet md mdx rst txt log tex pdf png jpg gif wasm zip tar gz zst db sqlite vscdb diff patch"
)
_ENDING = rf"(?:{'|'.join(sorted(_ENDINGS.split(), key=len, reverse=True))})"
_PIECE = r"[\w.@+-]+"
FILE = compile_late(
    rf"""
    (?<![\w.$@+/\\-])(?:
        (?:[A-Za-z]:)?(?:~|\.\.?)?[/\\]?(?:{_PIECE}[/\\])*[\w@+-][\w.@+-]*\.{_ENDING}
      | (?:[A-Za-z]:[/\\]|~[/\\]|\.\.?[/\\]|[/\\])(?:{_PIECE}[/\\])*{_PIECE}[/\\]?
      | {_PIECE}/(?:{_PIECE}/)+{_PIECE}/?
      | {_PIECE}/(?=\s|$|[?,;])
      | \.(?:env|gitignore|dockerignore|gitattributes|editorconfig|npmrc|bashrc|zshrc)(?:\.\w+)?
      | (?:Dockerfile|Makefile|Justfile|Procfile|Jenkinsfile|Gemfile|Rakefile|Vagrantfile)
    )(?![\w@$(]|[/\\]\w)
    """,
    re.VERBOSE,
)
URL = compile_late(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
QUOTED = compile_late(r"`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"|[“„]([^”“\n]{1,200})[”“]")


def is_name(text: str) -> bool:
    """Return whether a person who types only this word means a name of code."""
    return bool(_DECLARED_FORM.fullmatch(text)) and not is_product(text)


def is_file(text: str) -> bool:
    return bool(FILE.fullmatch(text)) and not is_product(text)


def is_product(text: str) -> bool:
    return text.lower() in _PRODUCTS


# Names that nearly all code of a language calls, so that they do not characterize it.
_PYTHON = """
    print len str int float bool list dict set tuple frozenset bytes bytearray object type range enumerate zip map
    filter sorted reversed sum min max any all abs round isinstance issubclass hasattr getattr setattr delattr repr iter
    next open input super id hash vars dir format ord chr callable divmod pow slice property staticmethod classmethod
    dataclass abstractmethod cast Exception ValueError TypeError KeyError IndexError RuntimeError AttributeError OSError
    NotImplementedError StopIteration AssertionError append extend insert remove pop clear copy keys values items update
    setdefault add discard join split strip lstrip rstrip startswith endswith replace lower upper encode decode
    splitlines read write close get sort count index
"""
_JAVASCRIPT = """
    require String Number Boolean Array Object Symbol BigInt Date Error TypeError RangeError Map Set WeakMap WeakSet
    Promise RegExp URL Proxy parseInt parseFloat isNaN setTimeout clearTimeout setInterval clearInterval alert super log
    warn error push pop shift unshift slice splice concat join map filter reduce forEach find findIndex some every
    includes indexOf flat flatMap sort reverse keys values entries has get set add delete clear toString trim split
    replace replaceAll startsWith endsWith padStart padEnd toLowerCase toUpperCase match test then catch finally bind
    call apply stringify parse hasOwnProperty assign freeze from isArray preventDefault stopPropagation
"""
_GO = """
    append cap clear close complex copy delete imag len make max min new panic print println real recover string int
    int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 float32 float64 byte rune bool error Error String
"""
_RUST = """
    println print eprintln eprint format write writeln vec panic assert assert_eq assert_ne debug_assert todo
    unimplemented unreachable matches dbg include_str Some None Ok Err Box String Vec new default clone unwrap expect
    unwrap_or unwrap_or_else unwrap_or_default into from to_string to_owned as_str as_ref as_mut iter iter_mut into_iter
    collect map filter and_then ok_or ok_or_else map_err push pop insert get get_mut len is_empty is_some is_none is_ok
    is_err ok err await
"""
_JAVA = """
    println printf print String Integer Long Double Boolean Object ArrayList HashMap HashSet LinkedList Exception
    RuntimeException IllegalArgumentException IllegalStateException Override Deprecated SuppressWarnings
    FunctionalInterface SafeVarargs equals hashCode toString getClass valueOf length size isEmpty add addAll put get set
    remove contains containsKey stream collect map filter forEach format append of super
"""
_CPP = """
    printf fprintf sprintf snprintf scanf puts malloc calloc realloc free sizeof memcpy memset strlen strcmp strcpy
    assert exit move forward swap make_pair make_unique make_shared to_string string vector push_back emplace_back begin
    end size empty clear insert erase find at c_str data get static_cast dynamic_cast reinterpret_cast const_cast
"""
_C_SHARP = """
    WriteLine Write ReadLine ToString Equals GetHashCode GetType nameof typeof String List Dictionary HashSet Exception
    ArgumentException ArgumentNullException InvalidOperationException Add Remove Contains ContainsKey Select Where
    ToList ToArray First FirstOrDefault Any All Count OrderBy Format ConfigureAwait Serializable Obsolete
"""

COMMON_CALLS: dict[str, frozenset[str]] = {
    "python": frozenset(_PYTHON.split()),
    "javascript": frozenset(_JAVASCRIPT.split()),
    "typescript": frozenset(_JAVASCRIPT.split()),
    "go": frozenset(_GO.split()),
    "rust": frozenset(_RUST.split()),
    "java": frozenset(_JAVA.split()),
    "c": frozenset(_CPP.split()),
    "cpp": frozenset(_CPP.split()),
    "csharp": frozenset(_C_SHARP.split()),
}

# Calls on these receivers are never of interest.
_RECEIVERS = "console Math JSON Object Array Promise Number String Date System fmt std Console"
COMMON_RECEIVERS = frozenset(_RECEIVERS.split())
