"""The files of a bank: their names, reading and writing them."""
