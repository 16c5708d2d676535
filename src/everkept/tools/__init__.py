"""Tools as data: declared once as typed methods, offered on every surface.

A typed method with a docstring declares a tool. Name, JSON schema, validation, output schema, annotations, command,
help text and reference page come from it. The validation is in `tools/schema.py`: it names the argument and its value.
It suggests the nearest known name, and accepts a second spelling if a family needs one. A general library gave worse
messages and took longer to load.

`tools/tool_list.py` makes the short schemas of `tools/list`, because every client keeps that list in its context.
"""
