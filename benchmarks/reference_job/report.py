"""The benchmark's results, as JSON and as a table."""

from __future__ import annotations

from benchmarks.harness.summary import (
    median_rates,
    ratios,
    render_rates,
    render_table,
    spread,
    summarise,
    unsteady,
)
from benchmarks.reference_job import OURS


def summarise_rounds(rounds: list[dict[str, dict]], details: dict[str, dict], job: dict) -> dict:
    """Return each program's results, the ratio of ours to each peer, and the rates of matrix products.

    A round has each program's answer by name, and under `matrix_products` operations per second by precision;
    `details` is each program's description of itself, `job` that of the job.
    """
    products = [one_round["matrix_products"] for one_round in rounds]
    rates = median_rates(products)
    answers = {name: [one_round[name] for one_round in rounds] for name in details}
    programs = {}
    for name, answers_of_program in answers.items():
        programs[name] = result = summarise(answers_of_program) | details[name]
        operations = 6 * job["encoder_weights"] * result["real_tokens_per_second"]
        result["share_of_limit"] = operations / rates[result["precision"]]
        result["epoch_seconds"] = job["train_rows"] / result["rows_per_second"]
    peers = [name for name in answers if name != OURS]
    return {
        "matrix_products": {"operations_per_second": rates, "rounds": products},
        "programs": programs,
        "rows": same_rows(programs),
        "ratios": {name: ratios(answers[OURS], answers[name]) for name in peers},
    }


def render(results: dict, job: dict, skipped: dict[str, str]) -> str:
    """Return the table of `summarise_rounds`, with what was skipped."""
    header = ["", "precision", "s/step", "rows/s", "tokens/s", "padding", "memory", "of limit", "epoch"]
    header += ["ours / it", "spread"]
    rows = []
    for name, result in results["programs"].items():
        row = [
            name,
            result["precision"],
            f"{result['seconds_per_step']:.3f}",
            f"{result['rows_per_second']:.1f}",
        ]
        row += [f"{result['real_tokens_per_second']:,.0f}", f"{result['padding']:.0%}"]
        row += [f"{result['peak_memory'] / 1e6:,.0f} MB", f"{result['share_of_limit']:.0%}"]
        row += [f"{result['epoch_seconds']:,.1f} s"]
        row += (
            [spread(results["ratios"][name]), f"{results['ratios'][name]['spread']:.0%}"]
            if name != OURS
            else ["", ""]
        )
        rows.append(row)
    limits = render_rates(results["matrix_products"]["operations_per_second"])
    lines = [
        describe(job),
        render_table(header, rows),
        f"matrix products: {limits}; the ratio is the median of the rounds (lowest to highest)",
        "\n".join([results["rows"], *unsteady(results["ratios"])]),
    ]
    return "\n\n".join(lines) + "".join(f"\nskipped: {name}: {reason}" for name, reason in skipped.items())


def same_rows(programs: dict[str, dict]) -> str:
    """Return which rows the programs trained, in one line."""
    ours = programs[OURS]
    fewer = [
        f"{name} trained {result['rows']:,} of them"
        for name, result in programs.items()
        if result["rows"] < ours["rows"]
    ]
    same = (
        f"in each round all trained the same rows, {ours['rows']:,} in all; their number and real tokens are "
        "checked"
    )
    return "; ".join([same, *fewer])


def describe(job: dict) -> str:
    """Return the job in one line."""
    return (
        f"{job['model_type']}, {job['layers']} layers, {job['hidden_size']} wide, "
        f"{job['parameters'] / 1e6:.1f} million parameters; {job['train_rows']:,} rows of "
        f"{job['tokens_per_row']:.1f} tokens, batch {job['batch_size']}, {job['steps_per_epoch']} steps an "
        f"epoch; {job['device']}"
    )
