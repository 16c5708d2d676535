"""Tools as data: declared once from typed methods, projected onto every surface."""
