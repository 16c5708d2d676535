"""Servers that are programs, spoken to over their standard input and output."""
