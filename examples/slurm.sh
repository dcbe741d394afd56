#!/bin/bash
# Two machines with eight GPUs each, one torchrun agent on each machine:  sbatch examples/slurm.sh
# Submitted again, or requeued after a preemption, it resumes from the last training state in its run folder.
#SBATCH --job-name=text-classification
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=02:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue

set -euo pipefail
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Where machines have several networks, name the interface that connects them (docs/modes.md says more):
# export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
# A restarted group must not read the addresses of dead processes.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

# train.batch_size is the global batch: 512 rows are 32 for each of the 16 GPUs. The learning rate is higher
# with it.
srun torchrun \
    --nnodes="$SLURM_NNODES" --nproc_per_node=8 --max-restarts=1 \
    --rdzv_backend=c10d --rdzv_id="$SLURM_JOB_ID" --rdzv_endpoint="$head_node:29400" \
    run_ddp.py --config configs/macbert.yaml --data.train train.csv \
    --train.batch_size 512 --train.learning_rate 1.2e-4 \
    --output.dir "checkpoints/$SLURM_JOB_NAME" --resume auto
