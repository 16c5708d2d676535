"""An assistant on Anthropic's SDK that keeps its notes in files, which you can read in `memory-bank/memories`.

pip install '/path/to/everkept[anthropic]'
export ANTHROPIC_API_KEY=...
python anthropic_memory_tool.py "Remember that deploys happen on Fridays"
python anthropic_memory_tool.py "When do we deploy?"
"""

import sys

from anthropic import Anthropic

from everkept import Memory
from everkept.integrations.anthropic import EverkeptMemoryTool

with Memory.open(project="assistant", client="memory-tool") as memory:
    runner = Anthropic().beta.messages.tool_runner(
        model="claude-sonnet-4-5",
        max_tokens=1024,
        messages=[{"role": "user", "content": " ".join(sys.argv[1:])}],
        tools=[EverkeptMemoryTool(memory)],
        betas=["context-management-2025-06-27"],
    )
    for block in runner.until_done().content:
        if block.type == "text":
            print(block.text)
