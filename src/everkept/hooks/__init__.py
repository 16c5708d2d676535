"""Handlers of an assistant's hooks, which answer within milliseconds and never block the assistant.

`everkept hook EVENT` is a process that runs for a tenth of a second, many times a day. It starts at `hooks/entry.py`
instead of the command line, whose parser takes longer than the answer. It must not import most of Python: asyncio alone
takes 45 ms. So there is a second port beside `Library`: `ReadOnlyLibrary`, its reading part.
`engines/sqlite/read_only_library.py` implements it with the same `SqliteStore` over a connection in the calling thread
(`InlineDatabase` instead of `Database`). Its coroutines never wait, and `core/runtime.py` runs them without an event
loop. The contract suite tests it too. Other processes rank more than 5,000 rows with numpy. A hook asks FTS5 for the
few rarest known words of a prompt instead, so a pasted log is as fast as a sentence.

Three things keep hooks from blocking the assistant. A thread ends the process when its time is over, whatever it waits
for. The exit status is always 0. An answer is written whole or not at all. A ledger, a file to which hooks only append
lines, records what a session was given. Only the hook that wrote the first line with an id gives that item, so
concurrent hooks do not repeat each other.

Hooks do no heavy work. PreCompact and SessionEnd write a job (a small file) and wake the one worker, a process that
inherits the lock of the data folder. It imports transcripts, summarizes the session, lets automatic memories fade, and
ends. If it dies at any moment, the job remains, and the import runs exactly once.

`hooks/prompts.py` judges a prompt with pure functions over the forms and word lists of `language`. Only
`prompt_evidence.py` queries the stores for it.
"""
