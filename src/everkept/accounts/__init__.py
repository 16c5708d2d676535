"""Accounts: who has a token, what each of them may see, and the library as they see it.

Who calls is a context variable (`core/sessions.py`), set where a request enters.
`accounts/account_library.py` is a library around the library: families, resources and searches get
that one, and it shows each account what it was granted, under names of its own. So no family and no
engine knows of accounts, and there is one place to be right. Background work and commands have the
library itself. Users, tokens and grants are notes of the library, so every engine, migration and
standby has them; what is a user's alone is a hidden project.

A request over HTTP goes through `OpenRequests` (ends it when the server stops), `Guard` (Host,
Origin, then `TokenAuth`: whose token, how many), the path, `McpEndpoint`, and `Dispatcher` with
`transports/access_audit.py` around its calls. Which records a call gives out or changes is said
where that happens (`core/commits.py`), so the access log has it also of answers that name no ids.

What an account can learn is held by a test of non-interference
(`tests/journeys/test_accounts_leak_nothing.py`): random calls in a world with others' work in it
and in one without must have the same answers.
"""
