"""Ask servers of the same model from 1, 8 and 64 clients: this project's, FastAPI with a pipeline, and
LitServe.

python -m benchmarks.serving --threads 1 --seconds 20 --rounds 3 --output serving.json
python -m benchmarks.serving --model small --seconds 3 --rounds 1

The servers take turns, and the clients are in a process beside them. Each answer is checked against its own
text. Exit status: 0; 1 for a wrong answer, or where a server failed; 2 for bad input.
"""

import argparse
import gc
import os
import socket
import statistics
import sys
import time
import urllib.request
from asyncio import run
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil

from app.commands.parser import Parser, number
from app.config.shipped import ROOT
from app.errors import say
from app.text_table import text_table
from benchmarks.harness.command import POSITIVE, add_job_options, command_parser, run_benchmark
from benchmarks.harness.program import ProgramFailed, last_line
from benchmarks.serving.client import ask

SERVERS = ("ours", "ours-onnx", "fastapi_pipeline", "litserve_pipeline")
CLIENTS = (1, 8, 64)
TOLERANCE = 1e-4
START_SECONDS = 300


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = command_parser("serving", __doc__)
    add, seconds = parser.add_argument, number(float, 0)
    add("--rows", type=POSITIVE, default=256, help="texts, drawn from the training rows (default: 256)")
    add("--rounds", type=POSITIVE, default=3, help="turns of each server (default: 3)")
    add("--seconds", type=seconds, default=20, help="time for each number of clients (default: 20)")
    add("--threads", type=POSITIVE, default=1, help="threads of each server's model (default: 1)")
    add_job_options(parser, "not used here: all servers compute in fp32")
    return parser


def prepare(options: argparse.Namespace, folder: Path) -> dict:
    """Make a checkpoint, its export and texts in `folder`; return the clients' part: texts and their
    probabilities.

    The head's random weights are enlarged, so that each text has different probabilities and no swap goes
    unseen.
    """
    from transformers import AutoModelForSequenceClassification

    from app.export.export import export
    from app.prediction.sources import text_rows
    from app.prediction.torch_runtime import load_predictor
    from benchmarks.prediction.job import prepare as prepare_prediction

    options.probe_rows, options.precision = 1, "fp32"
    job, _, _ = prepare_prediction(options, folder)
    checkpoint = Path(job.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    model.classifier.weight.data.mul_(20)
    model.save_pretrained(checkpoint)
    texts = [" ".join(text.split()) for text in job.texts]
    predictor = load_predictor(checkpoint, device="cpu")
    wanted = [
        dict(zip(predictor.task.label_names, prediction.probabilities.tolist(), strict=True))
        for prediction in predictor.predict(text_rows(texts))
    ]
    file = folder / "rows_to_compare.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    export(checkpoint, folder / "exported", tolerance=1.0, rows_file=str(file))
    return {"texts": texts, "wanted": wanted, "tolerance": TOLERANCE}


@contextmanager
def started(name: str, threads: int, folder: Path) -> Iterator[int]:
    """Yield the port of a server that answers; it ends with its children. Raises ProgramFailed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    checkpoint, exported = str(folder / "checkpoint"), str(folder / "exported")
    command = [sys.executable, "-m", f"benchmarks.serving.{name}", checkpoint, str(port)]
    if name.startswith("ours"):
        model = exported if name == "ours-onnx" else checkpoint
        command = [sys.executable, "-m", "app", "serve", model, "--port", str(port), "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    log = folder / f"{name}.log"
    with log.open("w") as output:
        server = psutil.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise ProgramFailed(f"{name} did not answer: {last_line(log)}")
            time.sleep(0.2)
        yield port
    finally:
        family = server.children(recursive=True) if server.poll() is None else []
        for process in (*family, server):
            process.kill()
        server.wait()


def answers(port: int) -> bool:
    """Return whether a server answers with labels."""
    address, header = f"http://127.0.0.1:{port}/predict", {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, b'{"inputs": "a"}', header), timeout=60):
            return True
    except OSError:
        return False


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Ask the servers; put the results into `report`; return whether every answer was right."""
    inputs = prepare(options, folder)
    # The clients run in this process; a collection then has few objects to look at
    gc.freeze()
    results = report["servers"] = {}
    names = [name for name in SERVERS if name != "litserve_pipeline" or find_spec("litserve")]
    if len(names) < len(SERVERS):
        say("litserve is not installed and is left out; see requirements/benchmarks.txt")
    for turn in range(1, options.rounds + 1):
        for name in names:
            with started(name, options.threads, folder) as port:
                # warm-up
                run(ask(inputs | {"port": port, "clients": 8, "seconds": min(2, options.seconds)}))
                for clients in CLIENTS:
                    job = {"port": port, "clients": clients, "seconds": options.seconds}
                    found = run(ask(inputs | job))
                    rate = found["requests_per_second"]
                    say(f"round {turn}, {name}, {clients} clients: {rate:.1f} requests/s")
                    results.setdefault(name, {}).setdefault(clients, []).append(found)
    rows, num_wrong = [], 0
    for name, by_clients in results.items():
        for clients, found in by_clients.items():
            rate, p50, p99 = (
                statistics.median(one[key] for one in found) for key in ("requests_per_second", "p50", "p99")
            )
            wrong, refused = (sum(one[key] for one in found) for key in ("wrong", "refused"))
            num_wrong += wrong
            times = [f"{1000 * p50:.1f}", f"{1000 * p99:.1f}"]
            rows.append([name, str(clients), f"{rate:.1f}", *times, str(wrong), str(refused)])
    header = ["", "clients", "requests/s", "p50 ms", "p99 ms", "wrong", "refused"]
    print(f"\n{text_table(header, rows)}")
    return not num_wrong


if __name__ == "__main__":
    sys.exit(run_benchmark(build_parser(), measure))
