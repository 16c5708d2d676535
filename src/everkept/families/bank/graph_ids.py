"""The public ids of a graph's parts: computed from what they say, and stored nowhere."""

import base64
import hashlib

from everkept.core.text import normalised

ENTITY_PREFIX = "ent_"
OBSERVATION_PREFIX = "obs_"
RELATION_PREFIX = "rel_"
LENGTH = 12  # characters behind the prefix


def entity_id(name: str, entity_type: str) -> str:
    """One id for all spellings that are one entity: case, blanks and composition do not count."""
    return _id(ENTITY_PREFIX, normalised(name), normalised(entity_type))


def observation_id(entity_id: str, text: str, timestamp_iso: str) -> str:
    return _id(OBSERVATION_PREFIX, entity_id, text, timestamp_iso)


def relation_id(from_id: str, relation_type: str, to_id: str) -> str:
    return _id(RELATION_PREFIX, from_id, normalised(relation_type), to_id)


def _id(prefix: str, *parts: str) -> str:
    # A text may hold what is no UTF-8, where it was taken from a file.
    data = ":".join(parts).encode("utf-8", "surrogatepass")
    code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode("ascii")
    return prefix + code[:LENGTH]
