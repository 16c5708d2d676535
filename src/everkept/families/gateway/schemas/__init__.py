"""JSON Schemas of tools: what they say, and whether a value fits."""
