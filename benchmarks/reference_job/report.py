"""The benchmark's figures, for JSON and for people."""

from __future__ import annotations

import statistics

from benchmarks.contest.figures import ratios, render_table, spread, summarise
from benchmarks.reference_job import OURS


def make_figures(rounds: list[dict[str, dict]], details: dict[str, dict], job: dict) -> dict:
    """Return each contestant's figures, the ratio of ours to each peer, and the rates of matrix products.

    A round has each contestant's answer by name, and under `matrix_products` operations per second by precision;
    `details` is what each contestant said of itself, `job` the job's figures.
    """
    products = [found["matrix_products"] for found in rounds]
    rates = {name: statistics.median(found[name] for found in products) for name in products[0]}
    answers = {name: [found[name] for found in rounds] for name in details}
    contestants = {}
    for name, found in answers.items():
        contestants[name] = figures = summarise(found) | details[name]
        operations = 6 * job["encoder_weights"] * figures["real_tokens_per_second"]
        figures["share_of_limit"] = operations / rates[figures["precision"]]
        figures["epoch_seconds"] = job["train_rows"] / figures["rows_per_second"]
    peers = [name for name in answers if name != OURS]
    return {
        "matrix_products": {"operations_per_second": rates, "rounds": products},
        "contestants": contestants,
        "ratios": {name: ratios(answers[OURS], answers[name]) for name in peers},
        "token_ratios": {name: ratios(answers[OURS], answers[name], "real_tokens") for name in peers},
    }


def render(figures: dict, job: dict, skipped: dict[str, str]) -> str:
    """Return the table of `make_figures`, with what was left out."""
    header = ["", "precision", "s/step", "rows/s", "tokens/s", "padding", "memory", "of limit", "epoch"]
    header += ["ours / it: rows/s", "tokens/s"]
    rows = []
    for name, found in figures["contestants"].items():
        row = [name, found["precision"], f"{found['seconds_per_step']:.3f}", f"{found['rows_per_second']:.1f}"]
        row += [f"{found['real_tokens_per_second']:,.0f}", f"{found['padding']:.0%}"]
        row += [f"{found['peak_memory'] / 1e6:,.0f} MB", f"{found['share_of_limit']:.0%}"]
        row += [f"{found['epoch_seconds']:,.1f} s"]
        row += (
            [spread(figures["ratios"][name]), f"{figures['token_ratios'][name]['median']:.2f}"]
            if name != OURS
            else ["", ""]
        )
        rows.append(row)
    rates = figures["matrix_products"]["operations_per_second"]
    limits = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in rates.items())
    lines = [
        describe(job),
        render_table(header, rows),
        f"matrix products: {limits}; the ratio is the median of the rounds (lowest to highest)",
    ]
    return "\n\n".join(lines) + "".join(f"\nskipped: {name}: {reason}" for name, reason in skipped.items())


def describe(job: dict) -> str:
    """Return the job in one line."""
    return (
        f"{job['model_type']}, {job['layers']} layers, {job['hidden_size']} wide, {job['parameters'] / 1e6:.1f} million parameters; "
        f"{job['train_rows']:,} rows of {job['tokens_per_row']:.1f} tokens, batch {job['batch_size']}, "
        f"{job['steps_per_epoch']} steps an epoch; {job['device']}"
    )
