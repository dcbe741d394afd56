"""Time the same job in every mode that this machine can run, each started by its own launcher.

    python -m app benchmark
    python -m app benchmark --config configs/weibo_emotion6.yaml --train.max_steps 40 --processes 2
    python -m app benchmark --modes single ddp horovod --output modes.json

Prints mode, processes, global batch, minutes of the whole command, rows per second while training, speed-up
over single, highest memory of a process, accuracy of the report. With --rounds the modes take turns, and the
table has medians, with the speed-up over single of the same round. Any setting of the trainer (--group.key)
may follow.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path

from ..config.command_line import load_config
from ..prediction.output import check_output
from .exit_status import say
from .mode_options import PlannedMode, modes_parser, plan_modes
from .parser import at_least, number


def run(argv: list[str], program: str) -> int:
    """Time the modes that the command line asks for, and print the table; return the exit status."""
    parser = modes_parser(program, __doc__, timeout=7200)
    rounds = "times that each mode runs, in turns (default: 1)"
    parser.add_argument("--rounds", type=number(int, at_least(1)), default=1, help=rounds)
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings)
    if options.output:
        check_output(options.output, None)
    modes = plan_modes(options.modes, options.processes, config.train.device)
    from ..checkpoints.run_history import describe_start
    from ..runs.timing import Timing, over_rounds, render, run_mode
    from ..runtime.devices import choose_device
    from ..runtime.disk import write_json

    def time_mode(mode: PlannedMode, turn: int) -> Timing:
        if mode.unavailable:
            return Timing(mode.name, mode.processes, why=mode.unavailable)
        say(f"{turn}/{options.rounds}: {mode.name}, {mode.processes} process(es) ...")
        with tempfile.TemporaryDirectory() as folder:
            return run_mode(mode.name, mode.processes, settings, Path(folder, mode.name), options.timeout)

    rounds = [[time_mode(mode, turn) for mode in modes] for turn in range(1, options.rounds + 1)]
    timings = over_rounds(rounds)
    print(render(timings))
    if options.output:
        start = describe_start("single", 1, str(choose_device(config.train.device)))
        medians, *by_round = ([asdict(timing) for timing in table] for table in (timings, *rounds))
        write_json(Path(options.output), {"machine": start, "modes": medians, "rounds": by_round})
    available = {mode.name for mode in modes if not mode.unavailable}
    return 1 if any(timing.rows_per_second is None for timing in timings if timing.mode in available) else 0
