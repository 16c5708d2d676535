"""Accounts: their tokens and grants, and the library restricted to what an account may see.

The acting account is a context variable (`core/sessions.py`), set where a request enters. `accounts/account_library.py`
wraps the library. Families, resources and searches get the wrapper, which shows each account its granted projects under
the account's own names. So no family and no engine knows about accounts. Background work and commands use the library
itself. Users, tokens and grants are notes of the library, so every engine, migration and replica has them. An account's
private data is a hidden project.

An HTTP request passes `OpenRequests` (ends it when the server stops) and `Guard` (checks Host and Origin). Then
`TokenAuth` finds the account and limits the rate. The path, `McpEndpoint` and `Dispatcher` follow.
`transports/access_audit.py` logs the calls. `core/commits.py` collects the ids that a call returns or changes, so the
access log also has them for results that name no ids.

`tests/journeys/test_accounts_leak_nothing.py` tests non-interference: random calls of an account must have the same
results whether or not other accounts have data.
"""
