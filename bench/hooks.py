"""Measures an assistant's hooks: from the start of their process to its end.

    python bench/hooks.py
    python bench/hooks.py --cache PATH --write-docs

A folder for the cache keeps what is filled, which takes a minute; empty it when the schema has
changed. The interpreter that does nothing is measured beside them, in the same rounds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import page
from everkept.cli.selftest_workers import SelftestConnection
from history_workload import Conversations
from page import Timing, keep_best
from servers import own_environment

TURNS = 100_000
MEMORIES = 200
ROUNDS = 3
CALLS = 20  # in one round
BASELINE = "python, doing nothing"
FOLDER = "/home/dev/project-3"  # whose conversations are those of the project
PROJECT = "bench"

_EXPLAINED = """\
Written by `python bench/hooks.py --write-docs`. Each figure is a whole process, from the start of the interpreter to
its end. The data folder holds {turns:,} turns of past conversations in fifty projects and {memories} memories of the
current project. Each prompt comes from a new session, so that no answer is skipped as a repetition. *Answers* counts
the calls that printed something.

{measured_with}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A hook, and what it is told."""

    name: str
    event: str
    told: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cache", type=Path, help="folder that keeps the filled data")
    parser.add_argument("--write-docs", action="store_true", help="write to docs/benchmarks.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everkept-bench-") as folder:
        environment = own_environment(Path(folder) / "bytecode")
        place = (options.cache or Path(folder)) / str(options.turns)
        _fill(place, options.turns, environment)
        timings, answers = _measured(place / "data", options, environment)
    rows = _rows(timings, answers)
    page.print_table(f"{options.turns:,} turns", _HEAD, rows)
    if options.write_docs:
        explained = _EXPLAINED.format(turns=options.turns, memories=MEMORIES, measured_with=page.measured_with([]))
        page.write_section("Hooks", f"{explained}\n{page.markdown_table(_HEAD, rows)}")


def _fill(place: Path, turns: int, environment: dict[str, str]) -> None:
    if (place / "filled").exists():
        return
    workload = Conversations(turns)
    _say(f"{turns:,} turns: writing transcripts")
    workload.write(place / "claude")
    _say(f"{turns:,} turns: importing")
    data = ["--data-dir", str(place / "data"), "--config", "none"]
    claude = environment | {"CLAUDE_CONFIG_DIR": str(place / "claude")}
    _run(["import", "history", "--source", "claude-code", *data], claude)
    _say(f"storing {MEMORIES} memories")
    _store(workload, data, environment)
    (place / "filled").touch()


def _store(workload: Conversations, data: list[str], environment: dict[str, str]) -> None:
    questions = workload.questions()
    serve = [sys.executable, "-m", "everkept", "serve", *data, "--project", PROJECT]
    wire = SelftestConnection(serve, environment=environment)
    wire.initialize("bench")
    for number in range(MEMORIES):
        memory = {
            "content": f"Decided for part {number}: {next(questions).text}",
            "type": "semantic",
            "scope": "project",
            "importance": 0.4 + number % 6 / 10,
        }
        wire.call("store_memory", memory)
    wire.close()


def _cases(workload: Conversations) -> list[Case]:
    questions = workload.questions()
    asked = [next(questions).text for _ in range(3)]
    log = "\n".join(f"12:00:{n % 60:02} ERROR worker {n}: {asked[0]}" for n in range(900))
    return [
        Case("SessionStart", "SessionStart", {"source": "startup"}),
        Case("prompt: yes", "UserPromptSubmit", {"prompt": "yes, go on"}),
        Case("prompt: like what is known", "UserPromptSubmit", {"prompt": f"Please change {asked[1]}"}),
        Case("prompt: about the past", "UserPromptSubmit", {"prompt": f"How did we solve {asked[0]} before?"}),
        Case("prompt: a pasted log", "UserPromptSubmit", {"prompt": f"Why does this fail?\n{log}"}),
        Case(
            "PostToolUse, of no interest",
            "PostToolUse",
            {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {"stdout": ""}},
        ),
        Case("an event that is not handled", "Notification", {}),
    ]


def _measured(
    data: Path, options: argparse.Namespace, environment: dict[str, str]
) -> tuple[dict[str, Timing], dict[str, int]]:
    timings: dict[str, Timing] = {}
    answers: dict[str, int] = {}
    cases = _cases(Conversations(options.turns))
    for round_ in range(options.rounds):
        took = [_timed([sys.executable, "-c", "pass"], "", environment)[0] for _ in range(CALLS)]
        keep_best(timings, BASELINE, took)
        for case in cases:
            durations: list[float] = []
            answers[case.name] = 0
            for number in range(CALLS):
                told = {
                    "session_id": f"bench-{time.time_ns()}-{round_}-{number}",
                    "cwd": FOLDER,
                    "transcript_path": "/nowhere.jsonl",
                    "hook_event_name": case.event,
                    **case.told,
                }
                command = [sys.executable, "-m", "everkept", "hook", case.event]
                command += ["--data-dir", str(data), "--config", "none", "--project", PROJECT]
                took_, said = _timed(command, json.dumps(told), environment)
                durations.append(took_)
                answers[case.name] += bool(said)
            keep_best(timings, case.name, durations)
    return timings, answers


def _timed(command: list[str], told: str, environment: dict[str, str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(command, input=told, env=environment, check=True, capture_output=True, encoding="utf-8")
    return time.perf_counter() - began, done.stdout


_HEAD = ("", "ms", "beside doing nothing", "answers")


def _rows(timings: dict[str, Timing], answers: dict[str, int]) -> list[page.Row]:
    least = timings[BASELINE].p50
    return [
        (
            name,
            f"{timing.p50:,.0f} ({timing.p95:,.0f})",
            f"{timing.p50 / least:.1f}×",
            f"{answers[name]} of {CALLS}" if name in answers else "",
        )
        for name, timing in timings.items()
    ]


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "everkept", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
