"""Pages that draw what is stored: views of results in a chat, and a picture of the graph for any browser.

Each is one HTML file that makes no request. `tools/reference.py` bundles it from a module in `source`, and from the
modules and styles of the console that it uses.
"""
