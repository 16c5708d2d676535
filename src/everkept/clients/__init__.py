"""The configuration files of the programs that people talk to."""
