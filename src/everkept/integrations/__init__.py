"""Everkept behind the memory interfaces of agent frameworks, each in a module that needs its framework.

They use only the public API, `from everkept import Memory`, so they are also examples of it. The tests run each one
with the real package in a separate environment.
"""
