"""Tools as data: declared once from typed methods, projected onto every surface.

A tool is declared once, as a typed method with a docstring. Name, JSON schema, validation, output
schema, annotations, command, help text and reference page come from that. The validation is ours
(`tools/schema.py`): it names the argument, its place and its value, suggests the nearest known
name, and accepts a second spelling where a family needs one; a general library gave worse messages
for more start-up time. Lengths and batch sizes are checked but left out of the advertised schemas,
because these stand in every client's context.
"""
