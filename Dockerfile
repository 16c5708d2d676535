FROM python:3.13-slim

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    RECOLLECT_DATA_DIR=/data

RUN useradd --uid 1000 --create-home recollect \
    && install --directory --owner recollect --group recollect /data

WORKDIR /srv/recollect

# The packages change less often than the source, so they are a layer of their own.
COPY requirements/run.txt requirements/run.txt
RUN pip install --require-hashes --requirement requirements/run.txt

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-deps --no-build-isolation .

USER recollect
WORKDIR /home/recollect
VOLUME /data

ENTRYPOINT ["recollect"]
CMD ["serve"]
