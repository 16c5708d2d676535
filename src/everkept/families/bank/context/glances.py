"""The core files of a bank in one answer, whole or in short."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from everkept.errors import EverkeptError, FileNotFound, NotFound
from everkept.families.bank.aside import aside
from everkept.families.bank.banks import Bank
from everkept.families.bank.context.context import BY_USE, Fitted, fitting_digest, fitting_files
from everkept.families.bank.context.digest import Digest, digest_of, limited
from everkept.families.bank.context.file_model import (
    BundledFile,
    BundleMetadata,
    ContextBundle,
    ContextDigest,
    DigestMetadata,
)
from everkept.families.bank.files.bank_files import etag_of, read_bytes
from everkept.families.bank.model import CORE_FILES
from everkept.families.bank.text.encodings import decoding_warning
from everkept.families.bank.text.showing import shown
from everkept.values import Value

GraphSummary = Callable[[Bank], Awaitable[str | None]]


class DigestWishes(Value):
    most_progress: int
    most_decisions: int
    with_patterns: bool
    max_tokens: int | None


class _Core(Value):
    """The core files that could be read, and a sentence about each of the others."""

    texts: Mapping[str, str]
    etags: Mapping[str, str]
    warnings: Sequence[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.texts.values()))


async def bundle_of(
    bank: Bank, timestamp: str, *, with_etags: bool, max_tokens: int | None
) -> ContextBundle:
    core = await _core(bank)
    if not core.texts:
        raise NotFound(
            "file",
            bank.address,
            message=f"No Memory Bank files found. Errors: {'; '.join(core.warnings)}",
            hint="initialize_memory_bank creates those that are missing.",
        )

    def build(fitted: Fitted) -> ContextBundle:
        etags = {name: core.etags[name] for name in fitted.texts if name not in fitted.cut}
        return ContextBundle(
            {
                name: BundledFile(text, etags.get(name) if with_etags else None)
                for name, text in fitted.texts.items()
            },
            BundleMetadata(
                timestamp,
                len(fitted.texts),
                len(CORE_FILES),
                bank.address,
                [*core.warnings, *fitted.warnings],
            ),
        )

    if max_tokens is None:
        return build(Fitted(core.texts, frozenset(), []))
    return build(await aside(core.size, lambda: fitting_files(core.texts, build, max_tokens)))


async def digest_in_short(
    bank: Bank, timestamp: str, wishes: DigestWishes, graph_summary: GraphSummary
) -> ContextDigest:
    core = await _core(bank)
    summary, warnings = await _summary(bank, graph_summary)
    whole = partial(
        digest_of,
        core.texts,
        most_progress=wishes.most_progress,
        most_decisions=wishes.most_decisions,
        with_patterns=wishes.with_patterns,
        graph_summary=summary,
    )
    full, more = limited(await aside(core.size, whole))

    def build(digest: Digest, left_out: Sequence[str]) -> ContextDigest:
        said = [*core.warnings, *warnings, *more, *left_out]
        return ContextDigest(digest, DigestMetadata(timestamp, bank.address, said or None))

    if wishes.max_tokens is None:
        return build(full, [])
    return build(*fitting_digest(full, build, wishes.max_tokens))


async def _core(bank: Bank) -> _Core:
    read = await bank.files.run_all([partial(_bytes_or_error, bank, name) for name in BY_USE])
    texts: dict[str, str] = {}
    etags: dict[str, str] = {}
    warnings: list[str] = []
    for name, data in zip(BY_USE, read, strict=True):
        if isinstance(data, EverkeptError):
            missing = isinstance(data, FileNotFound)
            warnings.append(f"{name} is missing." if missing else f"{name}: {data}")
            continue
        texts[name], etags[name] = shown(data), etag_of(data)
        if warning := decoding_warning(name, data):
            warnings.append(warning.message)
    return _Core(texts, etags, warnings)


async def _bytes_or_error(bank: Bank, name: str) -> bytes | EverkeptError:
    try:
        _, data = await read_bytes(bank, name)
    except EverkeptError as error:
        return error
    return data


async def _summary(bank: Bank, graph_summary: GraphSummary) -> tuple[str | None, list[str]]:
    """A graph that cannot be read is no reason to say nothing about the files."""
    try:
        return await graph_summary(bank), []
    except EverkeptError as error:
        return None, [f"The graph is left out: {error}"]
