"""`python -m kvtally`: the command line."""

import sys

from kvtally.frontends.cli import main

if __name__ == "__main__":
    sys.exit(main())
