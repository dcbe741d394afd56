# A server on the CPU for an exported folder, without torch:
#   python -m app export checkpoints/sample-001 --output small-model --precision int8
#   docker build -t text-classifier .
#   docker run --rm --init -p 127.0.0.1:8000:8000 -v "$PWD/small-model:/model:ro" text-classifier
# For a run instead of an exported folder: docker build --build-arg PACKAGES="-r requirements.txt" ...
# Another package index: --build-arg PIP_INDEX_URL=...
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PACKAGES="numpy tokenizers tqdm"
WORKDIR /app
COPY requirements.txt constraints.txt ./
COPY requirements requirements
RUN pip install --no-cache-dir ${PACKAGES} -r requirements/serve.txt -r requirements/onnx.txt -c constraints.txt
COPY app app

RUN useradd --system classifier
USER classifier
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["python", "-m", "app", "serve", "--host", "0.0.0.0"]
CMD ["/model"]
