"""The types of pixels there are, by their names in numpy. Imports nothing heavy."""

PIXEL_TYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")


def in_words(names: tuple[str, ...] = PIXEL_TYPES) -> str:
    """A list of names for a sentence."""
    return f"{', '.join(names[:-1])} or {names[-1]}"
