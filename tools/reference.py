"""Write what comes from the code: pages of tools, commands, settings and errors, the Python API without asyncio, and
the bundled views.

`python tools/reference.py` writes them, `--check` fails if one is stale.
"""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from bundle_views import build_views

from everkept import errors
from everkept.app.app import App
from everkept.cli.main import COMMANDS, cli
from everkept.core.projects import MAX_PROJECT_NAME_CHARACTERS
from everkept.errors import EverkeptError
from everkept.families.gateway import draft
from everkept.families.gateway.draft import build_file_schema
from everkept.families.gateway.file_reader import parse_file
from everkept.families.graph import model
from everkept.settings import PREFIX, Settings, read_settings
from everkept.settings import model as settings_model
from everkept.settings.locations import PLUGIN_CONFIG_VARIABLE, PLUGIN_FILE
from everkept.settings.sources import FILE_KEYS, FIXED_SETTINGS, VARIABLES
from everkept.tools.tool import Effect, Tool
from everkept.values import MISSING, list_fields

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
API = ROOT / "src/everkept/api"
HEAD = "<!-- Made by tools/reference.py from the code. Edit the code, not this page. -->\n\n"


def tools_page() -> str:
    parts = [
        "# Tools\n",
        "Each tool is also a command: replace underscores with dashes. `tools/list` omits rare arguments;",
        "this page has all of them. A failed call returns `isError` and the envelope of [errors](errors.md).\n",
        f"Limits: {model.MAX_NAME_CHARACTERS:,} characters for a name ({MAX_PROJECT_NAME_CHARACTERS} for a project), "
        f"{model.TEXT_LIMIT:,} for a text, {model.BATCH_LIMIT:,} items per call, "
        f"{model.PAGE_LIMIT:,} entities per page. A message has at most 16 MiB.\n",
    ]
    parts += [_tool(tool) for tool in App(read_settings({}, {})).tools]
    parts.append(
        "# Tools of the memory bank\n\nOffered with `--toolsets bank` or any option of the [memory bank](bank.md).\n"
    )
    bank = App(read_settings({"toolsets": "bank"}, {})).tools
    parts += [_tool(tool) for tool in bank]
    parts.append("# More tools of the memory bank\n\nOffered with `--bank-extras`.\n")
    extras = App(read_settings({"toolsets": "bank", "bank_extras": True}, {})).tools
    parts += [_tool(tool) for tool in extras if tool.name not in bank]
    parts.append(
        "# Tools of the dialect `server-memory`\n\n"
        "`everkept serve --dialect server-memory` offers these instead, in the format of the official memory server.\n"
    )
    parts += [_tool(tool) for tool in App(read_settings({"dialect": "server-memory"}, {})).tools]
    parts.append(
        "# Tools of a gateway\n\n"
        "The [gateway](gateway.md) file defines them. These are the tools of its ready-made files, which "
        "`everkept gateway init --ready NAME` writes. Arguments in brackets are optional.\n"
    )
    parts += [_ready_made(name) for name in draft.list_ready_names()]
    return "\n".join(parts)


def _ready_made(name: str) -> str:
    config = parse_file(draft.read_ready_file(name, DOCS), DOCS).config
    assert config is not None
    lines = [f"## Ready-made: {name}\n", "| tool | arguments | there | |", "|---|---|---|---|"]
    for tool in config.tools:
        needed = tool.input_schema.get("required", ())
        shown = [f"`{n}`" if n in needed else f"[`{n}`]" for n in tool.input_schema["properties"]]
        lines.append(f"| `{tool.name}` | {' '.join(shown)} | `{tool.tool}` | {tool.description} |")
    return "\n".join(lines) + "\n"


def _tool(tool: Tool) -> str:
    effects = {
        Effect.READS: "reads",
        Effect.SESSION_ONLY: "changes only the session",
        Effect.WRITES: "writes",
        Effect.REPEATABLE: "writes; a repeated call changes nothing",
        Effect.DESTROYS: "deletes or hides",
        Effect.PERMANENT: "deletes permanently",
    }
    lines = [f"## {tool.name}\n", f"{tool.description} *({effects[tool.effect]})*\n"]
    if tool.input_schema["properties"]:
        lines += ["| argument | type | default | |", "|---|---|---|---|"]
        lines += _arguments(tool.input_schema)
    return "\n".join(lines) + "\n"


def _arguments(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, argument in schema["properties"].items():
        default = argument.get("default")
        shown = "required" if name in required else "" if default in (None, "", []) else default
        described = argument.get("description", "")
        yield f"| `{prefix}{name}` | {_type(argument)} | {shown} | {described} |"
        items = argument.get("items", {})
        if "properties" in items:
            yield from _arguments(items, f"{prefix}{name}[].")
        if "properties" in argument:
            yield from _arguments(argument, f"{prefix}{name}.")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(_type(form) for form in schema["oneOf"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    bounds = [str(schema[key]) for key in ("minimum", "maximum") if key in schema]
    return schema["type"] + (f" ({' to '.join(bounds)})" if bounds else "")


def commands_page() -> str:
    context = click.Context(cli, info_name="everkept", terminal_width=100)
    parts = [
        "# Commands\n",
        "Exit status: 0 success, 1 failure, 2 usage error, 130 interrupted. Every [tool](tools.md) is also a command. "
        "Pass a list of objects in JSON, in `key=value` words, or use `-` to read JSON from standard input.\n",
    ]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts.append(_command(command, context, name))
    return "\n".join(parts)


def _command(command: click.Command, parent: click.Context, name: str) -> str:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
    page = f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            page += "\n" + _command(found, context, inner)
    return page


def settings_page() -> str:
    hints = get_type_hints(Settings)
    described = _field_comments(settings_model, "Settings")
    lines = [
        "# Settings\n",
        "Everkept reads settings in this order: command-line flag, environment variable, config file, default. "
        "`everkept config` shows each value and its source. `everkept config init` writes a config file.\n",
        "A config file is Markdown. Its settings are at the top between two lines of `---`, or in `yaml` blocks below. "
        "The address of a server in a block counts only if a server is asked for.\n",
        f"Without its own file, Everkept reads that of the surrealdb-memory plugin: `~/{PLUGIN_FILE.as_posix()}`. "
        "The table has the plugin's names second.\n",
        "| setting | variable | default | |",
        "|---|---|---|---|",
    ]
    for field in list_fields(Settings):
        default = "" if field.default in (MISSING, None) else f"`{field.default}`"
        kind = hints[field.name]
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        allowed = f" One of {', '.join(f'`{c}`' for c in choices)}." if choices else ""
        text = described[field.name] + allowed
        keys = [field.name, *(key for key, name in FILE_KEYS.items() if name == field.name)]
        variables = [PREFIX + field.name.upper(), *VARIABLES.get(field.name, ())]
        variables += [PLUGIN_CONFIG_VARIABLE] if field.name == "config" else []
        lines.append(f"| {_code(keys)} | {_code(variables)} | {default} | {text} |")
    for key, (only, reason) in FIXED_SETTINGS.items():
        lines.append(f"| `{key}` | | `{only}` | In a file of the plugin; it can only be {only}: {reason}. |")
    return "\n".join(lines) + "\n"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _field_comments(module: Any, class_name: str) -> dict[str, str]:
    """Return the `#:` comments above the fields of a class."""
    source = inspect.getsource(module).splitlines()
    tree = ast.parse("\n".join(source))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name).body
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = source[node.lineno - 2].strip()
            if comment.startswith("#:"):
                found[node.target.id] = comment.removeprefix("#:").strip()
    return found


def errors_page() -> str:
    lines = [
        "# Errors\n",
        "A failed tool returns `isError`, a sentence, and this envelope as structured content: `error` (the code), "
        "`message`, `degraded` and `retry_possible`. It may add a `hint` and facts such as `argument` or `limit`.\n",
        "| code | retry may help | |",
        "|---|---|---|",
    ]
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, EverkeptError) and kind is not EverkeptError:
            retry = "yes" if kind.retry_possible else "no"
            lines.append(f"| `{kind.code}` | {retry} | {inspect.getdoc(kind)} |")
    lines.append(
        "| `internal_error` | no | A bug in Everkept. The server's log has the details under the id in the message. |"
    )
    lines += [
        "\n## Error codes of JSON-RPC\n",
        "A request that is wrong itself, or a resource that cannot be read, gets a JSON-RPC error. Its `data` has the "
        "envelope, or the `uri` of a missing resource.\n",
        "| code | when |",
        "|---|---|",
        "| -32700 | The message is not JSON. |",
        "| -32600 | The message is not a request. |",
        "| -32601 | The method is unknown, or the tool is unknown in a protocol revision with a handshake. |",
        "| -32602 | The parameters are wrong, a tool is unknown or a resource is missing in revision 2026-07-28, or a "
        "resource is refused. |",
        "| -32603 | A bug, or a store that is unreachable. |",
        "| -32000 | The memory bank of a resource is missing or unreachable. `data` has `expectedPath` and "
        "`suggestion`. |",
        "| -32002 | A resource is missing, in a protocol revision with a handshake. For a bank file, `data` has "
        "`expectedPath` and `suggestion`. |",
        "| -32022 | The protocol revision is not supported. |",
    ]
    return "\n".join(lines) + "\n"


def gateway_schema() -> str:
    return json.dumps(build_file_schema(), indent=2, ensure_ascii=False) + "\n"


# What makes a coroutine of a method, and what replaces it.
_OF_ASYNC = {
    "async def ": "def ",
    "await ": "",
    "async with ": "with ",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "Async": "",
}


def blocking_api() -> str:
    """Return the module of the same classes for programs without asyncio."""
    _, _, code = (API / "async_memory.py").read_text(encoding="utf-8").partition("\n")
    for word, replacement in _OF_ASYNC.items():
        code = code.replace(word, replacement)
    head = '"""A memory for programs without asyncio. tools/reference.py writes this file from `async_memory.py`."""'
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(API / "memory.py"), "-"],
        input=f"{head}\n{code}",
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return formatted.stdout


PAGES: dict[str, Callable[[], str]] = {
    "../src/everkept/api/memory.py": blocking_api,
    "tools.md": tools_page,
    "commands.md": commands_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "gateway.schema.json": gateway_schema,
}


def main() -> int:
    stale = 0
    pages = {(DOCS / name).resolve(): (HEAD if name.endswith(".md") else "") + made() for name, made in PAGES.items()}
    for path, page in (pages | build_views()).items():
        if path.exists() and path.read_text(encoding="utf-8") == page:
            continue
        stale += 1
        if "--check" in sys.argv:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run python tools/reference.py\n")
        else:
            path.write_text(page, encoding="utf-8", newline="\n")
            sys.stderr.write(f"{path.relative_to(ROOT)} written\n")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
