"""The page of a server, one document with all that it needs inside."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

PAGE_FILES = Path(__file__).with_name("page_files")


@dataclass(frozen=True)
class Page:
    """A page with the headers of its answer."""

    html: str
    headers: dict[str, str]


def read_page(folder: Path = PAGE_FILES) -> Page:
    """Return the page whose files are in a folder: `index.html` with `style.css` and `script.js` inside,
    after those that all pages share. It loads nothing."""
    style = _read_file(PAGE_FILES / "shared.css") + _read_file(folder / "style.css")
    script = _read_file(PAGE_FILES / "shared.js") + _read_file(folder / "script.js")
    html = _read_file(folder / "index.html")
    html = html.replace("/* style */", style)
    html = html.replace("/* script */", script)
    # Only this very script and style run, they reach only this server, and no other site may frame the page
    policy = (
        f"default-src 'none'; style-src {_source_hash(style)}; script-src {_source_hash(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Page(html, headers)


def _read_file(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _source_hash(content: str) -> str:
    """Return the hash by which a policy allows a script or style."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
