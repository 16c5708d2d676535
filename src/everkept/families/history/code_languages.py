"""Programming languages: their names, and queries that find definitions and calls.

All queries use the same captures:

- A whole definition is captured by its kind: `@function`, `@class`, `@interface`, `@type`, `@module`, `@variable`.
- `@constant` is a definition that counts only in capitals. `@name` is the name of a definition.
- `@owner` is the class of a definition outside of it, and `@self` its name for its own object.
- `@members` contains members of an owner without being its definition.
- `@callee` is called, on a `@receiver`. `@component` is called too if it begins with a capital.
- `@base` is extended. `@import` is a module, `@imported` a name from a module. Both may have an `@alias`.
- `@required` is a module if `@requires` is the function `require`.
"""

import re
from collections.abc import Callable

from everkept.values import Value

# The canonical name, and other names in fences and filters.
_LANGUAGE_NAMES = """
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


# Languages of files by their whole name, or by its beginning.
_FILE_NAMES = """
    cmake: cmakelists.txt
    dockerfile: dockerfile containerfile
    dotenv: .env
    go: go.mod
    groovy: jenkinsfile
    ini: .gitconfig .npmrc
    json: .prettierrc .eslintrc .babelrc
    makefile: makefile gnumakefile
    ruby: gemfile rakefile podfile vagrantfile
    shell: .bashrc .zshrc .bash_profile .profile
    toml: pipfile cargo.lock poetry.lock uv.lock
    vim: .vimrc
    yaml: procfile
"""


def _parse_names(text: str) -> dict[str, list[str]]:
    lines = (line.partition(":") for line in text.split("\n") if line.strip())
    return {language.strip(): names.split() for language, _, names in lines}


_CANONICAL_NAMES = {name: key for key, names in _parse_names(_LANGUAGE_NAMES).items() for name in (key, *names)}
_FILE_LANGUAGES = {name: key for key, names in _parse_names(_FILE_NAMES).items() for name in names}
# Names that are not file extensions: `x.docker` and `x.node` are other files.
_NOT_EXTENSIONS = {"docker", "make", "node", "rest", "basic", "text", "http", "pom", "deno"}

_ATTRIBUTE = re.compile(
    r"""\b(?:title|file|filename|path|name|src)\s*[=:]\s*(?:"([^"]+)"|'([^']+)'|([^"'\s}]+))""", re.I
)
_WORD = re.compile(r"[a-z][a-z0-9+#._-]{0,29}", re.I)
_CITED_FILE = re.compile(r"\d+:\d+:(.+)")  # first line, last line, file
_EXTENSION = re.compile(r"[^\s./\\]\.([a-z0-9+]{1,12})$", re.I)
MAX_TAG_CHARACTERS = 500  # longer text is not an info string


def detect_language(tag: str | None, file: str | None) -> str | None:
    """Return the language of a fence's tag, otherwise of the file. Return an unknown word unchanged."""
    word = _get_first_word(tag or "")
    if (known := _CANONICAL_NAMES.get(word)) is not None:
        return known
    named = file or (find_tag_file(tag) if tag else None)
    if named is not None and (told := _find_file_language(named)) is not None:
        return told
    is_file = named is not None and not file
    return word if word and not is_file and _WORD.fullmatch(word) else None


def find_tag_file(tag: str) -> str | None:
    """Return the file named in an info string such as `python:src/x.py` or `ts title="a.ts"`."""
    info = tag.strip()[:MAX_TAG_CHARACTERS]
    if cited := _CITED_FILE.fullmatch(info):
        return cited[1].strip() or None
    if attribute := _ATTRIBUTE.search(info):
        return attribute[1] or attribute[2] or attribute[3]
    language, colon, rest = info.partition(":")
    said = rest.strip("{} ").split()
    if colon and said and "//" not in said[0] and _get_first_word(language) in _CANONICAL_NAMES:
        return said[0]
    words = [word.strip("{}()[],;\"'`") for word in info.split()]
    return next((word for word in words if _is_file(word)), None)


def normalize_language(text: str) -> str:
    """Return the canonical name of the language that a person asks for."""
    word = text.strip().lstrip(".").casefold()
    joined = re.sub(r"[\s_]+", "-", word)
    return (
        _CANONICAL_NAMES.get(word)
        or _CANONICAL_NAMES.get(joined)
        or _CANONICAL_NAMES.get(joined.replace("-", ""), word)
    )


def _get_first_word(tag: str) -> str:
    """Return the language in an info string, in lower case."""
    info = tag.strip()[:MAX_TAG_CHARACTERS].casefold()
    if info.startswith("{"):  # {.python .numberLines}
        info = info.lstrip("{. ")
    first = re.split(r"[\s,;{}()\[\]]", info, maxsplit=1)[0]
    word, colon, _ = first.partition(":")
    language = word.removeprefix("language-").removeprefix("lang-").removeprefix(".")
    return "" if colon and language not in _CANONICAL_NAMES else language


def _find_file_language(file: str) -> str | None:
    name = re.split(r"[/\\]", file.strip())[-1].casefold()
    if name in _FILE_LANGUAGES:
        return _FILE_LANGUAGES[name]
    stem = name.split(".")[0]
    if stem in ("dockerfile", "containerfile", "makefile"):
        return _FILE_LANGUAGES[stem]
    if name.startswith(".env."):
        return "dotenv"
    ending = name.rpartition(".")[2] if "." in name else ""
    return None if ending in _NOT_EXTENSIONS else _CANONICAL_NAMES.get(ending)


def _is_file(word: str) -> bool:
    if "://" in word or word.startswith(("-", "=", "{")):
        return False
    ending = _EXTENSION.search(word)
    return bool(ending or re.search(r"[\w.-]/[\w.-]", word)) and _find_file_language(word) is not None


class Grammar(Value):
    """A grammar that may not be installed, its query, and a class to put around members without one."""

    load: Callable[[], object]
    query: str
    around: tuple[str, str] | None = None


_PYTHON_QUERY = """
(class_definition name: (identifier) @name) @class
(class_definition superclasses: (argument_list [(identifier) (attribute)] @base))
(class_definition superclasses: (argument_list (subscript value: (_) @base)))
(function_definition name: (identifier) @name) @function
(module (expression_statement (assignment left: (identifier) @name) @constant))

(call function: (identifier) @callee)
(call function: (attribute object: (_) @receiver attribute: (identifier) @callee))
(decorator (identifier) @callee)
(decorator (attribute object: (_) @receiver attribute: (identifier) @callee))

(import_statement name: (dotted_name) @import)
(import_statement name: (aliased_import name: (_) @import alias: (_) @alias))
(import_from_statement module_name: (_) @import)
(import_from_statement name: (dotted_name) @imported)
(import_from_statement name: (aliased_import name: (_) @imported alias: (_) @alias))
"""

_SCRIPT_QUERY = """
(class_declaration name: (_) @name) @class
(class name: (_) @name) @class
(variable_declarator name: (identifier) @name value: (class)) @class

(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: (_) @name) @function
(variable_declarator name: (identifier) @name
    value: [(arrow_function) (function_expression) (generator_function)]) @function
(assignment_expression
    left: [(identifier) @name (member_expression property: (property_identifier) @name)]
    right: [(arrow_function) (function_expression) (generator_function)]) @function
(pair key: (property_identifier) @name
    value: [(arrow_function) (function_expression) (generator_function)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable))

(call_expression function: (identifier) @callee)
(call_expression
    function: (member_expression object: (_) @receiver property: (property_identifier) @callee))
(new_expression constructor: (identifier) @callee)
(new_expression
    constructor: (member_expression object: (_) @receiver property: (property_identifier) @callee))

(import_statement source: (string) @import)
(export_statement source: (string) @import)
(import_clause (identifier) @imported)
(import_clause (namespace_import (identifier) @imported))
(import_specifier name: (identifier) @imported !alias)
(import_specifier name: (identifier) @imported alias: (identifier) @alias)
(call_expression function: (import) arguments: (arguments (string) @import))
(call_expression function: (identifier) @requires arguments: (arguments (string) @required))
"""

_JSX_QUERY = """
(jsx_opening_element name: (identifier) @component)
(jsx_self_closing_element name: (identifier) @component)
"""

_JAVASCRIPT_QUERY = """
(class_heritage [(identifier) (member_expression)] @base)
(field_definition property: (property_identifier) @name
    value: [(arrow_function) (function_expression)]) @function
"""

_TYPESCRIPT_QUERY = """
(abstract_class_declaration name: (_) @name) @class
(extends_clause value: [(identifier) (member_expression)] @base)
(implements_clause (_) @base)
(extends_type_clause type: (_) @base)
(public_field_definition name: (property_identifier) @name
    value: [(arrow_function) (function_expression)]) @function
(function_signature name: (identifier) @name) @function
(method_signature name: (_) @name) @function
(abstract_method_signature name: (_) @name) @function
(interface_declaration name: (_) @name) @interface
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @type
(internal_module name: (_) @name) @module
"""

_GO_QUERY = """
(function_declaration name: (identifier) @name) @function
(method_declaration
    receiver: (parameter_list (parameter_declaration
        name: (identifier)? @self
        type: [
            (type_identifier) @owner
            (generic_type type: (_) @owner)
            (pointer_type [(type_identifier) @owner (generic_type type: (_) @owner)])
        ]))
    name: (field_identifier) @name) @function
(type_spec name: (_) @name type: (struct_type)) @class
(type_spec name: (_) @name type: (interface_type)) @interface
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
(const_spec name: (identifier) @name) @constant
(var_spec name: (identifier) @name) @constant
(field_declaration !name type: (_) @base)

(call_expression function: (identifier) @callee)
(call_expression
    function: (selector_expression operand: (_) @receiver field: (field_identifier) @callee))
(composite_literal type: (type_identifier) @callee)
(composite_literal type: (qualified_type package: (_) @receiver name: (_) @callee))

(import_spec !name path: (_) @import)
(import_spec name: (_) @alias path: (_) @import)
"""

_RUST_QUERY = """
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(macro_definition name: (identifier) @name) @function
(struct_item name: (_) @name) @class
(enum_item name: (_) @name) @class
(union_item name: (_) @name) @class
(trait_item name: (_) @name) @interface
(type_item name: (_) @name) @type
(mod_item name: (_) @name body: (_)) @module
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(impl_item type: (_) @owner) @members
(impl_item trait: (_) @base)
(trait_item bounds: (trait_bounds [(type_identifier) (scoped_type_identifier)] @base))

(call_expression function: (identifier) @callee)
(call_expression
    function: (field_expression value: (_) @receiver field: (field_identifier) @callee))
(call_expression function: (scoped_identifier path: (_) @receiver name: (identifier) @callee))
(call_expression function: (generic_function function: (identifier) @callee))
(call_expression function: (generic_function
    function: (scoped_identifier path: (_) @receiver name: (identifier) @callee)))
(macro_invocation macro: (identifier) @callee)
(struct_expression name: (type_identifier) @callee)

(use_declaration argument: (_) @imported)
(extern_crate_declaration name: (identifier) @import)
"""

_JAVA_QUERY = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(enum_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(method_declaration name: (identifier) @name) @function
(constructor_declaration name: (identifier) @name) @function
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @constant
(superclass (_) @base)
(super_interfaces (type_list (_) @base))
(extends_interfaces (type_list (_) @base))

(method_invocation !object name: (identifier) @callee)
(method_invocation object: (_) @receiver name: (identifier) @callee)
(object_creation_expression type: (_) @callee)
(marker_annotation name: (identifier) @callee)
(annotation name: (identifier) @callee)

(import_declaration [(scoped_identifier) (identifier)] @imported)
"""

_CPP_QUERY = """
(class_specifier name: (_) @name body: (_)) @class
(struct_specifier name: (_) @name body: (_)) @class
(union_specifier name: (_) @name body: (_)) @class
(enum_specifier name: (_) @name body: (_)) @type
(type_definition declarator: (type_identifier) @name) @type
(alias_declaration name: (_) @name) @type
(namespace_definition name: (_) @name) @module
(preproc_function_def name: (identifier) @name) @function
(preproc_def name: (identifier) @name) @constant
(base_class_clause [(type_identifier) (qualified_identifier) (template_type)] @base)

(function_definition declarator: [
    (function_declarator declarator: [(identifier) (field_identifier)] @name)
    (_ (function_declarator declarator: [(identifier) (field_identifier)] @name))
    (_ (_ (function_declarator declarator: [(identifier) (field_identifier)] @name)))
]) @function
(function_definition declarator: [
    (function_declarator declarator: (qualified_identifier scope: (_) @owner name: (_) @name))
    (_ (function_declarator declarator: (qualified_identifier scope: (_) @owner name: (_) @name)))
]) @function
(declaration declarator: [
    (function_declarator declarator: (identifier) @name)
    (_ (function_declarator declarator: (identifier) @name))
]) @function
(field_declaration declarator: [
    (function_declarator declarator: (field_identifier) @name)
    (_ (function_declarator declarator: (field_identifier) @name))
]) @function

(call_expression function: (identifier) @callee)
(call_expression
    function: (field_expression argument: (_) @receiver field: (field_identifier) @callee))
(call_expression
    function: (qualified_identifier scope: (_) @receiver name: (identifier) @callee))
(call_expression function: (template_function name: (identifier) @callee))
(call_expression function: (qualified_identifier
    scope: (_) @receiver name: (template_function name: (identifier) @callee)))
(new_expression type: (_) @callee)

(preproc_include path: (_) @import)
(using_declaration (qualified_identifier) @imported)
"""

_C_SHARP_QUERY = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(struct_declaration name: (identifier) @name) @class
(enum_declaration name: (identifier) @name) @type
(delegate_declaration name: (identifier) @name) @type
(interface_declaration name: (identifier) @name) @interface
(namespace_declaration name: (_) @name) @module
(file_scoped_namespace_declaration name: (_) @name) @module
(method_declaration name: (identifier) @name) @function
(constructor_declaration name: (identifier) @name) @function
(local_function_statement name: (identifier) @name) @function
(base_list [(identifier) (qualified_name) (generic_name)] @base)

(invocation_expression function: (identifier) @callee)
(invocation_expression function: (generic_name (identifier) @callee))
(invocation_expression
    function: (member_access_expression expression: _ @receiver name: (_) @callee))
(invocation_expression function: (conditional_access_expression
    condition: _ @receiver (member_binding_expression name: (_) @callee)))
(object_creation_expression type: (_) @callee)
(attribute name: (_) @callee)

(using_directive [(identifier) (qualified_name)] @import)
"""


def _load_python() -> object:
    import tree_sitter_python

    return tree_sitter_python.language()


def _load_javascript() -> object:
    import tree_sitter_javascript

    return tree_sitter_javascript.language()


def _load_typescript() -> object:
    import tree_sitter_typescript

    return tree_sitter_typescript.language_typescript()


def _load_tsx() -> object:
    import tree_sitter_typescript

    return tree_sitter_typescript.language_tsx()


def _load_go() -> object:
    import tree_sitter_go

    return tree_sitter_go.language()


def _load_rust() -> object:
    import tree_sitter_rust

    return tree_sitter_rust.language()


def _load_java() -> object:
    import tree_sitter_java

    return tree_sitter_java.language()


def _load_cpp() -> object:
    import tree_sitter_cpp

    return tree_sitter_cpp.language()


def _load_c_sharp() -> object:
    import tree_sitter_c_sharp

    return tree_sitter_c_sharp.language()


_CLASS_WRAPPER = ("class Fragment {\n", "\n}")

_CPP_GRAMMARS = (Grammar(_load_cpp, _CPP_QUERY),)

# Grammars by language. If the first one cannot parse a text, the next may.
GRAMMARS: dict[str, tuple[Grammar, ...]] = {
    "python": (Grammar(_load_python, _PYTHON_QUERY),),
    "javascript": (Grammar(_load_javascript, _SCRIPT_QUERY + _JSX_QUERY + _JAVASCRIPT_QUERY, _CLASS_WRAPPER),),
    "typescript": (
        Grammar(_load_typescript, _SCRIPT_QUERY + _TYPESCRIPT_QUERY, _CLASS_WRAPPER),
        Grammar(_load_tsx, _SCRIPT_QUERY + _JSX_QUERY + _TYPESCRIPT_QUERY),
    ),
    "go": (Grammar(_load_go, _GO_QUERY),),
    "rust": (Grammar(_load_rust, _RUST_QUERY),),
    "java": (Grammar(_load_java, _JAVA_QUERY, _CLASS_WRAPPER),),
    "c": _CPP_GRAMMARS,
    "cpp": _CPP_GRAMMARS,
    "csharp": (Grammar(_load_c_sharp, _C_SHARP_QUERY, _CLASS_WRAPPER),),
}
