"""A short Spark session that makes the archive of classes (``pipeline.spark.class_archive``); run as a script by the
pipeline.

It does once what every start does first (``pipeline.spark.warm_up``). The file appears whole: it is made under another
name, and one rehearsal at a time makes it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tocsin import config
from tocsin.pipeline.spark import class_archive as archive
from tocsin.pipeline.spark.session import Options, Spark
from tocsin.pipeline.spark.warm_up import warm_up

# For Java to write the archive when it ends: five seconds, or minutes on a machine that is busy.
WRITING_S: Final = 900.0
SETTINGS: Final = config.Spark(master="local[1]", heap="512m")


def rehearse(path: Path, java_options: str) -> bool:
    """Make the archive; False if somebody else is at it, or it could not be made."""
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        for left in path.parent.glob(f"{path.stem}.*"):  # by a killed build
            if left not in (path, path.with_suffix(".lock")):
                left.unlink(missing_ok=True)
        archive.tidy(path.parent, time.time())
        partial = path.with_suffix(f".{os.getpid()}")
        with tempfile.TemporaryDirectory(prefix="tocsin-rehearsal-") as directory:
            work = Path(directory)
            options = Options(
                settings=SETTINGS,
                work=work / "work",
                log=work / "spark.log",
                cache=path.parent,
                java_options=java_options,
                archive=False,
            )
            spark = _Rehearsal(options, partial)
            spark.launch()
            signal.signal(signal.SIGTERM, lambda number, frame: _give_up(spark))
            spark.connect()
            warm_up(spark.session, work / "play", thorough=True)
            spark.stop(grace_s=WRITING_S)
        if not partial.exists():
            return False
        partial.replace(path)
        return True


def _give_up(spark: Spark) -> None:
    """The pipeline ends. Asked nicely, the Java would write its archive first, for seconds."""
    spark.kill()
    sys.exit(1)


class _Rehearsal(Spark):
    """Spark whose Java writes an archive when it ends."""

    def __init__(self, options: Options, path: Path) -> None:
        super().__init__(options)
        self._path = path

    def conf(self) -> dict[str, str]:
        assert self.java is not None
        conf = super().conf()
        conf["spark.driver.extraJavaOptions"] += f" {archive.make(self.java, self._path)}"
        return conf


if __name__ == "__main__":
    os.nice(19)
    sys.exit(0 if rehearse(Path(sys.argv[1]), sys.argv[2]) else 1)
