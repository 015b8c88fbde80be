# A worker in a container. Mount your tasks at /worker/tasks (and a crontab at /worker/crontab, if you have one):
#
#     docker build -t graphile-worker .
#     docker run -v ./tasks:/worker/tasks:ro -e DATABASE_URL=postgres://… graphile-worker -j 10
#
# If your tasks need more packages, build an image FROM this one that installs them and copies the tasks.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/graphile-worker \
    && /opt/graphile-worker/bin/pip install --no-cache-dir --disable-pip-version-check '.[fast]'

FROM python:3.12-slim
COPY --from=build /opt/graphile-worker /opt/graphile-worker
RUN useradd --system --no-create-home --uid 10001 worker \
    && mkdir --parents /worker/tasks \
    && chown worker: /worker
ENV PATH=/opt/graphile-worker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GRAPHILE_WORKER_HTTP_PORT=8080
WORKDIR /worker
# By number: Kubernetes refuses a name with runAsNonRoot.
USER 10001

# Healthy: the event loop runs and jobs can be fetched. With --live, the database does not count.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=2 \
    CMD ["graphile-worker", "health"]

# SIGTERM starts a graceful shutdown: give it more time than --grace (25 s), as in `docker stop -t 30`.
STOPSIGNAL SIGTERM
ENTRYPOINT ["graphile-worker"]
