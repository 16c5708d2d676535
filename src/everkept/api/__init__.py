"""The Python API: `from everkept import Memory`.

`async_memory.py` has the classes for asyncio, and `memory.py` has the same classes without it. `tools/reference.py`
writes the second file from the first. `connection.py` runs the application in its own thread, so that a memory
works from every thread and every event loop. `results.py` has the types that the methods return.
"""
