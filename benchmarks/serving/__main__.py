"""Ask servers of the same model from 1, 8 and 64 clients: this project's, FastAPI with a pipeline, and
LitServe.

python -m benchmarks.serving --threads 1 --seconds 20 --rounds 3 --output serving.json
python -m benchmarks.serving --model small --seconds 3 --rounds 1
python -m benchmarks.serving --soak 30                                  # minutes, this project's server only

The servers take turns, and the clients are one process beside them. Each answer is checked against its own
text. `--soak` adds clients that break off, send garbage or are slow, and shows how the server's memory grows.
Exit status: 0; 1 for a wrong answer, or where a server failed; 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil

from benchmarks.harness.command import add_job_options, command_parser, run_benchmark, say
from benchmarks.harness.rounds import ROOT, ProgramFailed
from benchmarks.harness.summary import render_table

SERVERS = ("ours", "ours-onnx", "fastapi_pipeline", "litserve_pipeline")
CLIENTS = (1, 8, 64)
TOLERANCE = 1e-4
START_SECONDS = 300
SAMPLE_SECONDS = 2.0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values; `settings` are the words that are left, for run_single.py."""
    parser = command_parser("serving", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=256, help="texts, drawn from the training rows (default: 256)")
    add("--rounds", type=int, default=3, help="turns of each server (default: 3)")
    add("--seconds", type=float, default=20, help="time for each number of clients (default: 20)")
    add("--threads", type=int, default=1, help="threads of each server's model (default: 1)")
    add("--soak", type=float, metavar="MINUTES", help="ask our server for so long, with hostile clients too")
    add_job_options(parser, auto="not used here: all servers compute in fp32")
    args, args.settings = parser.parse_known_args(argv)
    for name in ("rows", "rounds", "seconds", "threads", "soak"):
        if getattr(args, name) is not None and not getattr(args, name) > 0:
            parser.error(f"--{name} must be above 0, found {getattr(args, name)}")
    return args


def prepare(args: argparse.Namespace, folder: Path) -> dict:
    """Make a checkpoint, its export and texts in `folder`; return the clients' part: texts and their
    probabilities.

    The head's random weights are enlarged, so that each text has different probabilities and no swap goes
    unseen.
    """
    from transformers import AutoModelForSequenceClassification

    from app.data.read import ReadOptions
    from app.data.rows import text_rows
    from app.export.export import export
    from app.prediction.torch_runtime import load_predictor
    from benchmarks.prediction.prepare import prepare as prepare_prediction

    args.probe_rows, args.precision = 1, "fp32"
    job, _, _ = prepare_prediction(args, folder)
    checkpoint = Path(job.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    model.classifier.weight.data.mul_(20)
    model.save_pretrained(checkpoint)
    texts = [" ".join(text.split()) for text in job.texts]
    predictor = load_predictor(checkpoint, device="cpu")
    wanted = [
        dict(zip(predictor.label_names, prediction.probabilities.tolist(), strict=True))
        for prediction in predictor.predict(text_rows(texts, ReadOptions()))
    ]
    file = folder / "rows_to_compare.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    export(checkpoint, folder / "exported", say, tolerance=1.0, rows_file=str(file))
    return {"checkpoint": str(checkpoint), "texts": texts, "wanted": wanted, "tolerance": TOLERANCE}


def command_of(name: str, folder: Path, checkpoint: str, port: int) -> list[str]:
    """Return the command that starts a server."""
    if name.startswith("ours"):
        model = folder / "exported" if name == "ours-onnx" else checkpoint
        return [sys.executable, "-m", "app", "serve", str(model), "--port", str(port), "--device", "cpu"]
    return [sys.executable, "-m", f"benchmarks.serving.{name}", checkpoint, str(port)]


@contextmanager
def started(
    name: str, args: argparse.Namespace, folder: Path, checkpoint: str
) -> Iterator[tuple[psutil.Process, int]]:
    """Yield the process of a server that answers, and its port; it ends with its children. Raises
    ProgramFailed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "TOKENIZERS_PARALLELISM": "false"}
    log = folder / f"{name}.log"
    with log.open("w") as output:
        command = command_of(name, folder, checkpoint, port)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
                raise ProgramFailed(f"{name} did not answer: {lines[-1] if lines else '(it said nothing)'}")
            time.sleep(0.2)
        yield psutil.Process(process.pid), port
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        for child in family:
            child.kill()
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Return whether a server answers with labels."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/predict", b'{"inputs": "a"}', {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status == 200
    except OSError:
        return False


def ask(
    folder: Path, inputs: dict, port: int, clients: int, seconds: float, hostile: int = 0
) -> subprocess.Popen:
    """Start the process of the clients."""
    job = inputs | {"port": port, "clients": clients, "seconds": seconds, "hostile": hostile}
    file = folder / "clients.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.serving.client", str(file)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen) -> dict:
    """Return what the clients say; raises ProgramFailed."""
    output, _ = process.communicate()
    if process.returncode:
        raise ProgramFailed(f"the clients ended with status {process.returncode}")
    return json.loads(output)


def measure(args: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Ask every server in turns; put the results into `report`; return whether every answer was right."""
    inputs = prepare(args, folder)
    results: dict = {}
    names = [name for name in SERVERS if name != "litserve_pipeline" or find_spec("litserve")]
    if len(names) < len(SERVERS):
        say("litserve is not installed and is left out; see requirements/benchmarks.txt")
    for number in range(1, args.rounds + 1):
        for name in names:
            with started(name, args, folder, inputs["checkpoint"]) as (_, port):
                # warm-up
                result_of(ask(folder, inputs, port, 8, min(2, args.seconds)))
                for clients in CLIENTS:
                    found = result_of(ask(folder, inputs, port, clients, args.seconds))
                    say(
                        f"round {number}, {name}, {clients} clients: {found['requests_per_second']:.1f} "
                        "requests/s"
                    )
                    results.setdefault(name, {}).setdefault(clients, []).append(found)
    report["servers"] = results
    rows = []
    for name, by_clients in results.items():
        for clients, found in by_clients.items():
            middle = {
                key: statistics.median(one[key] for one in found)
                for key in ("requests_per_second", "p50", "p99")
            }
            wrong, refused = (str(sum(one[key] for one in found)) for key in ("wrong", "refused"))
            times = [f"{1000 * middle[key]:.1f}" for key in ("p50", "p99")]
            rows.append([name, str(clients), f"{middle['requests_per_second']:.1f}", *times, wrong, refused])
    print("\n" + render_table(["", "clients", "requests/s", "p50 ms", "p99 ms", "wrong", "refused"], rows))
    return not sum(
        one["wrong"] for by_clients in results.values() for found in by_clients.values() for one in found
    )


def soak(args: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Ask our server from honest and hostile clients; return whether every answer was right."""
    inputs = prepare(args, folder)
    with started("ours", args, folder, inputs["checkpoint"]) as (server, port):
        clients = ask(folder, inputs, port, 8, args.soak * 60, hostile=8)
        memory = []
        while clients.poll() is None:
            memory.append(server.memory_info().rss)
            time.sleep(SAMPLE_SECONDS)
        found = result_of(clients)
    quarter = max(1, len(memory) // 4)
    second, last = (statistics.median(memory[start:][:quarter]) for start in (quarter, len(memory) - quarter))
    report["soak"] = found | {"memory": memory, "memory_second_quarter": second, "memory_last_quarter": last}
    print(
        f"{found['requests']:,} answers, {found['wrong']} wrong, {found['refused']} refused, p99 "
        f"{found['p99']:.3f} s"
    )
    print(
        f"memory of the server: {second / 1e6:.0f} MB in the second quarter, {last / 1e6:.0f} MB in the last"
    )
    return not found["wrong"]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parse(argv)
    work = soak if args.soak else measure
    return run_benchmark("serving", argv, lambda folder, report: work(args, folder, report), args.output)


if __name__ == "__main__":
    sys.exit(main())
