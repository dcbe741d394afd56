"""Train with nn.DataParallel: one process, all CUDA devices of this machine.

    python run_dp.py --config configs/weibo_emotion6.yaml

With one CUDA device or none it trains the same job as run_single.py, in padded batches and so more slowly.
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("dp", __doc__))
