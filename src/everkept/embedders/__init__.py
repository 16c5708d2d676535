"""Texts as vectors: the model that the package carries, and a stand-in without one."""
