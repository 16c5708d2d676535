"""Folders of files, on this machine's disk and over SSH, behind one port."""
