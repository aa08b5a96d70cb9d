"""File names as people read them."""

import os


def display_name(path: str | os.PathLike[str]) -> str:
    """A file name that is safe to print on one line."""
    text = os.fspath(path)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
