"""Answers of the programs -> the results of the report, and its table."""

import statistics

from app.text_table import text_table
from benchmarks.harness.program import COPIES, PRODUCTS

MAX_SPREAD = 0.1  # of the ratios of the rounds, as a fraction of their median, for a result that holds
UNITS = {"fp32": "GFLOP/s", "bf16": "GFLOP/s", COPIES: "GB/s"}
CELLS = {
    "precision": lambda result: result["precision"],
    "settings": lambda result: result["settings"],
    "s/step": lambda result: f"{result['seconds_per_step']:.3f}",
    "rows/s": lambda result: f"{result['rows_per_second']:.1f}",
    "tokens/s": lambda result: f"{result['real_tokens_per_second']:,.0f}",
    "padding": lambda result: f"{result['padding']:.0%}",
    "memory": lambda result: f"{result['peak_memory'] / 1e6:,.0f} MB",
    "of limit": lambda result: f"{result['share_of_limit']:.0%}" if result["share_of_limit"] else "",
}


def summarise(rounds: list[dict[str, dict]], operations: int) -> dict:
    """Return each program's results over all rounds, and the median rates of matrix products and copies.

    A round has each program's answer by name, and under `PRODUCTS` what `harness.matrix_products` measured;
    `operations` is what a real token needs.
    """
    rates = {name: statistics.median(one[PRODUCTS][name] for one in rounds) for name in rounds[0][PRODUCTS]}
    programs = {}
    for name in [name for name in rounds[0] if name != PRODUCTS]:
        answers = [one[name] for one in rounds]
        sizes = ("seconds", "steps", "rows", "real_tokens", "tokens")
        total = {size: sum(answer[size] for answer in answers) for size in sizes}
        tokens_per_second = total["real_tokens"] / total["seconds"]
        rate = rates.get(answers[0]["precision"])
        programs[name] = (
            answers[0]
            | total
            | {
                "seconds_per_step": total["seconds"] / total["steps"],
                "rows_per_second": total["rows"] / total["seconds"],
                "real_tokens_per_second": tokens_per_second,
                "padding": 1 - total["real_tokens"] / total["tokens"],
                "peak_memory": max(answer["peak_memory"] for answer in answers),
                "share_of_limit": tokens_per_second * operations / rate if rate else None,
                "rounds": answers,
            }
        )
    return {PRODUCTS: rates, "programs": programs}


def ratios(ours: list[dict], peer: list[dict]) -> dict:
    """Return how many times as many rows per second ours did, in each round.

    `spread` is the difference of the highest and the lowest, as a fraction of the median.
    """
    rounds = [
        (mine["rows"] / mine["seconds"]) / (other["rows"] / other["seconds"])
        for mine, other in zip(ours, peer, strict=True)
    ]
    lowest, median, highest = min(rounds), statistics.median(rounds), max(rounds)
    found = {"min": lowest, "median": median, "max": highest, "rounds": rounds}
    return found | {"spread": (highest - lowest) / median}


def render(results: dict, columns: list[str], ratio: str) -> str:
    """Return the table of results: `columns` of `CELLS`, and their "ratios", a column called `ratio`; then
    the rates, and which ratios differ too much from round to round."""
    rows = []
    for name, result in results["programs"].items():
        found = results["ratios"].get(name)
        times = f"{found['median']:.2f} ({found['min']:.2f} to {found['max']:.2f})" if found else ""
        rows.append([name, *(CELLS[column](result) for column in columns), times])
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} {UNITS[name]}" for name, rate in results[PRODUCTS].items())
    lines = [
        f"\n{text_table(['', *columns, ratio], rows)}\n",
        f"matrix products: {rates}; the ratio is the median of the rounds (lowest to highest)",
    ]
    lines += [
        f"{name}: the ratios of the rounds spread over {found['spread']:.0%} of their median, more than "
        f"{MAX_SPREAD:.0%}: more rounds or more steps are needed"
        for name, found in results["ratios"].items()
        if found["spread"] > MAX_SPREAD
    ]
    return "\n".join(lines)
