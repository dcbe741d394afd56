"""A server of `label` in this process, and one in its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from app.labelling.application import LabelPage, build_label_application
from app.labelling.pool import Pool
from app.labelling.session import LabelSession, SessionOptions
from app.serving.options import ServeOptions
from app.serving.server import uvicorn_config
from tests.labelling.pools import LABELS, CharacterVectors
from tests.processes import ROOT
from tests.serving.running_server import HOOKS, process_with_address, running_application

PERSON = "0123456789ab"


@contextmanager
def labels_client(
    folder: Path, pool: Pool, asks_guess: bool = False, api_key: str | None = None, has_several: bool = False
) -> Iterator[httpx2.Client]:
    """Yield a client of a server for the texts of a pool, which writes labels.csv into a folder."""
    options = SessionOptions(
        has_several=has_several, vectors=CharacterVectors(), cache_dir=str(folder / "cache")
    )
    serve_options = ServeOptions(api_key=api_key)
    page = LabelPage(file="posts.csv", has_several=has_several, asks_guess=asks_guess)
    with LabelSession(pool, LABELS, folder / "labels.csv", options) as session:
        session._thread.join()
        config = uvicorn_config(build_label_application(session, page, serve_options), serve_options)
        with (
            running_application(config) as address,
            httpx2.Client(base_url=address, timeout=60, event_hooks=HOOKS) as client,
        ):
            yield client


@contextmanager
def label_process(
    folder: Path, checkpoint: Path, *options: str, port: int = 0, key: str | None = None
) -> Iterator[tuple[subprocess.Popen, str, Path]]:
    """Yield the process of `python -m app label` for the file posts.csv of a folder, which ends with the
    context, its address, and the file of its messages."""
    command = [sys.executable, "-m", "app", "label", "posts.csv", "--labels", ",".join(LABELS)]
    command += ["--output", "labels.csv", "--checkpoint", str(checkpoint), "--port", str(port)]
    command += ["--device", "cpu", *options]
    log = folder / "log"
    with process_with_address(command, folder, log, key, PYTHONPATH=str(ROOT)) as (process, address):
        yield process, address, log
