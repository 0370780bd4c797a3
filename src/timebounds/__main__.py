"""`python -m timebounds`: see `timebounds.demo`."""

import sys

from timebounds.demo import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
