"""`python -m dstl_cli` is `dstl`."""

from dstl_cli.cli.app import program

if __name__ == "__main__":
    program()
