"""Programs whose data can be imported, one file for each.

A source reads a file or folder and yields memories, entities and relations. `exchange/foreign.py` has the interface.
"""

from everkept.exchange.foreign import ForeignSource
from everkept.exchange.sources.chatgpt import CHATGPT
from everkept.exchange.sources.claude_ai import CLAUDE_AI
from everkept.exchange.sources.claude_mem import CLAUDE_MEM
from everkept.exchange.sources.mem0 import MEM0
from everkept.exchange.sources.memory_folder import MEMORY_FOLDER
from everkept.exchange.sources.memory_service import MEMORY_SERVICE
from everkept.exchange.sources.note_folders import BASIC_MEMORY, OBSIDIAN

_EVERY = (MEMORY_SERVICE, BASIC_MEMORY, CLAUDE_MEM, MEM0, OBSIDIAN, MEMORY_FOLDER, CHATGPT, CLAUDE_AI)
SOURCES: dict[str, ForeignSource] = {source.name: source for source in _EVERY}
