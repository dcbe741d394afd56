"""Have label issues looked at in Label Studio or doccano, and take the decisions back as a file of fixes.

python -m app labels export label_issues.csv tasks.json --to label-studio --limit 200
python -m app labels export label_issues.csv tasks.jsonl --to doccano
python -m app labels import decided.json fixes.csv

label_issues.csv comes from cross-validate. For Label Studio the labelling interface is printed, to be pasted
into the project. fixes.csv is for --data.relabel; it has the rows whose label was changed. No file is
overwritten. Exit status: 0, 2 for bad input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config.shipped import PROGRAM
from ..data.annotation_export import TOOLS, export_issues
from ..data.annotation_import import import_fixes
from ..errors import InputError
from .exit_status import exit_status


def main(argv: list[str], program: str = f"{PROGRAM} labels") -> int:
    """Run the command line; return the exit status."""
    options = parse(argv, program)
    return exit_status(
        lambda: print(export(options) if options.action == "export" else import_decisions(options))
    )


def parse(argv: list[str], program: str) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        program,
        description=__doc__.replace("python -m app labels", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="export|import")
    exporting = actions.add_parser("export", help="label_issues.csv -> tasks", allow_abbrev=False)
    exporting.add_argument("source", metavar="ISSUES", help="a label_issues.csv")
    exporting.add_argument(
        "target", metavar="OUT", help="the new file: JSON for Label Studio, JSON Lines for doccano"
    )
    exporting.add_argument("--to", choices=TOOLS, required=True, help="the tool")
    exporting.add_argument("--limit", type=int, help="only this many of the first issues (default: all)")
    importing = actions.add_parser("import", help="an export of the tool -> fixes", allow_abbrev=False)
    importing.add_argument(
        "source", metavar="IN", help="JSON or JSON-MIN of Label Studio, or JSONL of doccano"
    )
    importing.add_argument("target", metavar="FIXES", help="the new CSV file for --data.relabel")
    return parser.parse_args(argv)


def export(options: argparse.Namespace) -> str:
    """Write the tasks; return what to tell people."""
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit must be at least 1, found {options.limit}")
    target = Path(options.target)
    count, interface = export_issues(Path(options.source), target, options.to, options.limit)
    text = f"{count:,} tasks in {target}"
    if interface is None:
        return text
    return f"{text}; the labelling interface (add labels that are missing):\n{interface}"


def import_decisions(options: argparse.Namespace) -> str:
    """Write the fixes; return what to tell people."""
    imported = import_fixes(Path(options.source), Path(options.target))
    several = (
        f", {imported.several:,} left out because of several different decisions" if imported.several else ""
    )
    return (
        f"{imported.changed:,} changed labels in {options.target}; {imported.confirmed:,} confirmed, "
        f"{imported.open:,} without a decision{several}"
    )
