"""Embeddings: the model that ships with the package, models in a folder, and a cache of recent queries.

A text is committed first and embedded later, in batches of 16, by `jobs/maintenance.py`. A record without a vector is
the queue, so a crash loses nothing. A changed model name means that all texts are embedded again. The first text loads
the model, in a thread.

The model is everkept-minilm-1: all-MiniLM-L6-v2, trained further to distinguish the turns of a conversation (see
`model/NOTICE`). `tools/build_model.py` writes its network from the trained weights and knows its hash. The WordPiece
tokenizer is written here because the usual package costs 12 MB and a network library. Tests compare both with
their references.

`model_folder.py` reads other models, in the layout of sentence-transformers. Their names contain a digest of their
files. `jobs/claims.py` decides which model counts in a data folder.

The runtime multiplies bytes by bytes, in blocks of 64 with a scale each, and never widens the weights. That takes 45 MB
of memory instead of 74 MB for floats, and two thirds of the time per query. Vectors have a cosine of at least 0.999
with those of the float model, and do not depend on the batch. `onnxruntime` must be 1.23 or newer, the first version
with such kernels on ARM. It stays below 1.29, which began to send telemetry to its vendor.
"""
