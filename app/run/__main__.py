"""A run in a mode, `python -m app.run MODE [settings]`: what run_<mode>.py does, from any folder."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], __doc__, sys.argv[2:]))
