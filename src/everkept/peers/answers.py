"""What another server answered, taken apart with care: it is data of a stranger's making."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.core.data_fence import readable
from everkept.core.peers import MOST_RESULTS, PROTOCOL, SAID_TYPES, TYPES, Peer, PeerAnswer
from everkept.core.search_ports import Finding, SearchType
from everkept.core.secrets import masked
from everkept.core.text import clipped
from everkept.core.times import iso, parsed

LONGEST_CONTENT = 4_000  # characters
LONGEST_IN_ALL = 100_000  # of the contents of one answer
LONGEST_LABEL = 200
MOST_NOTICES = 5
LIMITLESS = 1e9  # no score, but a way to break a calculation

JSON = Mapping[str, Any]


class NotUnderstood(Exception):
    """The answer is none of ours; the message says why."""


def answer_of(peer: Peer, body: bytes, limit: int) -> PeerAnswer:
    """What is well-formed of it, cut to length, without secrets and what nobody sees."""
    told = _object(body)
    if told.get("version") != PROTOCOL:
        shown = clipped(str(told.get("version")), 20)
        raise NotUnderstood(f"it speaks version {shown} of this, not {PROTOCOL}")
    results = told.get("results")
    if not isinstance(results, list):
        raise NotUnderstood("it has no list of results")
    given = cast("list[object]", results)[: min(limit, MOST_RESULTS)]
    findings, looked_at = _findings(peer, given)
    if given and not findings:
        raise NotUnderstood("none of its results can be read")
    findings.sort(key=lambda finding: -finding.score)
    unreadable, unread = looked_at - len(findings), len(given) - looked_at
    notices = [*_notices(told.get("warnings"))]
    if unreadable:
        notices.append(f"{unreadable} of its {len(given)} results cannot be read.")
    if unread:
        notices.append(f"{unread} of its {len(given)} results are left out: it is too long.")
    return PeerAnswer(peer.name, tuple(findings), tuple(notices))


def program_of(body: bytes) -> tuple[str, str]:
    """Name and version of the program that answered."""
    told = _object(body)
    name, version = _label(told.get("name")), _label(told.get("version"))
    if not name or not version:
        raise NotUnderstood("it does not say what it is")
    return name, version


def _object(body: bytes) -> JSON:
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_refused)
    except (ValueError, RecursionError):
        raise NotUnderstood("it is no JSON") from None
    if not isinstance(value, dict):
        raise NotUnderstood("it is no object")
    return cast(JSON, value)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _findings(peer: Peer, given: Sequence[object]) -> tuple[list[Finding], int]:
    """What can be read, and how many were looked at until it was enough."""
    found: list[Finding] = []
    length = 0
    for number, each in enumerate(given):
        if length >= LONGEST_IN_ALL:
            return found, number
        finding = _finding(peer, each)
        if finding is not None:
            found.append(finding)
            length += len(finding.content)
    return found, len(given)


def _finding(peer: Peer, given: object) -> Finding | None:
    """None where it is not as agreed."""
    if not isinstance(given, dict):
        return None
    result = cast(JSON, given)
    kind, content, score = result.get("type"), result.get("content"), result.get("score")
    name, at = _label(result.get("id")), _moment(result.get("at"))
    if kind not in TYPES or not isinstance(content, str) or not name:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < LIMITLESS:
        return None
    text = _text(content)
    if not text or (kind in SAID_TYPES and at is None):
        return None
    way: SearchType = "graph" if kind in ("entity", "relation") else "semantic"
    return Finding(
        # Under which it can be read nowhere here: the same id may be one of ours.
        id=f"{peer.name}:{name}",
        type=kind,
        content=text,
        score=min(max(float(score), 0.0), 1.0),
        search_type=way,
        title=_label(result.get("title")),
        project=_label(result.get("project")),
        at=at,
    )


def _text(given: str) -> str:
    """The first characters alone are looked at: what is longer was never agreed on."""
    text, _ = masked(readable(given[: 2 * LONGEST_CONTENT]).strip())
    return text if len(text) <= LONGEST_CONTENT else text[: LONGEST_CONTENT - 1] + "…"


def _label(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    text, _ = masked(clipped(readable(given[: 2 * LONGEST_LABEL]), LONGEST_LABEL))
    return text or None


def _moment(given: object) -> int | None:
    if not isinstance(given, str) or len(given) > 40:
        return None
    try:
        at = parsed(given)
        iso(at)
    except (ValueError, OverflowError):
        return None
    return at


def _notices(given: object) -> list[str]:
    listed = cast("list[object]", given) if isinstance(given, list) else []
    labels = [_label(each) for each in listed[:MOST_NOTICES]]
    return [label for label in labels if label]
