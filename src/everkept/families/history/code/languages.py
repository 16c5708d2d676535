"""What a language is called, whatever a fence, a file name or a person calls it."""

import re

# The canonical name, and what else it goes by in fences and filters.
_NAMES = """
    assembly: asm nasm s x86asm
    batch: bat cmd dos
    c: h
    clojure: clj cljs edn
    cmake:
    cpp: c++ cc cxx hpp hxx cplusplus arduino ino cuda cu
    csharp: cs c# csx dotnet
    css:
    csv: tsv
    dart:
    diff: patch udiff git-diff
    dockerfile: docker containerfile
    dotenv: env
    elixir: ex exs iex
    elm:
    erlang: erl hrl
    fortran: f90 f95 f03
    fsharp: f# fs fsx
    gherkin: feature cucumber
    go: golang
    gradle:
    graphql: gql
    groovy: jenkinsfile
    haskell: hs lhs
    hcl: terraform tf tfvars
    html: htm xhtml html5
    http: rest
    ini: cfg conf editorconfig properties
    java:
    javascript: js jsx mjs cjs node nodejs ecmascript es6 javascriptreact
    json: jsonc json5 jsonl ndjson geojson ipynb
    julia: jl
    kotlin: kt kts
    latex: tex
    less:
    lisp: elisp emacs-lisp common-lisp el cl lsp
    lua: luau
    makefile: make mk gnumakefile
    markdown: md mdx mkd
    matlab: octave
    mermaid:
    nginx: nginxconf
    nix:
    objective-c: objc objectivec obj-c mm
    ocaml: ml mli
    perl: pl pm
    php: php8
    powershell: ps1 psm1 pwsh posh ps
    prisma:
    protobuf: proto
    python: py py3 python3 python2 pyi pyw ipython pycon python-repl
    r: rlang rscript
    regex: regexp
    restructuredtext: rst
    ruby: rb rake irb gemfile rakefile
    rust: rs
    sass: scss
    scala: sc sbt
    scheme: scm rkt racket
    shell: sh bash zsh fish ksh shellscript shell-session shellsession bash-session
    solidity: sol
    sql: mysql postgres postgresql psql plpgsql sqlite tsql plsql pgsql
    svelte:
    swift:
    text: txt plaintext plain
    toml:
    typescript: ts tsx mts cts typescriptreact deno
    vb: vbnet visual-basic basic vba
    vim: viml vimscript
    vue:
    xml: xsl xslt xsd svg plist csproj pom
    yaml: yml
    zig:
"""


def _canonical() -> dict[str, str]:
    """Each name that a language goes by, with the one that is kept."""
    lines = (line.partition(":") for line in _NAMES.split("\n") if line.strip())
    named = ((name.strip(), others.split()) for name, _, others in lines)
    return {each: name for name, others in named for each in (name, *others)}


_CANONICAL = _canonical()

# Files that are known by their whole name, or by how it begins.
_FILES = {
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "cmakelists.txt": "cmake",
    "jenkinsfile": "groovy",
    "gemfile": "ruby",
    "rakefile": "ruby",
    "podfile": "ruby",
    "vagrantfile": "ruby",
    "procfile": "yaml",
    "pipfile": "toml",
    "cargo.lock": "toml",
    "poetry.lock": "toml",
    "uv.lock": "toml",
    "go.mod": "go",
    ".env": "dotenv",
    ".bashrc": "shell",
    ".zshrc": "shell",
    ".bash_profile": "shell",
    ".profile": "shell",
    ".vimrc": "vim",
    ".gitconfig": "ini",
    ".npmrc": "ini",
    ".prettierrc": "json",
    ".eslintrc": "json",
    ".babelrc": "json",
}
# Names that are no endings of files: what is `x.docker` or `x.node` is something else.
_NO_ENDINGS = {"docker", "make", "node", "rest", "basic", "text", "http", "pom", "deno"}

_ATTRIBUTE = re.compile(
    r"""\b(?:title|file|filename|path|name|src)\s*[=:]\s*(?:"([^"]+)"|'([^']+)'|([^"'\s}]+))""",
    re.I,
)
_WORD = re.compile(r"[a-z][a-z0-9+#._-]{0,29}", re.I)
_CITED = re.compile(r"\d+:\d+:(.+)")  # first line, last line, file
_ENDING = re.compile(r"[^\s./\\]\.([a-z0-9+]{1,12})$", re.I)
LONGEST_TAG = 500  # characters; what is longer is no info string


def language_of(tag: str | None, file: str | None) -> str | None:
    """What a fence says, else what the file's name tells; a word that nobody knows as it is."""
    word = _first_word(tag or "")
    if (known := _CANONICAL.get(word)) is not None:
        return known
    named = file or (file_in(tag) if tag else None)
    if named is not None and (told := _of_file(named)) is not None:
        return told
    is_file = named is not None and not file
    return word if word and not is_file and _WORD.fullmatch(word) else None


def file_in(tag: str) -> str | None:
    """The file that an info string names, as in `python:src/x.py` or `ts title="a.ts"`."""
    info = tag.strip()[:LONGEST_TAG]
    if cited := _CITED.fullmatch(info):
        return cited[1].strip() or None
    if attribute := _ATTRIBUTE.search(info):
        return attribute[1] or attribute[2] or attribute[3]
    language, colon, rest = info.partition(":")
    said = rest.strip("{} ").split()
    if colon and said and "//" not in said[0] and _first_word(language) in _CANONICAL:
        return said[0]
    words = [word.strip("{}()[],;\"'`") for word in info.split()]
    return next((word for word in words if _is_file(word)), None)


def named_language(text: str) -> str:
    """What a person means who asks for a language."""
    word = text.strip().lstrip(".").casefold()
    joined = re.sub(r"[\s_]+", "-", word)
    return (
        _CANONICAL.get(word)
        or _CANONICAL.get(joined)
        or _CANONICAL.get(joined.replace("-", ""), word)
    )


def _first_word(tag: str) -> str:
    """The name of the language in an info string, in small letters."""
    info = tag.strip()[:LONGEST_TAG].casefold()
    if info.startswith("{"):  # {.python .numberLines}
        info = info.lstrip("{. ")
    first = re.split(r"[\s,;{}()\[\]]", info, maxsplit=1)[0]
    word, colon, _ = first.partition(":")
    language = word.removeprefix("language-").removeprefix("lang-").removeprefix(".")
    return "" if colon and language not in _CANONICAL else language


def _of_file(file: str) -> str | None:
    name = re.split(r"[/\\]", file.strip())[-1].casefold()
    if name in _FILES:
        return _FILES[name]
    stem = name.split(".")[0]
    if stem in ("dockerfile", "containerfile", "makefile"):
        return _FILES[stem]
    if name.startswith(".env."):
        return "dotenv"
    ending = name.rpartition(".")[2] if "." in name else ""
    return None if ending in _NO_ENDINGS else _CANONICAL.get(ending)


def _is_file(word: str) -> bool:
    if "://" in word or word.startswith(("-", "=", "{")):
        return False
    ending = _ENDING.search(word)
    return bool(ending or re.search(r"[\w.-]/[\w.-]", word)) and _of_file(word) is not None
