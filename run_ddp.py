"""Train with DistributedDataParallel, one process for each device, started by a launcher.

torchrun --nproc_per_node=2 run_ddp.py
python -m torch.distributed.launch --nproc_per_node=2 run_ddp.py
torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=HOST:29400 run_ddp.py     on each of two machines
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("ddp", __doc__))
