"""Train with Horovod, one process for each device; needs scripts/install_horovod.sh.

horovodrun -np 2 -H localhost:2 --gloo python run_horovod.py
python run_horovod.py
"""

import sys

from app.run import main

if __name__ == "__main__":
    sys.exit(main("horovod", __doc__))
