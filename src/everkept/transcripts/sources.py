"""The programs whose transcripts are read, by the names that they have here."""

CLAUDE_CODE = "claude-code"
CODEX = "codex"
GEMINI = "gemini"
CURSOR = "cursor"
PLAIN = "jsonl"  # plain lines, which are where somebody put them

SOURCES = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, PLAIN)
