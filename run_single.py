"""Train a Chinese text classifier in one process on one device (CUDA, MPS or CPU).

python run_single.py                                        a pretrained encoder on the embedded sample set
python run_single.py --data.train reviews.csv               the same on a file of yours
python run_single.py --config configs/weibo_emotion6.yaml   settings from a file, which options override
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("single", __doc__))
