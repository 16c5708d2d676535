"""Calls a server directly with the official SDK's client, and says what that costs its process.

python bench/gateway_sdk.py '{"server": {...}, "tool": "text", "arguments": {}, "calls": 1000}'
"""

import asyncio
import json
import sys
import time
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client


async def main(asked: dict[str, Any]) -> None:
    server = asked["server"]
    target: Any = server.get("url") or stdio_client(StdioServerParameters(**server))
    async with Client(target, mode="legacy") as client:
        await client.call_tool(asked["tool"], asked["arguments"])
        began = time.process_time()
        for _ in range(asked["calls"]):
            await client.call_tool(asked["tool"], asked["arguments"])
        print((time.process_time() - began) * 1000 / asked["calls"])


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
