"""JSON documents under a namespace and a key, for programs and agent frameworks. They have no tools.

- `document.py`: a document as a record, its limits and its searchable text.
- `documents.py`: read, write, search and expire, with conditions on values.

A value is stored unchanged, because programs rely on it. Only its searchable text is masked. The scope of the record is
the path of the namespace. Its tags are this path and the paths above it. An index finds both.
"""
