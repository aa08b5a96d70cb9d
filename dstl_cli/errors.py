"""The errors dstl tells its user about: each message is one sentence that names the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager


class DstlError(Exception):
    """A mistake or a limit that the user can do something about."""

    exit_code = 1


class FileProblem(DstlError):
    """A file that cannot be read or written; the message names the file and the remedy."""


class UsageProblem(DstlError):
    """A command that was called wrongly."""

    exit_code = 2


class Interrupted(DstlError):
    """The user stopped the program."""

    exit_code = 130

    def __init__(self, sentence: str = "Interrupted; nothing was left half-written.") -> None:
        super().__init__(sentence)


@contextmanager
def refusals(name: str, failure: str) -> Iterator[None]:
    """What the numerics refuse, have no room for, or stumble over, as a sentence about `name`."""
    try:
        yield
    except ValueError as error:
        raise DstlError(f"{name} {failure}: {error}") from error
    except MemoryError as error:
        raise DstlError(f"{name} does not fit into memory; crop it or close other programs.") from error
    except DstlError:
        raise
    except OSError as error:
        which = f" ({error.filename})" if error.filename else ""
        what = f"the system says {error.strerror or error}{which}"
        raise DstlError(f"{name} {failure}: {what}; check the disk and the limits for open files.") from error
    except Exception as error:  # what nobody foresaw costs one file, and never the others of a folder
        what = " ".join(f"{type(error).__name__} {error}".split())
        raise DstlError(f"{name} {failure}: something unforeseen happened ({what}); please report it.") from error
