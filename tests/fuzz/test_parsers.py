"""No bytes of others make a parser fail in a way that its callers do not expect."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreign_files import FILES
from foreign_messages import FOREIGN_MESSAGES
from mutations import mutate
from parser_bench import Bench, Parser

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
