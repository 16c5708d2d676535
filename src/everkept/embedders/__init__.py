"""Texts as vectors: the model that the package carries, and a cache of questions.

A text is committed first and embedded after, in batches of 16, by `jobs/maintenance.py`: a record
without a vector is the queue, so a crash loses nothing, and another model name means embedding
again. The model is loaded by the first text, in a thread.

`embedders/` holds all-MiniLM-L6-v2 as int8 weights with a WordPiece tokenizer of our own (the usual
package costs 12 MB and a network library), both held to their references by tests, and
`tools/build_model.py` makes them from the published weights. The runtime multiplies bytes by bytes,
in blocks of 64 with a scale each, and never widens the weights: +45 MB where floats took +74, a
question in two thirds of the time. Vectors lie within a cosine of 0.999 of those before, and do not
depend on the batch. `onnxruntime` is 1.23 or newer, the first with such kernels on ARM, and stays
below 1.29, which began to report to its makers.
"""
