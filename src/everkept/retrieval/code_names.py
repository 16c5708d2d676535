"""How names of code and of files look in a question."""

import re

IDENTIFIER = r"[^\W\d]\w*"
_JOINT = r"(?:\.|::|->|#)"
_SNAKE = r"_*[^\W\d_][^\W_]*(?:_+[^\W_]+)+_*|__?[^\W\d_]\w*"
_CAMEL = r"[a-z]+[a-z0-9]*[A-Z]\w*"
_PASCAL = r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}[a-z][a-z0-9]*(?:[A-Z][a-z0-9]*)*"
_START, _END = r"(?<![\w.$/\\@-])", r"(?![\w$/\\@-])"

# Parts of a name with a dot that is no file; a call; a word that nobody writes in prose.
QUALIFIED = re.compile(
    rf"{_START}(?:(?:[A-Z]\w*|self|this|cls){_JOINT}|{IDENTIFIER}(?:::|->|#)){IDENTIFIER}"
    rf"(?:{_JOINT}{IDENTIFIER})*(?:\(\))?{_END}"
)
CALL = re.compile(rf"{_START}{IDENTIFIER}(?:{_JOINT}{IDENTIFIER})*\((?!e?s\))[^()]{{0,80}}\)?")
WRITTEN = re.compile(rf"{_START}(?:{_SNAKE}|{_CAMEL}|{_PASCAL}){_END}")
NAMED = (
    re.compile(rf"{_START}(?:class|struct|interface|enum)\s+(?P<name>[A-Z]\w*){_END}"),
    re.compile(
        rf"{_START}(?:function|method|def|func|fn)\s+(?:called\s+|named\s+)?"
        rf"(?P<name>{IDENTIFIER}){_END}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_START}(?P<name>{IDENTIFIER})\s+(?:function|method|class|struct){_END}", re.IGNORECASE
    ),
)
_DECLARED_FORM = re.compile(
    rf"(?:{IDENTIFIER}{_JOINT})+{IDENTIFIER}(?:\(\))?|{IDENTIFIER}\(\)"
    rf"|{_SNAKE}|{_CAMEL}|{_PASCAL}"
)
# What looks like a name of code, and is one of a product.
_PRODUCT_NAMES = """
    airtable angular.js asp.net bitbucket chatgpt claudecode clickhouse cockroachdb d3.js
    deepseek devops digitalocean dynamodb ebay elasticsearch express.js fastapi fastmcp github
    gitlab graphql ios ipad iphone javascript jetbrains langchain latex linkedin macos mariadb
    mongodb mysql next.js node.js nosql numpy nuxt.js onedrive openai openapi openssh openssl
    opentelemetry paypal postgresql powerpoint powershell pycharm pypi pytorch rabbitmq react.js
    readme restructuredtext scylladb sharepoint socket.io sqlalchemy sqlite stackoverflow
    tensorflow three.js typescript vscode vue.js webassembly webrtc websocket websockets
    webstorm whatsapp wifi wordpress youtube
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
FILE = re.compile(
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
URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
QUOTED = re.compile(r"`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"|[“„]([^”“\n]{1,200})[”“]")


def is_name(text: str) -> bool:
    """Whether somebody who types this word alone means a thing of code."""
    return bool(_DECLARED_FORM.fullmatch(text)) and not is_product(text)


def is_file(text: str) -> bool:
    return bool(FILE.fullmatch(text)) and not is_product(text)


def is_product(text: str) -> bool:
    return text.lower() in _PRODUCTS
