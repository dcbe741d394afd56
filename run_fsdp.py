"""Train with FSDP2: parameters, gradients and optimizer state cut over the processes.

torchrun --nproc_per_node=2 run_fsdp.py
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("fsdp", __doc__))
