"""The archive of Spark's classes, with which its Java starts in half the time.

Java keeps loaded classes in a file, if it is asked to when it ends, and maps that file at its next start: a *class
data archive* before Java 25, an *ahead-of-time cache* from there on. Ours is made once for each Java and pyspark, by
a **rehearsal**: a short Spark session of its own (``pipeline.spark.class_archive_build``) at the lowest priority,
behind the back of the pipeline's first run. Java checks by itself whether an archive fits, and goes on without it if
not. An archive has some 180 MB: the next rehearsal removes those that nobody has used for a month.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tocsin.pipeline.spark.java import Java
from tocsin.runtime.network import leash

AHEAD_OF_TIME: Final = 25  # the first Java that makes its cache in one step
PLAYED: Final = 3  # grows when the warm-up changes, so that archives are made again
REHEARSAL: Final = "tocsin.pipeline.spark.class_archive_build"
UNUSED_S: Final = 30 * 86_400.0  # by installations that are gone, or were renewed


def archive_path(java: Java, pyspark: str, options: str, cache: Path) -> Path:
    """Where the archive for this Java, this pyspark and these options is, or will be."""
    stamp = java.program.stat().st_mtime_ns if java.program.exists() else 0
    identity = f"{PLAYED} {java.program} {java.version} {stamp} {pyspark} {options} {sys.prefix}"
    return cache / f"classes-{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}.archive"


def use(java: Java, path: Path) -> str:
    """The option with which Java maps an archive that is there."""
    return f"-XX:{'AOTCache' if java.version >= AHEAD_OF_TIME else 'SharedArchiveFile'}={path}"


def note_use(path: Path) -> None:
    """Somebody uses an archive."""
    with contextlib.suppress(OSError):
        os.utime(path)


def tidy(cache: Path, now_s: float) -> None:
    """Remove archives that nobody has used for long, and what was left of rehearsals that were killed."""
    for each in cache.glob("classes-*"):
        with contextlib.suppress(OSError):
            if now_s - each.stat().st_mtime > UNUSED_S:
                each.unlink()


def make(java: Java, path: Path) -> str:
    """The option with which Java writes an archive when it ends."""
    return f"-XX:{'AOTCacheOutput' if java.version >= AHEAD_OF_TIME else 'ArchiveClassesAtExit'}={path}"


def rehearse(path: Path, java_options: str) -> subprocess.Popen[bytes] | None:
    """Begin to make the archive, in a process of its own that ends with this process; None if it cannot be."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        command = (sys.executable, "-P", "-m", REHEARSAL, str(path), java_options)
        return subprocess.Popen(
            leash.command(os.getpid(), command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None
