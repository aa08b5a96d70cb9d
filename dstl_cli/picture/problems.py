"""The sentences about picture files that cannot be read, and the guard that turns any library's error into one."""

from collections.abc import Iterator
from contextlib import contextmanager

from dstl_cli.errors import DstlError, FileProblem


def truncated(name: str) -> FileProblem:
    """The error for a file that ends too early."""
    return FileProblem(f"{name} is truncated: the file ends before its pixels do; copy or export it again.")


def damaged(name: str, what: str) -> FileProblem:
    """The error for a file whose bytes make no sense."""
    return FileProblem(f"{name} is damaged ({what}); copy or export it again.")


def unsupported(name: str, what: str, remedy: str) -> FileProblem:
    """The error for a good file that dstl does not handle."""
    return FileProblem(f"{name} {what}, which dstl does not handle; {remedy}.")


class BadPixels(Exception):
    """What a decoder of ours found wrong, in words."""


class DecoderStopped(Exception):
    """A decoder that crashed or was stopped by its limits; the message says which."""


class NoDecoder(Exception):
    """What the system did not give to decode with, and the remedy."""


@contextmanager
def decoding(name: str, what: str = "its pixels do not decode") -> Iterator[None]:
    """Turn whatever is raised on bad bytes into one sentence."""
    try:
        yield
    except DstlError:
        raise
    except BadPixels as error:
        raise damaged(name, str(error)) from None
    except DecoderStopped as error:
        remedy = "copy or export it again, or use --trust-files if you trust it"
        raise FileProblem(f"{name} could not be decoded: {error}; {remedy}.") from None
    except NoDecoder as error:
        raise FileProblem(f"{name} could not be decoded: {error}.") from error
    except MemoryError as error:
        raise FileProblem(f"{name} does not fit into memory; close other programs or crop it first.") from error
    except Exception as error:
        raise damaged(name, what) from error
