"""The composition root: settings become a running application.

**Start.** A client first asks for the handshake and the list of tools. A server over stdio answers both from the cache
of its last start (`first_answers.py`), while the program loads in a thread. The cache file is used only if nothing that
decides the answers has changed: arguments, variables, working folder, Python, config files and loaded modules. Half a
second later `transports/stdio.py` compares both answers with the real ones, renews the file, and notifies the client if
its list was wrong. A second list is always real. The cache has answers for clients that draw views and for all others,
but never a gateway's tools. A client without a handshake cannot be notified, so it gets only real answers.

**Loading on demand.** Without a cache, a server answers the handshake before it loads the engine and the families.
`app/app.py` knows only the settings. `app/build.py` is imported when a part is first needed, and builds each part when
that part is first needed. A call builds only its own family, which `app/build.py` finds by the tool's name. Commands
load rich, the HTTP client and platformdirs only when they use them. A test lists what a start may not load. Setup
compiles bytecode, so the first start does not.

**Turned-off projects.** The query that finds a project also reads whether it is off, so no call gets slower. A note in
`_meta.db` keeps the intervals. While one is open, `ProjectRule` refuses, hooks do nothing, and history skips the
project's folders. Conversations held in a closed interval are never imported later (`families/history/off_folders.py`).
"""
