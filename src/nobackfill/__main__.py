"""`python -m nobackfill`: the same as the command `nobackfill`."""

from nobackfill.cli.main import main

if __name__ == "__main__":
    main()
