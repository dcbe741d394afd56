"""What a server counts, for Prometheus."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counts of one server; a separate registry, so that one process may have several."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "classifier_requests", "requests for labels, by status", ["status"], registry=registry
        )
        self.seconds = Histogram(
            "classifier_request_seconds",
            "time to answer a request for labels",
            buckets=SECONDS,
            registry=registry,
        )
        self.texts = Counter("classifier_texts", "texts that were classified", registry=registry)
        self.tokens = Counter(
            "classifier_tokens", "tokens of the texts that were computed", registry=registry
        )
        self.batch_texts = Histogram(
            "classifier_batch_texts", "texts that were computed together", buckets=TEXTS, registry=registry
        )
        self.waiting_texts = Gauge(
            "classifier_waiting_texts", "texts that wait or are computed", registry=registry
        )
        self.reloads = Counter(
            "classifier_reloads", "times the model was loaded again", ["result"], registry=registry
        )

    def render(self) -> tuple[bytes, str]:
        """Return all counts in Prometheus' text format, and its media type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
