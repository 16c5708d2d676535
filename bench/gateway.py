"""Measures what the gateway adds to a call, beside calling the same server directly.

    python bench/gateway.py --quick --no-peer
    python bench/gateway.py --write-docs

The servers behind it are one that costs next to nothing, on pipes and over HTTP, and the official
memory server. Both ways are measured in the same rounds, by the same client; the time of the
processor is read from the processes themselves.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, cast

import psutil

import page
from gateway_callers import JSON, Caller, HttpCaller, StdioCaller
from servers import Peer, node_program, node_version, own_environment, peer_program, peer_version

ROUNDS = 3  # each figure is the best of them, against noise from outside
CALLS = 2_000  # in one round
QUICK_CALLS = 300
STARTS = 5
SIZES = {"200 bytes": 200, "100 KB": 100_000}
AT_ONCE = (1, 16)
UPSTREAM = [sys.executable, str(Path(__file__).with_name("gateway_upstream.py"))]
SDK_CLIENT = Path(__file__).with_name("gateway_sdk.py")
OURS = "memory__read"  # the name that the gateway gives to the tool behind it

_EXPLAINED = """\
Written by `python bench/gateway.py --write-docs`. `--no-peer` needs no Node. Times are milliseconds: p50, and p99 in
parentheses, for one call at a time and for sixteen in parallel.

- *Directly*: the client calls the server itself. *Gateway*: the same call through `everkept serve --toolsets gateway`
  over stdio.
- *CPU* is the processor time of one call in Everkept's process. *Behind* is the time in the server behind it, called
  directly and through the gateway.
- *Start* is the time from the start of the process to the first answer. The gateway starts the server for it; the one
  over HTTP is already running.
- *Memory* is that of Everkept's process, before the first call and after the last.
- The last line shows what a direct call of 200 bytes costs the client of the official SDK.

{measured_with}
"""
_HEAD = ("", "directly", "gateway", "ratio", "CPU", "behind, directly", "behind")


@dataclass(frozen=True, slots=True)
class Behind:
    """A server to stand behind the gateway: how the file names it, and what it is asked."""

    name: str
    server: JSON
    tool: str
    arguments: dict[str, JSON]  # by the size of the answer


@dataclass(slots=True)
class Way:
    """One way to call: milliseconds of a call, and of the processors for it."""

    p50: float = float("inf")
    p99: float = float("inf")
    own_cpu: float = float("inf")
    cpu_behind: float = float("inf")

    def keep_best(self, durations: Iterable[float], own: float, behind: float) -> None:
        ordered = sorted(durations)
        count = len(ordered)
        if ordered[count // 2] * 1000 < self.p50:
            self.p50 = ordered[count // 2] * 1000
            self.p99 = ordered[min(count - 1, count * 99 // 100)] * 1000
        self.own_cpu = min(self.own_cpu, own * 1000 / count)
        self.cpu_behind = min(self.cpu_behind, behind * 1000 / count)


@dataclass(slots=True)
class Figures:
    """What was measured of one server: by case, directly and through the gateway."""

    directly: dict[str, Way] = field(default_factory=dict[str, Way])
    gateway: dict[str, Way] = field(default_factory=dict[str, Way])
    starts: dict[str, float] = field(default_factory=dict[str, float])  # milliseconds
    sdk_cpu: float = float("inf")  # milliseconds that a call costs the official SDK's own client
    rss_before: float = 0.0  # MB, of our process before its first call
    rss_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection, our process where one is in between, and those behind it."""

    caller: Caller
    own: psutil.Process | None
    behind: list[psutil.Process]

    def cpu(self) -> tuple[float, float]:
        own = _cpu([] if self.own is None else [self.own])
        return own, _cpu(self.behind)


Opening = Callable[[], AbstractContextManager[Opened]]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--calls", type=int, default=CALLS, help="in one round of a case")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="few calls, one round")
    parser.add_argument("--no-peer", action="store_true", help="without server-memory")
    parser.add_argument("--write-docs", action="store_true", help="write to docs/benchmarks.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.calls, options.rounds = QUICK_CALLS, 1
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder, _listening() as url:
        bench = _Bench(Path(folder), options.calls, options.rounds)
        for behind in _subjects(Path(folder), url, peer=not options.no_peer):
            results[behind.name] = bench.measured(behind)
            if not options.json:
                page.print_table(behind.name, _HEAD, _rows(results[behind.name]))
    if options.json:
        print(json.dumps({name: asdict(figures) for name, figures in results.items()}))
    if options.write_docs:
        _write_docs(results)


def _subjects(folder: Path, url: JSON, *, peer: bool) -> Generator[Behind, None, None]:
    texts: dict[str, JSON] = {name: {"size": size} for name, size in SIZES.items()}
    command, *arguments = UPSTREAM
    yield Behind("on pipes", {"command": command, "args": arguments}, "text", texts)
    yield Behind("over HTTP", url, "text", texts)
    if peer:
        yield _peer(folder)


def _peer(folder: Path) -> Behind:
    """The official memory server, with one entity for each size of an answer."""
    path = folder / "memory.jsonl"
    entities = [
        {"type": "entity", "name": name, "entityType": "text", "observations": ["x" * size]}
        for name, size in SIZES.items()
    ]
    path.write_text("\n".join(map(json.dumps, entities)), "utf-8")
    server: JSON = {"command": node_program(), "args": [str(peer_program())], "env": {"MEMORY_FILE_PATH": str(path)}}
    asked: dict[str, JSON] = {name: {"names": [name]} for name in SIZES}
    return Behind(Peer.name, server, "open_nodes", asked)


class _Bench:
    def __init__(self, folder: Path, calls: int, rounds: int) -> None:
        self._folder = folder
        self._calls = calls
        self._rounds = rounds
        self._environment = own_environment(folder / "bytecode")

    def measured(self, behind: Behind) -> Figures:
        figures = Figures()
        self._write_file(behind)
        self._measure_starts(behind, figures)
        for number in range(self._rounds):
            _say(f"{behind.name}: round {number + 1} of {self._rounds}")
            figures.sdk_cpu = min(figures.sdk_cpu, self._cpu_of_the_sdk(behind))
            with self._directly(behind) as opened:
                self._measure(behind, behind.tool, opened, figures.directly)
            with self._through_the_gateway() as opened:
                figures.rss_before = _rss(opened.own)
                self._measure(behind, OURS, self._with_children(opened, behind), figures.gateway)
                figures.rss_after = _rss(opened.own)
        return figures

    def _measure(self, behind: Behind, tool: str, opened: Opened, ways: dict[str, Way]) -> None:
        for size, arguments in behind.arguments.items():
            opened.caller.calls(tool, arguments, AT_ONCE[-1], AT_ONCE[-1])  # warm
            for at_once in AT_ONCE:
                own, others = opened.cpu()
                took = opened.caller.calls(tool, arguments, self._calls, at_once)
                own_after, others_after = opened.cpu()
                way = ways.setdefault(f"{size}, {at_once} in parallel", Way())
                way.keep_best(took, own_after - own, others_after - others)

    def _measure_starts(self, behind: Behind, figures: Figures) -> None:
        smallest = next(iter(behind.arguments.values()))
        ways: dict[str, tuple[Opening, str]] = {"gateway": (self._through_the_gateway, OURS)}
        if "url" not in behind.server:  # that one runs already
            ways["directly"] = (lambda: self._directly(behind), behind.tool)
        for name, (opening, tool) in ways.items():
            took: list[float] = []
            for _ in range(STARTS):
                began = time.perf_counter()
                with opening() as opened:
                    opened.caller.calls(tool, smallest, 1, 1)
                    took.append(time.perf_counter() - began)
            figures.starts[name] = min(took) * 1000

    def _cpu_of_the_sdk(self, behind: Behind) -> float:
        """For comparison: whoever calls a server has to spend something on it."""
        asked = {
            "server": _without_process(behind.server),
            "tool": behind.tool,
            "arguments": next(iter(behind.arguments.values())),
            "calls": self._calls,
        }
        done = subprocess.run(
            [sys.executable, str(SDK_CLIENT), json.dumps(asked)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            encoding="utf-8",
            check=True,
        )
        return float(done.stdout)

    @contextmanager
    def _directly(self, behind: Behind) -> Generator[Opened, None, None]:
        if "url" in behind.server:
            process = psutil.Process(behind.server["pid"])
            yield Opened(HttpCaller(behind.server["url"]), None, [process])
            return
        command = [behind.server["command"], *behind.server["args"]]
        environment = self._environment | behind.server.get("env", {})
        with _started(command, environment, subprocess.DEVNULL) as caller:
            yield Opened(caller, None, [psutil.Process(caller.pid)])

    @contextmanager
    def _through_the_gateway(self) -> Generator[Opened, None, None]:
        command = [sys.executable, "-m", "everkept", "serve", "--toolsets", "gateway"]
        command += ["--gateway-config", str(self._file), "--data-dir", str(self._folder / "data")]
        command += ["--config", "none"]
        with _started(command, self._environment) as caller:
            yield Opened(caller, psutil.Process(caller.pid), [])

    def _with_children(self, opened: Opened, behind: Behind) -> Opened:
        """The processes behind are known once a call has started them."""
        opened.caller.calls(OURS, next(iter(behind.arguments.values())), 1, 1)
        own = cast(psutil.Process, opened.own)
        if "pid" in behind.server:
            return Opened(opened.caller, own, [psutil.Process(behind.server["pid"])])
        return Opened(opened.caller, own, own.children(recursive=True))

    @property
    def _file(self) -> Path:
        return self._folder / "tools.json"

    def _write_file(self, behind: Behind) -> None:
        names = {name for arguments in behind.arguments.values() for name in arguments}
        tool: JSON = {
            "name": OURS,
            "description": "What is measured",
            "inputSchema": {"type": "object", "properties": {name: {} for name in names}},
            "upstream": {"tool": behind.tool, "paramMapping": {name: name for name in names}},
        }
        config = {"upstream": _without_process(behind.server), "tools": [tool]}
        self._file.write_text(json.dumps(config), "utf-8")


def _without_process(server: JSON) -> JSON:
    return {key: value for key, value in server.items() if key != "pid"}


@contextmanager
def _started(
    command: list[str], environment: dict[str, str], log: int | None = None
) -> Generator[StdioCaller, None, None]:
    caller = StdioCaller(command, environment, log)
    try:
        yield caller
    finally:
        caller.close()


@contextmanager
def _listening() -> Generator[JSON, None, None]:
    """The server that costs nothing, on a port: its address, and its process."""
    process = subprocess.Popen([*UPSTREAM, "--http"], stdout=subprocess.PIPE, encoding="utf-8")
    try:
        url = cast(IO[str], process.stdout).readline().strip()
        yield {"url": url, "pid": process.pid}
    finally:
        process.kill()
        process.communicate()


def _rows(figures: Figures) -> list[page.Row]:
    rows: list[page.Row] = []
    for case, directly in figures.directly.items():
        gateway = figures.gateway[case]
        rows.append(
            (
                case,
                f"{page.short(directly.p50)} ({page.short(directly.p99)})",
                f"{page.short(gateway.p50)} ({page.short(gateway.p99)})",
                page.ratio(gateway.p50, directly.p50),
                page.short(gateway.own_cpu),
                page.short(directly.cpu_behind),
                page.short(gateway.cpu_behind),
            )
        )
    directly, gateway = figures.starts.get("directly"), figures.starts["gateway"]
    shown = "" if directly is None else page.short(directly)
    ratio = page.ratio(gateway, directly)
    memory = f"{figures.rss_before:.0f} to {figures.rss_after:.0f}"
    return [
        *rows,
        ("Start", shown, page.short(gateway), ratio, "", "", ""),
        ("Memory, MB", "", memory, "", "", "", ""),
        ("CPU of the SDK's client", page.short(figures.sdk_cpu), "", "", "", "", ""),
    ]


def _write_docs(results: dict[str, Figures]) -> None:
    has_peer = Peer.name in results
    peers = [f"server-memory {peer_version()} on Node {node_version()}"] if has_peer else []
    parts = [_EXPLAINED.format(measured_with=page.measured_with(peers))]
    for name, figures in results.items():
        parts.append(f"### Upstream servers: {name}\n\n{page.markdown_table(_HEAD, _rows(figures))}")
    page.write_section("Gateway", "\n".join(parts))


def _cpu(processes: Iterable[psutil.Process]) -> float:
    """Seconds of the processor until now."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _rss(process: psutil.Process | None) -> float:
    return 0.0 if process is None else process.memory_info().rss / 1e6


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
