"""No bytes of others make a parser fail in a way that its callers do not expect."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreign_files import FILES
from foreign_messages import FOREIGN_MESSAGES
from mutations import mutate
from parser_bench import DEEP, Bench, Parser

#: Valid JSON that is nested deeper than any reader follows.
DEEP_VALUES = (b"[" * 9_000 + b"]" * 9_000, b'{"a":' * 9_000 + b"1" + b"}" * 9_000)
JSON_VALUE = re.compile(rb':[ \t]*("(?:[^"\\\n]|\\.)*"|[\d.]+|true|false|null)')
PARSERS: dict[str, Parser] = {**FOREIGN_MESSAGES, **FILES}
IS_THOROUGH = settings.get_current_profile_name() == "thorough"
#: Without --all, each run tries the same few examples, so that a build says the same everywhere.
fuzzed = settings(
    max_examples=2_000 if IS_THOROUGH else 20, derandomize=not IS_THOROUGH, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        bench = Bench(tmp_path_factory.mktemp("bench"), runner)
        yield bench
        bench.run(bench.app.close())


@pytest.mark.parametrize("name", PARSERS)
def test_the_samples_and_what_broke_a_parser_once_are_read(name: str, bench: Bench) -> None:
    parser = PARSERS[name]
    for sample in parser.samples:
        parser.read(bench, sample)
    for data in parser.broke:
        read(bench, name, data)


@pytest.mark.parametrize("name", PARSERS)
def test_deep_and_unclosed_json_is_read_or_refused(name: str, bench: Bench) -> None:
    for data in (DEEP, b'{"a":' * 9_000, *(DEEP_VALUES if PARSERS[name].samples else ())):
        read(bench, name, data)
    for sample in PARSERS[name].samples[:2]:
        for place in JSON_VALUE.finditer(sample[:20_000], len(sample) % 7):
            read(bench, name, sample[: place.start(1)] + DEEP_VALUES[0] + sample[place.end(1) :])
            break


@pytest.mark.parametrize("name", PARSERS)
@fuzzed
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(name: str, data: st.DataObject, bench: Bench) -> None:
    read(bench, name, data.draw(mutate(PARSERS[name].samples), "bytes"))


def read(bench: Bench, name: str, data: bytes) -> None:
    parser = PARSERS[name]
    try:
        parser.read(bench, data)
    except parser.errors as error:
        str(error).encode("utf-8", "surrogatepass")
