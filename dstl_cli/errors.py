"""The errors dstl tells its user about: each message is one sentence that names the remedy."""


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
