"""`python -m dstl_cli` is `dstl`."""

from dstl_cli.cli.app import main

if __name__ == "__main__":
    main()
