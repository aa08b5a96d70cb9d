"""File names and numbers as people read them."""

import os


def display_name(path: object) -> str:
    """The name of a file, a path or an address, that is safe to print on one line."""
    text = os.fsdecode(path) if isinstance(path, bytes | os.PathLike) else str(path)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def display_number(value: float, digits: int = 3) -> str:
    """A number rounded to so many digits: from a ten-thousandth to a million without an exponent."""
    return f"{float(f'{value:.{digits}g}'):g}"
