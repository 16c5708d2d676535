"""The composition root: settings become a running application.

A client first asks for the handshake and the list of tools. A server over stdio answers both from
what its last start kept (`first_answers.py`), before it loads asyncio, click or any other part; the
program loads in a thread meanwhile. The file is in the cache folder and is read only if nothing has
changed that decides the answers: arguments, variables, working folder, Python, config files, and
every module that was loaded when it was written. `transports/stdio.py` compares both answers with
the real ones half a second later, renews the file, and notifies the client if its list was wrong. A
second list is always the real one. A gateway's tools are never kept, and a client without a
handshake gets only real answers, since it could not be notified.

Without a kept file a server answers the handshake before it has loaded the engine and the families:
`app/app.py` knows the settings, and `app/build.py`, the composition root, is imported at the first
need of a part, and loads and makes each part at the first need of that one. A call makes only its
own family: `app/build.py` says which that is, and a name that is missing there costs time, not an
answer. Commands load rich, the HTTP client and platformdirs only where they use them, and a test
lists what a start may not load. Set-up compiles bytecode, so the first start does not.

Whether a project is off is read in the same query that finds the project, so no call gets slower by
it. Its note in `_meta.db` keeps the intervals: while one is open, `ProjectRule` refuses, hooks keep
still, history leaves its folders out; and what was said in a closed one is not taken in later
(`families/history/off_folders.py`).
"""
