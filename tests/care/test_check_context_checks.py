from collections.abc import Iterator

from everkept.care.check_context import CheckContext, DoctorFinding, apply_fixes, run_checks
from everkept.core.care_results import FREE_SPACE_ADVICE
from everkept.errors import StorageFull, StoreBusy


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(context: CheckContext) -> None:
    def broken(_context: CheckContext) -> Iterator[DoctorFinding]:
        yield DoctorFinding("broken", "ok", "so far")
        raise ZeroDivisionError("a bug")

    def busy(_context: CheckContext) -> Iterator[DoctorFinding]:
        raise StoreBusy("It is locked.", hint="Try again.")

    def fine(_context: CheckContext) -> list[DoctorFinding]:
        return [DoctorFinding("fine", "ok", "all is well")]

    found = run_checks(context, [("broken", broken), ("busy", busy), ("fine", fine)])
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

    done = apply_fixes(
        [
            DoctorFinding("a", "problem", "one", mend=fail),
            DoctorFinding("b", "problem", "two", mend=lambda: "mended it"),
            DoctorFinding("c", "problem", "three"),
        ]
    )
    assert [(each.check, each.is_done) for each in done] == [("a", False), ("b", True)]
    assert "not yours" in done[0].did
    assert done[1].did == "mended it"


def test_a_full_disk_is_said_once(context: CheckContext) -> None:
    def full(_: CheckContext) -> list[DoctorFinding]:
        raise StorageFull("There is no room.")

    scarce = DoctorFinding("place", "advice", "little room", FREE_SPACE_ADVICE)
    told = DoctorFinding("place", "problem", "no room", FREE_SPACE_ADVICE)
    checks = [("one", full), ("two", full)]
    assert [f.check for f in run_checks(context, checks)] == ["one"]
    assert run_checks(context, [("place", lambda _: [told]), *checks]) == [told]
    assert len(run_checks(context, [("place", lambda _: [scarce]), *checks])) == 2
