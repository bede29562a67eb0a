# syntax=docker/dockerfile:1.10
# Mneme's image: what requirements.lock names, hash by hash, and nothing that only builds it.

FROM python:3.11.14-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
WORKDIR /src
RUN python -m venv /opt/mneme
COPY requirements.lock ./
RUN /opt/mneme/bin/python -m pip install --no-deps --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md ./
COPY app app
COPY mneme_replay mneme_replay
COPY sql sql
COPY deploy/image/prune.py /tmp/prune.py
# What only builds the wheel is in the lock, too; then it goes.
RUN /opt/mneme/bin/python -m pip install --no-deps --no-build-isolation . \
    && /opt/mneme/bin/python /tmp/prune.py mneme-proxy \
    && /opt/mneme/bin/python -m compileall -q /opt/mneme/lib

FROM python:3.11.14-slim-bookworm
# By its name, too: initdb of the embedded Postgres wants one.
RUN groupadd --system --gid 10001 mneme \
    && useradd --system --uid 10001 --gid mneme --home-dir /var/lib/mneme --shell /usr/sbin/nologin mneme \
    && install -d -m 0750 -o mneme -g mneme /var/lib/mneme \
    && install -d -m 0755 /etc/mneme
COPY --from=build /opt/mneme /opt/mneme
COPY --chmod=0755 deploy/image/health.py /usr/local/bin/mneme-health

ENV PATH=/opt/mneme/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MNEME_HOST=0.0.0.0 \
    MNEME_PORT=8080 \
    MNEME_DATA_DIR=/var/lib/mneme
# `mneme.toml` and `.env` are read from here; the data folder holds the spool, and the embedded Postgres where no other is named.
WORKDIR /etc/mneme
VOLUME /var/lib/mneme
EXPOSE 8080
USER 10001:10001
# Longer than MNEME_SHUTDOWN_GRACE_S: open answers end, or are kept as interrupted. Give `docker stop` as much (--time 40).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=90s --retries=3 CMD ["mneme-health", "server"]
ENTRYPOINT ["mneme"]
CMD ["serve"]
