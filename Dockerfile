# Recollect, for one person or a team. `docker build -t recollect .`, or deploy/compose.yaml.
FROM python:3.13-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

RUN python -m venv /opt/recollect
WORKDIR /source

# The packages change less often than the source, so they are a layer of their own.
COPY requirements/run.txt requirements/run.txt
RUN /opt/recollect/bin/pip install --require-hashes --requirement requirements/run.txt

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/recollect/bin/pip install --no-deps --no-build-isolation .

FROM python:3.13-slim

COPY --from=build /opt/recollect /opt/recollect
RUN useradd --uid 1000 --create-home recollect \
    && install --directory --owner recollect --group recollect --mode 700 /data

ENV PATH=/opt/recollect/bin:$PATH \
    RECOLLECT_DATA_DIR=/data
USER recollect
WORKDIR /home/recollect
VOLUME /data
EXPOSE 8081

# Where and how it listens is in the variables (RECOLLECT_TRANSPORT, RECOLLECT_PORT,
# RECOLLECT_CERTIFICATE), which this reads as the server does; flags of `serve` it cannot see. Over
# stdio there is nothing to ask.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["recollect", "health"]

ENTRYPOINT ["recollect"]
CMD ["serve"]
