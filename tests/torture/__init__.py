"""Small jobs of every command in which each call of the system fails in turn: `python -m tests.torture --help`."""
