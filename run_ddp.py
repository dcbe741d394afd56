"""Train with DistributedDataParallel, one process for each device, started by a launcher.

torchrun --nproc_per_node=2 run_ddp.py
python -m torch.distributed.launch --nproc_per_node=2 run_ddp.py

On each of two machines:

torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=HOST:29400 run_ddp.py
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("ddp", __doc__))
