"""What people do, by verbs: `python -m app VERB`; without a verb it lists them."""

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main())
