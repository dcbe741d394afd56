"""The life of the server of `label`."""

import logging
import socket

from ..serving.options import ServeOptions
from ..serving.server import address_of, run_server, uvicorn_config
from .application import LabelPage, build_label_application
from .session import LabelSession

logger = logging.getLogger(__name__)


def serve_labels(
    session: LabelSession, page: LabelPage, options: ServeOptions, host: str, listener: socket.socket
) -> int:
    """Show the texts of a session on a page until SIGTERM or SIGINT; return the signal. `listener` listens on
    `host`."""
    config = uvicorn_config(build_label_application(session, page, options), options)
    logger.info("label the texts of %s on %s", page.file, address_of(listener, host))
    return run_server(config, options, host, listener)
