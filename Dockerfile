# Everkept, for one person or a team. `docker build -t everkept .`, or deploy/compose.yaml.
FROM python:3.13-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

RUN python -m venv /opt/everkept
WORKDIR /source

# The packages change less often than the source, so they are a layer of their own.
# All extras, because nothing can be added to a container later.
COPY requirements requirements
RUN /opt/everkept/bin/pip install --require-hashes $(find requirements -name '*.txt' -exec printf ' --requirement %s' {} +)

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/everkept/bin/pip install --no-deps --no-build-isolation .

FROM python:3.13-slim

COPY --from=build /opt/everkept /opt/everkept
RUN useradd --uid 1000 --create-home everkept \
    && install --directory --owner everkept --group everkept --mode 700 /data

ENV PATH=/opt/everkept/bin:$PATH \
    EVERKEPT_DATA_DIR=/data
USER everkept
WORKDIR /home/everkept
VOLUME /data
EXPOSE 8081

# Where and how it listens is in the variables (EVERKEPT_TRANSPORT, EVERKEPT_PORT,
# EVERKEPT_CERTIFICATE), which this reads as the server does; flags of `serve` it cannot see. Over
# stdio there is nothing to ask.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["python", "-I", "-m", "everkept", "health"]

# Isolated from variables and from the folder that `docker run --workdir` names.
ENTRYPOINT ["python", "-I", "-m", "everkept"]
CMD ["serve"]
