"""Make docs/pictures/report.png, the picture of a report in the README, from the page of a finished run:

python run_single.py --output.dir checkpoints/picture
python scripts/report_picture.py checkpoints/picture

It is the beginning of report.html in a window of Chromium. Needs playwright, a chromium and a font with
Chinese characters.
"""

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "report.png"
PAGE = "report.html"
WIDTH = 1000  # pixels
HEIGHT = 1400  # pixels


def make_picture(page_file: Path, picture: Path) -> None:
    """Write the beginning of a page as PNG."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        # Without a path it is the Chromium that playwright installs
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.screenshot(path=picture)
        browser.close()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "--picture", type=Path, default=PICTURE, help="the file to write (default: %(default)s)"
    )
    return parser


def main() -> int:
    """Make the picture; return 2 where the run has no page."""
    options = build_parser().parse_args()
    page_file = options.run / PAGE
    if not page_file.is_file():
        print(f"{page_file}: there is no such page; train first", file=sys.stderr)  # noqa: T201
        return 2
    make_picture(page_file, options.picture)
    print(f"{options.picture} was written from {page_file}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
