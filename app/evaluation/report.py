"""Metrics -> the printed report."""

from __future__ import annotations


def render_report(metrics: dict, title: str) -> str:
    """Return the printed report: a table of classes, the averages, and the confusion matrix; `metrics` of `compute_metrics`."""
    import pandas as pd

    table = pd.DataFrame.from_dict(metrics["classes"], orient="index")
    rows = metrics["rows"]
    averages = {f"{name} avg": metrics[name] | {"support": rows} for name in ("macro", "weighted")}
    table = pd.concat([table, pd.DataFrame.from_dict(averages, orient="index")])
    table["support"] = table["support"].astype(int)
    names = list(metrics["classes"])
    confusion = pd.DataFrame(metrics["confusion_matrix"], index=names, columns=names)
    with pd.option_context("display.unicode.east_asian_width", True, "display.width", 10_000):
        return "\n".join(
            [
                title,
                table.to_string(float_format="{:.4f}".format),
                "",
                f"accuracy {metrics['accuracy']:.4f}   rows {rows:,}   loss {metrics['loss']:.4f}",
                "",
                "Confusion matrix (rows: true class, columns: predicted)",
                confusion.to_string(),
            ]
        )
