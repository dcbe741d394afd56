"""A web server of files that can send parts of them."""

import re
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler


class RangeServer(BaseHTTPRequestHandler):
    """Sends the files of `server.folder`, `server.delay` seconds after a request, and notes where each
    request starts; without `server.has_parts` always whole files."""

    def do_HEAD(self):
        self.do_GET(has_body=False)

    def do_GET(self, has_body=True):
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        content, has_parts = path.read_bytes(), getattr(self.server, "has_parts", True)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if has_parts else None
        start = int(wanted[1]) if wanted else 0
        end = min(int(wanted[2]) + 1 if wanted and wanted[2] else len(content), len(content))
        if has_body:
            self.server.starts.append(start)
            time.sleep(self.server.delay)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", '"1"')
        if has_parts:
            self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.end_headers()
        if has_body:
            with suppress(ConnectionError):
                self.wfile.write(content[start:end])

    def log_message(self, *arguments):
        pass
