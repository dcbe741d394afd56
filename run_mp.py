"""Train with DistributedDataParallel, all processes of this machine started by mp.spawn.

python run_mp.py --nprocs 2
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("mp", __doc__))
