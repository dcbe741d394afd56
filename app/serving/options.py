"""How a server answers, and the limits of a request."""

from dataclasses import dataclass

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")
MAX_BODY = 1 << 20  # bytes
MAX_FILE = 64 << 20  # bytes of the body of /predict_file
MAX_TEXT = 100_000  # characters of one text
MAX_TEXTS = 128  # of a request, and of a file that are computed together


@dataclass(frozen=True)
class ServeOptions:
    """How a server answers. With an `api_key`, requests must have it. `allowed_hosts` are the names that the
    header Host may have; if it could have any, the page of a foreign web site could read the answers of this
    server, by DNS rebinding.

    In seconds: `timeout` for an answer; `keep_alive` until the next request of a connection; `wait` of a
    batch for more requests. `capacity` is the most texts that may wait, `connections` the most that are open
    at a time.
    """

    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = LOCAL_HOSTS
    timeout: float = 30.0
    keep_alive: float = 15.0
    wait: float = 0.003
    capacity: int = 512
    connections: int = 512
