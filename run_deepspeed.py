"""Train with DeepSpeed (ZeRO stages 1 to 3), one process for each device; needs requirements/deepspeed.txt.

deepspeed --num_accelerators 2 run_deepspeed.py --deepspeed.stage 2
torchrun --nproc_per_node=2 run_deepspeed.py --deepspeed.stage 3
python run_deepspeed.py
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("deepspeed", __doc__))
