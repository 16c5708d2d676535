"""Search, written once for every family and every engine.

`retrieval/search.py` is the only search. A family differs by its `SearchProfile`. The query is
parsed once into a small tree (`language/words.py`), which an engine renders for its own index; so
every engine answers the same question, and the reference engine can be compared with SQLite word
for word.

The graph reads a query in tiers (`candidates.py`): as an expression, all words, any word, a
substring. Memories are ranked (`search.py`): both legs are asked at once (`candidates.py`,
`evidence.py`), the embedding of the query overlapping the word query; the best 128 of at most 100 a
leg and place are loaded; the fusion in `evidence.py`, pure arithmetic on columns, makes one
relevance of them and mixes it with importance and recency. The weights were tuned on public
conversations and held against a set of our own about code (`bench/retrieval.py`);
`docs/benchmarks.md` has both. `candidates.py` answers as of an earlier moment: what was touched
since is rebuilt from the log and judged by its words, the rest goes through the index. Everything
has a deadline, and what is late is named in the answer.
"""
