"""The page of a server: one document with its script and style inside, which loads nothing."""

import base64
import hashlib
from pathlib import Path

FOLDER = Path(__file__).with_name("page_files")


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = _read("style.css"), _read("script.js")
PAGE = _read("index.html").replace("/* style */", _STYLE).replace("/* script */", _SCRIPT)
# Only this very script and style run, they reach only this server, and no other site may show the page in a
# frame.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
