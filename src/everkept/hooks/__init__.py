"""What an assistant's hooks call: it starts in milliseconds, and never gets in the way.

`everkept hook EVENT` is a process that lives for a tenth of a second, many times a day. It enters
at `hooks/entry.py`, past the command line, whose parser takes longer than the answer. What it must
not import is most of Python: asyncio alone is 45 ms. So there is a second port beside `Library`:
`ReadOnlyLibrary`, the part of it that reads. `engines/sqlite/read_only_library.py` answers it with
the same `SqliteStore` over a connection in the calling thread (`InlineDatabase` in place of
`Database`); its coroutines never wait, and `core/runtime.py` ends them without an event loop. The
contract suite runs over it too. Words beyond 5,000 rows are ranked by numpy elsewhere; a hook asks
FTS5 for the few rarest known words of a prompt instead, so that a pasted log is as fast as a
sentence.

Three things keep it out of the way: a thread that ends the process when its time is over, whatever
it waits for; an exit status that is always 0; and an answer that is written whole or not at all.
What a session was given stands in a ledger, a file to which hooks only add lines: the first line
with an id has given it, so two at once do not repeat each other.

Nothing heavy happens in a hook. PreCompact and SessionEnd leave a job (a small file) and wake the
one worker, a process that is born holding the lock of the data folder: it takes transcripts in,
sums the session up, lets automatic memories fade, and ends. Its death at any moment leaves the job,
and the import is exactly-once.

`hooks/prompts.py` decides about a prompt: pure functions for the conditions of the design, each
measurable, over the forms and word lists of `language`; `prompt_evidence.py` alone asks the stores.
"""
