"""How what hooks store by themselves is told from what somebody asked for."""

from everkept.core.records import Record

NOTICED_BY = "hook:PostToolUse"  # the tool that such memories name as their source

# Tags: a command that failed, one that worked, one that works again, a file.
FAILED = "failed"
WORKED = "worked"
FIXED = "fixed"
EDITED = "edited"


def is_automatic(record: Record) -> bool:
    return bool(record.facets.get("automatic"))
