"""The memory bank: a folder of markdown files that people and assistants share."""
