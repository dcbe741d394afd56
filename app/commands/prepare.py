"""Read and tokenise the data of a run once, on a machine without accelerators.

    python -m app prepare --config configs/weibo_emotion6.yaml --data.cache_dir prepared
    python -m app prepare --data.train 'posts/*.parquet' --data.cache_dir prepared --workers 32

Takes the settings of the run that follows, and the number of processes that read and tokenise (--workers;
none: as many as cores to read several files, and one, on all cores, to tokenise). The folder data.cache_dir
then has all that the run makes of the data: tables, splits, vocabulary, tokens. Copy it, or
mount it read-only, where the run starts with the same settings of `data` and `model`; the data files must
be there too, under any path. The ranks compare the content of what they read, not its place, and a rank with
another cache ends the run. Exit status: 0, 2 for bad input.
"""

import sys
from dataclasses import replace

from ..config.command_line import load_config, take_number
from ..config.data_settings import VerbArguments
from ..config.schema import Config
from ..words import use_language


def run(argv: list[str], program: str) -> None:
    """Prepare the data of the configuration in `argv`; raises InputError for bad input."""
    if {"-h", "--help"} & set(argv[:1]):
        print(f"usage: {program} [--workers N] [--config FILE] [--group.key VALUE ...]\n")
        print(__doc__.replace("python -m app prepare", program), end="")
        return
    argv, workers = take_number(argv, "--workers")
    config = load_config(argv)
    use_language(config.output.language)
    print(prepare(replace(config, data=replace(config.data, verb=VerbArguments(workers=workers)))))


def prepare(config: Config) -> str:
    """Fill the cache of a run; return the data report and what the cache has. Raises InputError."""
    import logging

    from ..checkpoints.job import cache_content
    from ..data.report import render
    from ..modes import open_mode
    from ..training.build import build

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    # Nothing is trained here, so the device and the precision of the run are not needed.
    train = replace(config.train, device="cpu", precision="fp32")
    with open_mode("single", replace(config, train=train)) as mode:
        components = build(mode.config, mode)
    report = render(components.dataset, components.stores)
    content = cache_content(components.dataset, components.stores)
    return f"{report}\nPrepared in {config.data.cache_dir}, content {content}"
