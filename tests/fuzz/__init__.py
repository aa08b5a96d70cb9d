"""Files that are almost right, for every reader: `python -m tests.fuzz --help`."""
