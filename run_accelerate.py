r"""Train with Hugging Face Accelerate.

    accelerate launch --num_processes 2 run_accelerate.py          on two GPUs
    torchrun --nproc_per_node=2 run_accelerate.py                  on GPUs or on the CPU

On the CPU, where --cpu would start one process only:

    ACCELERATE_USE_CPU=1 accelerate launch --multi_gpu --num_processes 2 --num_machines 1 \
        --mixed_precision no --dynamo_backend no run_accelerate.py
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("accelerate", __doc__))
