"""Read and tokenise the data of a run once, on a machine without accelerators.

    python -m app prepare --config configs/weibo_emotion6.yaml --data.cache_dir prepared
    python -m app prepare --data.train 'posts/*.parquet' --data.cache_dir prepared --workers 32

Takes the settings of the run that follows. The folder data.cache_dir then has all that the run makes of the
data: tables, splits, vocabulary, tokens. Copy it, or mount it read-only, where the run starts with the same
settings of `data` and `model`; the data files must be there too, under any path. The ranks compare the
content of what they read, not its place, and a rank with another cache ends the run. Exit status: 0, 2 for
bad input.
"""

import logging
import sys
from dataclasses import replace

from ..config.command_line import load_config
from ..config.data_settings import VerbArguments
from ..words import use_language
from .parser import Parser, at_least, number


def run(argv: list[str], program: str) -> None:
    """Fill the cache of a run; print the data report and what the cache has. Raises InputError."""
    parser = Parser(program, __doc__)
    workers = (
        "processes that read and tokenise (default: as many as cores to read several files, and one, on all "
        "cores, to tokenise)"
    )
    parser.add_argument("--workers", type=number(int, at_least(1)), metavar="N", help=workers)
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings)
    use_language(config.output.language)
    from ..checkpoints.job import cache_content
    from ..data.report import render
    from ..modes import open_mode
    from ..training.build import build

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    # Nothing is trained here, so the device and the precision of the run are not needed
    train = replace(config.train, device="cpu", precision="fp32")
    data = replace(config.data, verb=VerbArguments(workers=options.workers))
    with open_mode("single", replace(config, train=train, data=data)) as mode:
        components = build(mode.config, mode)
    content = cache_content(components.dataset, components.stores)
    print(render(components.dataset, components.stores))
    print(f"Prepared in {config.data.cache_dir}, content {content}")
