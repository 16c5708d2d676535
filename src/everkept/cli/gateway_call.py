"""`everkept gateway call`: one call of a tool, with its arguments as a person types them."""

import asyncio
import json
import logging
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import click

from everkept.app.app import App
from everkept.app.gateway_file import load
from everkept.cli.options import common, settings_from
from everkept.cli.runner import THE_GATEWAY, harmless, print_json, reported, run_with_app
from everkept.cli.tools import SPOKEN, STANDARD_INPUT, standard_input
from everkept.core.mcp import Reach, Upstream
from everkept.core.sessions import Session
from everkept.core.text import clipped
from everkept.errors import InvalidInput, NotFound
from everkept.families.gateway.model import likeliest
from everkept.families.gateway.schema_facts import (
    KINDS,
    Root,
    TooIntricate,
    at,
    by_name,
    in_words,
    items,
    kind_of,
    kinds,
    names,
    required,
    values,
)
from everkept.settings import Settings, gateway_target, upstream_environment
from everkept.tools.schema import JSON
from everkept.tools.tool import Result, Tool
from everkept.upstreams.upstream import open_upstream

_MOST_NAMED = 50


class Form:
    """What a schema says of a value, as far as it helps to read what was typed.

    Whether the value is right is for the tool to say. What is too intricate takes anything.
    """

    def __init__(self, place: Any, root: Root) -> None:
        self._place = place
        self._root = root
        try:
            self.kinds = kinds(place, root)
            self.choices = values(place, root) or []  # none where there are others
        except TooIntricate:
            self.kinds, self.choices = KINDS, []

    @property
    def items(self) -> "Form":
        try:
            return Form(items(self._place, self._root), self._root)
        except TooIntricate:
            return Form(True, self._root)

    @property
    def is_open(self) -> bool:
        """Whether anything goes; so it does where nothing can."""
        return self.kinds in (KINDS, frozenset())

    def is_only(self, kind: str) -> bool:
        return self.kinds == frozenset({kind})

    def takes(self, kind: str) -> bool:
        return self.is_open or kind in self.kinds

    @property
    def keys(self) -> list[str]:
        """The properties of an object that are spoken of."""
        try:
            return names(self._place, self._root)
        except TooIntricate:
            return []

    @property
    def keys_of_items(self) -> list[str]:
        """Of a list that holds objects and nothing else."""
        return self.items.keys if self.is_only("array") and self.items.is_only("object") else []

    def below(self, key: str) -> "Form":
        try:
            return Form(at(self._place, [key], self._root), self._root)
        except TooIntricate:
            return Form(True, self._root)

    def value_of(self, texts: Sequence[str], name: str) -> Any:
        """A list where the value may be one and several texts, or nothing else, are given."""
        if known := self.keys_of_items:
            return self._objects(texts, name, known)
        if len(texts) == 1 and not (self.is_only("array") and not _is_list(texts[0])):
            return self._one(texts[0], name)
        if not self.takes("array"):
            raise InvalidInput(
                f"`{name}` is given {len(texts)} times, and takes one value.", argument=name
            )
        items = self.items
        return [items.value_of([text], name) for text in texts]

    def _objects(self, texts: Sequence[str], name: str, known: Sequence[str]) -> list[Any]:
        """From JSON, `-` for JSON on standard input, and key=value, where a key that is given
        again begins the next object, unless it takes a list."""
        items, found = self.items, list[Any]()
        current: dict[str, list[str]] = {}

        def finish() -> None:
            if current:
                found.append({key: items.below(key).value_of(current[key], key) for key in current})
                current.clear()

        for text in texts:
            key, separator, value = text.partition("=")
            if separator and key in known:
                form = items.below(key)
                if key in current and (form.is_open or not form.takes("array")):
                    finish()
                current.setdefault(key, []).append(value)
            else:
                finish()
                found += self._objects_in(text, name, known)
        finish()
        return found

    def _objects_in(self, text: str, name: str, known: Sequence[str]) -> list[Any]:
        value = _json_or_text(standard_input() if text == STANDARD_INPUT else text)
        if isinstance(value, dict | list):
            return cast(list[Any], value) if isinstance(value, list) else [value]
        raise InvalidInput(
            f"`{name}` is {clipped(text)!r}, which is neither JSON nor key=value.",
            hint=f"Write {known[0]}=…, JSON, or {STANDARD_INPUT} for JSON on standard input; "
            f"known: {clipped(', '.join(known), 200)}.",
            argument=name,
            value=clipped(text),
        )

    def _one(self, text: str, name: str) -> Any:
        if text in self.choices:
            return text
        value = _json_or_text(text)
        kind = kind_of(value)
        if self.is_open or (kind, value) in [(kind_of(each), each) for each in self.choices]:
            return value
        if "string" in self.kinds:
            # Only what is written as an object or a list is meant as one.
            return value if kind in ("object", "array") and kind in self.kinds else text
        if kind not in self.kinds:
            _refuse(text, name, self.kinds)
        return value


class Parameters:
    """What a tool takes, by its schema."""

    def __init__(self, schema: JSON) -> None:
        self._root = Root(schema)
        try:
            self.names = names(schema, self._root)
            self.required = set(required(schema, self._root))
        except TooIntricate:
            self.names, self.required = list(by_name(schema.get("properties"))), set[str]()

    def described(self, name: str) -> Any:
        """The schema of one; False where there is surely none of that name."""
        try:
            return at(self._root.schema, [name], self._root)
        except TooIntricate:
            return True

    def form(self, name: str) -> Form:
        described = self.described(name)
        if described is False:
            # The tool would leave it out without a word.
            close = likeliest(name, self.names)
            hint = f"Did you mean `{close}`?" if close else self.hint
            raise InvalidInput(f"Unknown argument `{clipped(name)}`.", hint=hint, argument=name)
        return Form(described, self._root)

    def meant_by(self, words: Sequence[str]) -> str:
        """The parameter that words without a key are for."""
        if len(self.required) == 1:
            return next(iter(self.required))
        raise InvalidInput(
            f"{clipped(words[0])!r} is neither key=value nor a JSON object.",
            hint=self.hint,
            value=clipped(words[0]),
        )

    @property
    def hint(self) -> str:
        known = clipped(", ".join(self.names[:_MOST_NAMED]), 500)
        return f"Known: {known}." if known else "It takes no arguments."


def arguments_from(words: Sequence[str], schema: JSON) -> JSON:
    """From key=value, a JSON object, or `-` for one on standard input; single values go before
    what an object says. Where the tool requires one argument, words without a key are that."""
    parameters = Parameters(schema)
    whole: JSON = {}
    typed: dict[str, list[str]] = {}
    bare: list[str] = []
    for word in words:
        if word == STANDARD_INPUT:
            whole |= _object(standard_input(), "What came on standard input")
        elif word.lstrip().startswith("{"):
            whole |= _object(word, repr(clipped(word)))
        else:
            name, separator, value = word.partition("=")
            if not separator:
                bare.append(word)
            else:
                typed.setdefault(name.strip(), []).append(value)
    if bare:
        name = parameters.meant_by(bare)
        spoken = name in SPOKEN and parameters.form(name).takes("string")
        typed.setdefault(name, []).extend([" ".join(bare)] if spoken else bare)
    return whole | {
        name: parameters.form(name).value_of(texts, name) for name, texts in typed.items()
    }


def _is_list(text: str) -> bool:
    return isinstance(_json_or_text(text), list)


def _json_or_text(text: str) -> Any:
    try:
        return _loads(text)
    except ValueError:
        return text


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _object(text: str, what: str) -> JSON:
    value = _json_or_text(text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is no JSON object.", hint='As in {"query": "tea"}.')
    return cast(JSON, value)


def _refuse(text: str, name: str, wanted: frozenset[str]) -> NoReturn:
    is_json = bool(wanted & {"object", "array"})
    raise InvalidInput(
        f"`{name}` must be {in_words(wanted)}, not {clipped(text)!r}.",
        hint="Objects and lists are written as JSON." if is_json else None,
        argument=name,
        value=clipped(text),
    )


gateway_config = click.option("--gateway-config", metavar="FILE", help="The gateway's file.")


def gateway_file(settings: Settings) -> Path:
    """The file that is read; InvalidInput where there is none."""
    if settings.gateway_config is None:
        usual = gateway_target(settings)
        raise InvalidInput(
            "There is no gateway file.",
            hint=f"`everkept gateway init` writes one ({usual}); --gateway-config names another.",
        )
    return settings.gateway_config


T = TypeVar("T")

PATIENCE = 5.0  # seconds of silence; the first start of a package may take a minute
LOG_NAMES = ("everkept.upstreams", "everkept.app.gateway", "everkept.app.gateway")
LOGS = [logging.getLogger(name) for name in LOG_NAMES]


@contextmanager
def told_once(settings: Settings) -> Generator[None, None, None]:
    """Why a server failed is what the command says itself; the log has it for who asks for more."""
    before = [log.level for log in LOGS]
    if settings.log_level == "warning":
        for log in LOGS:
            log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(LOGS, before, strict=True):
            log.setLevel(level)


@asynccontextmanager
async def opened(reaches: Iterable[Reach]) -> AsyncGenerator[Mapping[str, Upstream], None]:
    """By name; each is started when it is first asked."""
    environment = upstream_environment()
    upstreams = {reach.name: open_upstream(reach, environment) for reach in reaches}
    try:
        yield upstreams
    finally:
        await asyncio.gather(*(upstream.close() for upstream in upstreams.values()))


async def told_if_slow(work: Coroutine[Any, Any, T], whom: str) -> T:
    """What comes of asking; a word on standard error where that takes long. On a terminal there
    is a bar already."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done and not sys.stderr.isatty():
            click.echo(f"Waiting for {whom} …", err=True)
        return await task
    finally:
        task.cancel()


@click.command()
@common
@gateway_config
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | JSON | -]...")
def call(tool: str, words: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Call a TOOL of the gateway, as an assistant would.

    Values are read by the tool's schema: text, numbers, true and false; objects as JSON, and a
    list by giving its key again. All arguments together may be a JSON object, or come as one on
    standard input by `-`. Tools that are passed through can be called too.
    """

    async def work(app: App) -> Result:
        found = await _found(app, tool)
        return await called(app, found.name, arguments_from(words, found.input_schema))

    show(run_gateway(work, **flags), as_json=as_json)


def run_gateway(work: Callable[[App], Awaitable[Result]], **flags: Any) -> Result:
    """Like run_with_app, for the tools of the gateway; what is wrong with its file comes first."""
    settings = settings_from(**flags)
    load(gateway_file(settings))
    with told_once(settings):
        return run_with_app(work, offering=THE_GATEWAY, **flags)


async def called(app: App, name: str, arguments: JSON) -> Result:
    session = Session(client="command line", is_conversation=False)
    with reported(name) as report:
        return await app.call(session, name, arguments, report)


def show(result: Result, *, as_json: bool) -> None:
    """What the tool answered; ends the program with status 1 where that is an error."""
    if as_json:
        print_json(result.structured if result.wire is None else result.wire)
    elif result.text:
        out = sys.stderr if result.is_error else sys.stdout
        shown = harmless(result.text) if out.isatty() else result.text
        click.echo(shown, file=out, color=True)
    else:
        print_json(result.structured)
    if result.is_error:
        sys.exit(1)


async def _found(app: App, name: str) -> Tool:
    """A tool that is passed through is known only to its server."""
    assert app.gateway is not None
    if name not in (known := {tool.name: tool for tool in app.gateway.tools()}):
        with reported("Asking for tools"):
            await app.gateway.refresh(patience=None)
        known = {tool.name: tool for tool in app.gateway.tools()}
    if name not in known:
        if (failure := app.gateway.failure_behind(name)) is not None:
            raise failure
        close = likeliest(name, known)
        listed = clipped(", ".join(known), 500) or "none"
        hint = f"Did you mean `{close}`?" if close else f"The gateway has: {listed}."
        raise NotFound("tool", clipped(name), hint=hint)
    return known[name]
