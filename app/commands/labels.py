"""Have label issues looked at in Label Studio or doccano, and take the decisions back as a file of fixes.

python -m app labels export label_issues.csv tasks.json --to label-studio --limit 200
python -m app labels export label_issues.csv tasks.jsonl --to doccano
python -m app labels import decided.json fixes.csv

label_issues.csv comes from cross-validate. For Label Studio the labelling interface is printed, to be pasted
into the project. fixes.csv is for --data.relabel; it has the rows whose label was changed. No file is
overwritten. Exit status: 0, 2 for bad input.
"""

import argparse
from pathlib import Path

from ..config.rules import at_least
from ..data.annotation_export import TOOLS, export_issues
from ..data.annotation_import import import_fixes
from .parser import Parser, number


def run(argv: list[str], program: str) -> None:
    """Do what the command line asks for, and print what was done; raises InputError for bad input."""
    options = parse(argv, program)
    print(export(options) if options.action == "export" else import_decisions(options))


def parse(argv: list[str], program: str) -> argparse.Namespace:
    """Return the options."""
    parser = Parser(program, __doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="export|import")
    add = actions.add_parser("export", help="label_issues.csv -> tasks").add_argument
    add("source", metavar="ISSUES", help="a label_issues.csv")
    add("target", metavar="OUT", help="the new file: JSON for Label Studio, JSON Lines for doccano")
    add("--to", choices=TOOLS, required=True, help="the tool")
    first = "only this many of the first issues (default: all)"
    add("--limit", type=number(int, at_least(1)), help=first)
    add = actions.add_parser("import", help="an export of the tool -> fixes").add_argument
    add("source", metavar="IN", help="JSON or JSON-MIN of Label Studio, or JSONL of doccano")
    add("target", metavar="FIXES", help="the new CSV file for --data.relabel")
    return parser.parse_args(argv)


def export(options: argparse.Namespace) -> str:
    """Write the tasks; return what to tell people."""
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
