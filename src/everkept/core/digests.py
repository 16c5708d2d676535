"""The hash function for fingerprints of texts, without OpenSSL.

`hashlib` loads OpenSSL for functions that nobody here uses, which costs a hook 3 ms.
"""

try:
    from _blake2 import blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
