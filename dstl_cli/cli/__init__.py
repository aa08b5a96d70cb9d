"""The command line: thin commands over plain functions. Nothing heavy is imported at module level."""
