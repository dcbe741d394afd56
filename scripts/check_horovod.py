"""Exit with status 0 if Horovod sums a tensor over two processes. Started by scripts/install_horovod.sh."""

import sys

import horovod.torch as hvd
import torch

if __name__ == "__main__":
    hvd.init()
    total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum)
    works = hvd.size() == 2 and float(total) == 3.0
    hvd.shutdown()
    sys.exit(0 if works else "Horovod did not sum over two processes")
