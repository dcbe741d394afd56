"""What it costs to synchronise gradients when only every fourth micro-batch ends a step.

python benchmarks/gradient_sync.py --output gradient_sync.json
python benchmarks/gradient_sync.py --scenes machine          only one machine, where you are not root
python benchmarks/gradient_sync.py --rate 1gbit --layers 2   another link, another model

Seconds per micro-batch of 16 rows for each of two processes, accumulation 4, in four columns: `baseline`
synchronises every micro-batch; `backward only` has `no_sync` around the backward pass alone, which saves
nothing, because DDP decides in the forward pass; `no_sync` has it around both; `accumulate` is Accelerate's.
Two scenes: both processes on one machine (loopback), and one in each of two network namespaces with a link of
limited bandwidth between (needs root).

Why a link of 250mbit: the published times say how long communication took there beside computation, 1.45 s to
synchronise once and 0.55 s to compute a micro-batch, 2.6 times as much. CPU cores compute much slower than
those GPUs, so over a link as fast as theirs this would measure arithmetic. The default model is small (35 MB
of gradients, 60 % of them the embedding of the Chinese vocabulary), its rows have 16 tokens (short texts have
about 13), and on two cores 250mbit makes a synchronisation 14 times the computation, 7 times while other
processes use the same cores; then baseline / no_sync is 3.4 and 2.9. With such company 500mbit showed 2.2 and
1gbit 1.5. The last lines of the table say how it was in a run; where your cores are faster or slower, take
another --rate.

How it is measured: each column has its own copy of one model. The columns take turns, four micro-batches and
a step each, so that whatever else the machine does falls on all of them, three passes over the 29
micro-batches on one machine, where the difference is small, and one over the link. A value is the median over
the whole turns; the mean over all micro-batches stands below it. After every turn the weights of all columns
must be the same, or the exit status is 1.
"""

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from namespaces import Host, Unavailable, linked_namespaces

COLUMNS = ("baseline", "backward only", "no_sync", "accumulate")
SCENES = {
    "machine": "One machine, two processes over loopback",
    "network": "Two network namespaces, a link of {rate}",
}
PUBLISHED = {"machine": (0.50, 0.50, 0.41, 0.41), "network": (2.00, 2.13, 0.91, 0.91)}
PUBLISHED_BY = "Hugging Face Accelerate documentation, Gradient synchronization (T4 GPUs, one node and two)"
PASSES = {"machine": 3, "network": 1}
# Of a weight: the columns add the same gradients in another order
TOLERANCE = 1e-5
WORKER = Path(__file__).with_name("gradient_sync_worker.py")


def main() -> int:
    """Measure the scenes asked for, print their tables, write them as JSON; return the exit status."""
    args = parse_arguments()
    # So that the namespaces go away then too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = {
        "machine": describe_machine(),
        "settings": vars(args),
        "published_by": PUBLISHED_BY,
        "scenes": {},
    }
    for scene in args.scenes:
        try:
            report["scenes"][scene] = measure(scene, args)
        except Unavailable as reason:
            report["scenes"][scene] = {"skipped": str(reason)}
        print(SCENES[scene].format(rate=args.rate), "\n", table(scene, report["scenes"][scene]), "\n", sep="")
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=2) + "\n")
    return 1 if any(result.get("weights_equal") is False for result in report["scenes"].values()) else 0


def measure(scene: str, args: argparse.Namespace) -> dict:
    """Return what the two processes measured in a scene, summed up. Raises Unavailable."""
    if scene == "network":
        with linked_namespaces(args.rate) as hosts:
            raw = run_workers(scene, hosts, args)
    else:
        raw = run_workers(scene, [Host([], loopback())] * 2, args)
    columns = {name: summarise(raw["columns"][name], args.accumulation) for name in COLUMNS}
    return {
        "columns": columns,
        "costs": split_costs(
            *(columns[name]["seconds_per_batch"] for name in ("baseline", "no_sync")), args.accumulation
        ),
        "parameters": raw["parameters"],
        "weights": raw["weights"],
        "weights_equal": raw["weights"]["ranks_equal"]
        and all(column["max_weight_difference"] <= TOLERANCE for column in columns.values()),
        "published_seconds_per_batch": dict(zip(COLUMNS, PUBLISHED[scene], strict=True)),
    }


def run_workers(scene: str, hosts: list[Host], args: argparse.Namespace) -> dict:
    """Run one process on each host until both end; when one fails, end the other and raise RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        # The processes meet through a file, so that no port has to be free.
        paths = {"store": f"{folder}/store", "result": f"{folder}/result.json"}
        settings = Path(folder, "settings.json")
        settings.write_text(
            json.dumps({**vars(args), **paths, "scene": scene, "passes": args.passes or PASSES[scene]})
        )
        workers = []
        try:
            for rank, host in enumerate(hosts):
                command = [*host.command, sys.executable, str(WORKER), str(settings), str(rank)]
                workers.append(
                    subprocess.Popen(command, env=environment(rank, len(hosts), host, args.threads))
                )
            while any(worker.poll() is None for worker in workers) and not any(
                worker.poll() for worker in workers
            ):
                time.sleep(0.1)
            if any(worker.poll() for worker in workers):
                raise RuntimeError(f"a process of the scene '{scene}' failed, its traceback is above")
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        return json.loads(Path(paths["result"]).read_text())


def environment(rank: int, world_size: int, host: Host, threads: int) -> dict[str, str]:
    """Return the environment of a rank.

    Without ACCELERATE_USE_CPU Accelerate takes each process for the only one.
    """
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "OMP_NUM_THREADS": str(threads),
        "ACCELERATE_USE_CPU": "1",
        "GLOO_SOCKET_IFNAME": host.interface,
    }


def loopback() -> str:
    """Return the name of the loopback interface: `lo` on Linux, `lo0` on macOS."""
    return "lo" if sys.platform.startswith("linux") else "lo0"


def summarise(column: dict, accumulation: int) -> dict:
    """Return a column's times; the median is over whole turns, because a shorter last one synchronises more
    often."""
    turns = column["turns"]
    whole = [seconds / batches for seconds, batches in turns if batches == accumulation]
    return {
        "seconds_per_batch": statistics.median(whole),
        "mean_seconds_per_batch": sum(seconds for seconds, _ in turns) / sum(batches for _, batches in turns),
        "turns_seconds_per_batch": [seconds / batches for seconds, batches in turns],
        "megabytes_per_batch": column["megabytes_per_batch"],
        "max_weight_difference": column["max_weight_difference"],
    }


def split_costs(baseline: float, no_sync: float, accumulation: int) -> dict[str, float]:
    """Return the seconds of one synchronisation (what of it does not overlap with computing) and of
    computing.

    `baseline` is their sum; `no_sync` has only one synchronisation for every `accumulation` micro-batches.
    """
    synchronise = (baseline - no_sync) / (1 - 1 / accumulation)
    return {"synchronise_seconds": synchronise, "compute_seconds": baseline - synchronise}


def describe_costs(where: str, costs: dict[str, float]) -> str:
    """Return a phrase about the result of `split_costs`."""
    synchronise, compute = costs["synchronise_seconds"], costs["compute_seconds"]
    return f"{where}: to synchronise once {synchronise:.2f} s, to compute {compute:.2f} s"


def table(scene: str, result: dict) -> str:
    """Return the text of a scene's result, the published times beside it."""
    if "skipped" in result:
        return f"skipped: {result['skipped']}"
    columns = [result["columns"][name] for name in COLUMNS]
    published = PUBLISHED[scene]
    published_costs = split_costs(published[0], published[2], 4)

    def line(title: str, values: list, form: str) -> str:
        return f"{title:38}" + "".join(f"{value:>15{form}}" for value in values)

    median = [column["seconds_per_batch"] for column in columns]
    return "\n".join(
        [
            line("", COLUMNS, "s"),
            line("seconds per batch, median", median, ".3f"),
            line("seconds per batch, mean", [column["mean_seconds_per_batch"] for column in columns], ".3f"),
            line("published, seconds per batch", published, ".2f"),
            line("baseline / column", [median[0] / value for value in median], ".2f"),
            line("published, baseline / column", [published[0] / value for value in published], ".2f"),
            line(
                "gradients synchronised, MB per batch",
                [column["megabytes_per_batch"] for column in columns],
                ".1f",
            ),
            line(
                "weights, difference to baseline",
                [column["max_weight_difference"] for column in columns],
                ".1e",
            ),
            describe_costs("here", result["costs"]) + "; " + describe_costs("published", published_costs),
            f"{result['parameters'] / 1e6:.1f} million parameters; "
            + (
                "all weights equal"
                if result["weights_equal"]
                else "WEIGHTS DIFFER: the columns did not do the same job"
            ),
        ]
    )


def describe_machine() -> dict:
    """Return what the times depend on: the machine, and how busy it was with other things before."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "platform": platform.platform(),
        "cpus": available_cpus(),
        "load_before": load,
        "time": time.strftime("%F %T"),
    }


def available_cpus() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    add("--batches", type=int, default=29, help="timed micro-batches for each process and column")
    add("--passes", type=int, help=f"over these micro-batches; default {PASSES}")
    add("--batch_size", type=int, default=16, help="rows of a micro-batch")
    add("--accumulation", type=int, default=4, help="micro-batches of a step")
    add("--tokens", type=int, default=16, help="tokens of a row")
    add("--layers", type=int, default=4)
    add("--hidden", type=int, default=256)
    add("--vocabulary", type=int, default=21128, help="the default is that of bert-base-chinese")
    add("--rate", default="250mbit", help="of the link between the namespaces, as `tc` writes it")
    add("--threads", type=int, default=max(1, available_cpus() // 2), help="of each process")
    add("--output", help="write the results to this file, as JSON")
    args = parser.parse_args()
    if not re.fullmatch(r"\d+(kbit|mbit|gbit)", args.rate):
        parser.error(f"--rate must be like 250mbit or 1gbit, found {args.rate}")
    if args.accumulation < 2:
        parser.error(f"--accumulation must be at least 2, or no column differs; found {args.accumulation}")
    if args.batches < args.accumulation:
        parser.error(f"--batches must be at least --accumulation ({args.accumulation}), found {args.batches}")
    return args


if __name__ == "__main__":
    sys.exit(main())
