"""Folders for their owner alone."""

from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes it with what is missing above it."""
    # Each by itself: what is made on the way to a folder gets no mode of ours.
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
