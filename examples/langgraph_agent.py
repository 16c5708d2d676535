"""An agent of LangChain that remembers facts about its user across runs, in a store of LangGraph.

pip install '/path/to/everkept[langgraph]' langchain langchain-anthropic
export ANTHROPIC_API_KEY=...
python langgraph_agent.py "Remember that I live in Lisbon"
python langgraph_agent.py "Which city do I live in?"
"""

import sys
from uuid import uuid4

from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool

from everkept import Memory
from everkept.integrations.langgraph import EverkeptStore

FACTS = ("users", "ada", "facts")


@tool
def remember(fact: str, runtime: ToolRuntime) -> str:
    """Store a fact about the user for later conversations."""
    runtime.store.put(FACTS, str(uuid4()), {"text": fact})
    return "Stored."


@tool
def recall(question: str, runtime: ToolRuntime) -> str:
    """Find what is known about the user. Use it before you answer a question about them."""
    found = runtime.store.search(FACTS, query=question, limit=5)
    return "\n".join(item.value["text"] for item in found) or "Nothing is known."


with Memory.open(project="assistant", client="langgraph-agent") as memory:
    agent = create_agent("anthropic:claude-sonnet-4-5", tools=[remember, recall], store=EverkeptStore(memory))
    answer = agent.invoke({"messages": [("user", " ".join(sys.argv[1:]))]})
    print(answer["messages"][-1].text)
