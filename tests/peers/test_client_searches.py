import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from everkept.core.peers import Peer, PeerAnswers, PeerFault, PeerQuestion
from everkept.peers import client
from everkept.peers.client import HttpPeers, ReachedPeer, greet_peer
from everkept.peers.peer_file import PeerFile
from peer_servers import Answer, found, replying, result, saying, silent, standing_in

HANG = 100  # seconds; nothing takes that long
QUESTION = PeerQuestion("slow checkout", ("conversation",), 5)


def book_of(folder: Path, *peers: Peer) -> PeerFile:
    book = PeerFile(folder / "mine")
    for peer in peers:
        book.add(peer)
    return book


async def asked(folder: Path, *peers: Peer) -> PeerAnswers:
    return await HttpPeers(book_of(folder, *peers)).ask(QUESTION)


def codes(faults: Sequence[PeerFault]) -> list[tuple[str, str]]:
    return [(fault.peer, fault.code) for fault in faults]


async def test_a_server_is_asked_what_was_agreed(tmp_path: Path) -> None:
    told = found(result("Redis was slow"), warnings=("Half of it.",))
    async with standing_in(tmp_path, replying("200 OK", told)) as there:
        answer = await asked(tmp_path, there.peer())
    [one] = answer.answers
    assert (one.peer, [each.content for each in one.findings]) == ("anna", ["Redis was slow"])
    assert one.notices == ("Half of it.",)
    assert not answer.faults
    body = json.loads(bytes(there.received).partition(b"\r\n\r\n")[2])
    wanted = {"version": 1, "query": "slow checkout", "types": ["conversation"], "limit": 5}
    assert body == wanted


async def test_no_secret_leaves_in_a_question(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    async with standing_in(tmp_path, replying("200 OK", found())) as there:
        await HttpPeers(book_of(tmp_path, there.peer())).ask(PeerQuestion(f"why {secret} fails"))
    assert secret.encode() not in there.received
    assert b"fails" in there.received


async def test_nobody_is_contacted_where_nobody_is_known(tmp_path: Path) -> None:
    assert not (await asked(tmp_path)).is_anybody


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (replying("401 Unauthorized"), "peer_refused"),
        (replying("403 Forbidden"), "peer_refused"),
        (replying("404 Not Found"), "peer_wrong_answer"),
        (replying("429 Too Many", Retry_After="17"), "peer_rate_limited"),
        (replying("429 Too Many", Retry_After="tomorrow"), "peer_rate_limited"),
        (replying("503 Busy"), "peer_failed"),
        (replying("302 Found", Location="https://evil.example/"), "peer_failed"),
        (replying("200 OK", b"<html>"), "peer_wrong_answer"),
        (replying("200 OK", {"version": 9, "results": []}), "peer_wrong_answer"),
        (saying(b"220 ready\r\n\r\n"), "peer_wrong_answer"),
        (saying(b""), "peer_wrong_answer"),
    ],
)
async def test_each_failure_has_a_name(tmp_path: Path, answer: Answer, code: str) -> None:
    async with standing_in(tmp_path, answer) as there:
        told = await asked(tmp_path, there.peer())
    [fault] = told.faults
    assert (fault.peer, fault.code) == ("anna", code)
    assert '"anna"' in fault.message
    assert told.is_anybody


async def test_a_limit_says_when_to_come_back(tmp_path: Path) -> None:
    async with standing_in(tmp_path, replying("429 Too Many", Retry_After="17")) as there:
        [fault] = (await asked(tmp_path, there.peer())).faults
    assert "in 17 seconds" in fault.message


async def test_a_stranger_is_named_with_its_fingerprint_and_got_no_request(tmp_path: Path) -> None:
    async with standing_in(tmp_path, replying("200 OK", found())) as there:
        [fault] = (await asked(tmp_path, there.peer(fingerprint="0" * 64))).faults
        assert fault.code == "peer_wrong_certificate"
        assert f"sha256:{there.fingerprint}" in fault.message
        async with asyncio.timeout(HANG):
            await there.was_left.wait()
    assert there.received == b""


async def test_one_that_hangs_does_not_keep_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with (
        standing_in(tmp_path / "a", replying("200 OK", found(result("here")))) as quick,
        standing_in(tmp_path / "b", silent) as slow,
    ):
        told = await asked(tmp_path, quick.peer("quick"), slow.peer("slow", time_limit=0.2))
    assert [each.peer for each in told.answers] == ["quick"]
    assert codes(told.faults) == [("slow", "peer_timed_out")]


async def test_all_are_asked_at_once(tmp_path: Path) -> None:
    """None answers before both were asked."""
    both = asyncio.Barrier(2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await both.wait()
        await replying("200 OK", found())(reader, writer)

    async with standing_in(tmp_path, answer) as there:
        told = await asked(tmp_path, there.peer("one"), there.peer("two"))
    assert len(told.answers) == 2


async def test_one_that_is_down_or_speaks_no_tls_cannot_be_reached(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = Peer("gone", "127.0.0.1", closed.getsockname()[1], "0" * 64, "t")
        nowhere = Peer("nowhere", "no.such.host.invalid", 443, "0" * 64, "t")
        server = await asyncio.start_server(_plain, "127.0.0.1", 0)
        async with server:
            plain = Peer("plain", *server.sockets[0].getsockname(), "0" * 64, "t")
            told = await asked(tmp_path, gone, nowhere, plain)
    assert codes(told.faults) == [
        ("gone", "peer_unreachable"),
        ("nowhere", "peer_unreachable"),
        ("plain", "peer_unreachable"),
    ]


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()
    writer.close()


async def test_a_list_that_cannot_be_read_is_a_fault_and_no_error(tmp_path: Path) -> None:
    book = PeerFile(tmp_path)
    book.path.write_text("nonsense", encoding="utf-8")
    told = await HttpPeers(book).ask(QUESTION)
    assert codes(told.faults) == [("", "peers_unreadable")]
    assert told.is_anybody


async def test_a_server_is_greeted(tmp_path: Path) -> None:
    info = {"name": "everkept", "version": "9.9"}
    async with standing_in(tmp_path, replying("200 OK", info)) as there:
        met = await greet_peer(there.peer())
        assert isinstance(met, ReachedPeer)
        assert (met.peer, met.program, met.version) == ("anna", "everkept", "9.9")
    assert b"GET /peers/info" in there.received


@pytest.mark.parametrize("told", [{}, [], {"name": 7, "version": 1}])
async def test_who_does_not_say_what_they_are_is_not_understood(tmp_path: Path, told: Any) -> None:
    async with standing_in(tmp_path, replying("200 OK", told)) as there:
        fault = await greet_peer(there.peer())
    assert isinstance(fault, PeerFault)
    assert fault.code == "peer_wrong_answer"


async def test_a_name_that_is_never_answered_for_holds_up_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def hang(*_asked: Any, **_more: Any) -> Any:
        answered.wait(HANG)
        raise socket.gaierror("nobody knows it")

    loop = asyncio.get_running_loop()
    few = ThreadPoolExecutor(2)
    loop.set_default_executor(few)
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    peers = [Peer(f"p{n}", "slow.example", 1, "0" * 64, "t", 0.05) for n in range(8)]
    try:
        faults = await asyncio.gather(*map(greet_peer, peers))
        assert {fault.code for fault in faults if isinstance(fault, PeerFault)} == {"peer_timed_out"}
        async with asyncio.timeout(HANG / 4):
            await asyncio.to_thread(lambda: None)
    finally:
        answered.set()


async def test_an_answer_is_taken_apart_within_the_time_and_beside_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def long_work(*_given: Any, **_more: Any) -> Any:
        is_over.wait(HANG)

    monkeypatch.setattr(client, "parse_answer", long_work)
    try:
        async with standing_in(tmp_path, replying("200 OK", found())) as there:
            async with asyncio.timeout(HANG / 4):
                told = await asked(tmp_path, there.peer(time_limit=0.3))
    finally:
        is_over.set()
    assert codes(told.faults) == [("anna", "peer_timed_out")]
