"""``python -m shoal_broker``, the same as ``shoal-broker``."""

import sys

from .cli.broker import main

if __name__ == "__main__":
    sys.exit(main())
