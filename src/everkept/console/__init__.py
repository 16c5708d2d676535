"""The console: a page in the browser that shows, searches and changes what is stored.

`pages` serves the files of the page, `access` decides who may call, `server` turns requests into calls of tools.
The page calls the tools that assistants call, and the ones of this package, which show what no assistant needs.
"""
