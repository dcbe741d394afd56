"""Train with nn.DataParallel: one process, all CUDA devices of this machine.

    python run_dp.py --config configs/weibo_emotion6.yaml

With one CUDA device or none it says so and trains as run_single.py does.
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("dp", __doc__))
