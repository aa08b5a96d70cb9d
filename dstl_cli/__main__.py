"""`dstl`, also as `python -m dstl_cli`: the program in a process of its own."""

import os
import sys

from dstl_cli.cli.console import report_error
from dstl_cli.errors import Interrupted


def program() -> None:
    """Run the program and end the process with its exit code.

    It ends at once: taking the interpreter and the compiler apart would take a tenth of a second, and the operating
    system does it anyway. Whatever nobody foresaw is one sentence too; --debug shows where it came from.
    """
    for number in range(3):  # no file of ours may get the number of a closed stream, which libraries print to
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    code: object = 1
    try:
        from dstl_cli.cli.app import main

        main()
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:  # while the program was still being loaded
        report_error(str(Interrupted()))
        code = Interrupted.exit_code
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        what = " ".join(f"{type(error).__name__} {error}".split())
        report_error(f"Something unforeseen happened ({what}); --debug shows where.")
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError, AttributeError):  # nobody listens any more
            code = code or 1
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    program()
