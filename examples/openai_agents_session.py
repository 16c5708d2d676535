"""An agent on the OpenAI Agents SDK that continues its conversation in the next run.

pip install '/path/to/everkept[openai-agents]'
export OPENAI_API_KEY=...
python openai_agents_session.py "I live in Lisbon"
python openai_agents_session.py "Which city do I live in?"
"""

import asyncio
import sys

from agents import Agent, Runner

from everkept import AsyncMemory
from everkept.integrations.openai_agents import EverkeptSession


async def main() -> None:
    async with AsyncMemory.open(project="assistant", client="agents-session") as memory:
        session = EverkeptSession("ada", memory)
        answer = await Runner.run(Agent(name="Assistant"), " ".join(sys.argv[1:]), session=session)
        print(answer.final_output)


asyncio.run(main())
