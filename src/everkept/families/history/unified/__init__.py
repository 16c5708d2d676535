"""One question to everything that is remembered: conversations, code, memories, files, graph."""
