"""`dstl`, also as `python -m dstl_cli`: the program in a process of its own."""

import os


def program() -> None:
    """Run the program and end the process with its exit code.

    It ends at once: taking the interpreter and the compiler apart would take a tenth of a second, and the operating
    system does it anyway.
    """
    code = 1
    try:
        for number in range(3):  # no file of ours may get the number of a closed stream, which libraries print to
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        from dstl_cli.cli.ending import run_to_the_end

        code = run_to_the_end(_main)
    except KeyboardInterrupt:  # while even this was being loaded
        from dstl_cli.cli.console import report_error
        from dstl_cli.errors import Interrupted

        report_error(str(Interrupted()))
        code = Interrupted.exit_code
    finally:
        os._exit(code)


def _main() -> None:
    from dstl_cli.cli.app import main

    main()


if __name__ == "__main__":
    program()
