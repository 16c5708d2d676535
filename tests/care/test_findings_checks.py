from collections.abc import Iterator

from everkept.care.findings import Finding, Patient, examined, mended
from everkept.core.care import FREE_SPACE
from everkept.errors import StorageFull, StoreBusy


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(patient: Patient) -> None:
    def broken(_patient: Patient) -> Iterator[Finding]:
        yield Finding("broken", "ok", "so far")
        raise ZeroDivisionError("a bug")

    def busy(_patient: Patient) -> Iterator[Finding]:
        raise StoreBusy("It is locked.", hint="Try again.")

    def fine(_patient: Patient) -> list[Finding]:
        return [Finding("fine", "ok", "all is well")]

    found = examined(patient, [("broken", broken), ("busy", busy), ("fine", fine)])
    assert [(finding.check, finding.severity) for finding in found] == [
        ("broken", "ok"),
        ("broken", "problem"),
        ("busy", "problem"),
        ("fine", "ok"),
    ]
    assert "ZeroDivisionError" in found[1].what
    assert found[2].command == "Try again."


def test_what_cannot_be_mended_keeps_nothing_else_from_it() -> None:
    def fail() -> str:
        raise PermissionError(13, "not yours", "file")

    done = mended(
        [
            Finding("a", "problem", "one", mend=fail),
            Finding("b", "problem", "two", mend=lambda: "mended it"),
            Finding("c", "problem", "three"),
        ]
    )
    assert [(each.check, each.is_done) for each in done] == [("a", False), ("b", True)]
    assert "not yours" in done[0].did
    assert done[1].did == "mended it"


def test_a_full_disk_is_said_once(patient: Patient) -> None:
    def full(_: Patient) -> list[Finding]:
        raise StorageFull("There is no room.")

    scarce = Finding("place", "advice", "little room", FREE_SPACE)
    told = Finding("place", "problem", "no room", FREE_SPACE)
    checks = [("one", full), ("two", full)]
    assert [f.check for f in examined(patient, checks)] == ["one"]
    assert examined(patient, [("place", lambda _: [told]), *checks]) == [told]
    assert len(examined(patient, [("place", lambda _: [scarce]), *checks])) == 2
