"""The page of a server: one document with its script and style inside, which loads nothing."""

import base64
import hashlib
from pathlib import Path

FOLDER = Path(__file__).with_name("page_files")
PAGE, HASHES = (FOLDER / "index.html").read_text(encoding="utf-8"), []
for place, name in (("/* style */", "style.css"), ("/* script */", "script.js")):
    inside = (FOLDER / name).read_text(encoding="utf-8")
    PAGE = PAGE.replace(place, inside)
    HASHES.append(f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'")
# Only this very script and style run, they reach only this server, and no other site may show the page in a
# frame.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {HASHES[0]}; script-src {HASHES[1]}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
