"""An agent of Google's Agent Development Kit that remembers earlier sessions of its user.

pip install '/path/to/everkept[google-adk]'
export GOOGLE_API_KEY=...
python google_adk_memory.py "I live in Lisbon"
python google_adk_memory.py "Which city do I live in?"
"""

import asyncio
import sys

from google.adk.agents import Agent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import load_memory
from google.genai.types import Content, Part

from everkept import AsyncMemory
from everkept.integrations.google_adk import EverkeptMemoryService

APP, USER = "assistant", "ada"
AGENT = Agent(
    name="assistant",
    model="gemini-2.5-flash",
    instruction="Call load_memory before you answer a question about the user.",
    tools=[load_memory],
)


async def main() -> None:
    async with AsyncMemory.open(project="assistant", client="adk-memory") as memory:
        sessions, memories = InMemorySessionService(), EverkeptMemoryService(memory)
        runner = Runner(app_name=APP, agent=AGENT, session_service=sessions, memory_service=memories)
        session = await sessions.create_session(app_name=APP, user_id=USER)
        said = Content(role="user", parts=[Part(text=" ".join(sys.argv[1:]))])
        async for event in runner.run_async(user_id=USER, session_id=session.id, new_message=said):
            if event.is_final_response() and event.content:
                print("".join(part.text or "" for part in event.content.parts or []))
        finished = await sessions.get_session(app_name=APP, user_id=USER, session_id=session.id)
        if finished is not None:
            await memories.add_session_to_memory(finished)


asyncio.run(main())
