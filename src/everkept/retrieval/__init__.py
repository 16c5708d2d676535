"""Search, written once for every family and every engine.

`search.py` is the only search. A family differs by its `SearchProfile`. The query is parsed once into a small tree
(`language/words.py`), and each engine renders that tree for its own index. So every engine answers the same query, and
tests can compare SQLite with the reference engine.

The graph reads a query in tiers (`candidates.py`): as an expression, all words, any word, a substring. Memories are
ranked (`search.py`): the search by words and the search by meaning run at the same time. Each returns at most 100
candidates per place, and the best 128 are loaded. The fusion in `fusion.py` computes one relevance from them, and the
curve in `profile.py` turns it into a probability. Then `scores.py` mixes that with importance and recency, and folds
records that say the same. The weights were chosen on public conversations and on our questions about code
(`bench/retrieval.py`); `docs/benchmarks.md` has both results.

`candidates.py` also answers as of an earlier moment. Records changed since then are rebuilt from the change log and
judged by their words; all other records are searched through the index. Everything has a deadline, and the answer names
the parts that did not finish.
"""
