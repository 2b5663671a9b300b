"""A network namespace of one's own, with nothing in it but loopback: what is lost there is lost to nobody else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

STOP_S = 10.0


@contextlib.contextmanager
def space() -> Iterator[tuple[str, ...]]:
    """The command with which programs are run inside; skips, in words, where there can be none."""
    for needed, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is missing: install the Debian package {package}")
    alone = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    holder = subprocess.Popen(
        ["unshare", "--net", *alone, "sh", "-c", "ip link set lo up && echo made && exec sleep 3600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None and holder.stderr is not None
    try:
        if holder.stdout.readline() != "made\n":
            pytest.skip(
                f"no network namespace can be made here ({holder.stderr.read().strip()}): run the tests as root, "
                "or allow user namespaces"
            )
        same = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        yield ("nsenter", "--target", str(holder.pid), "--net", *same, "--")
    finally:
        holder.kill()
        holder.wait(STOP_S)
        holder.stdout.close()
        holder.stderr.close()


def loses_packets(within: tuple[str, ...], nft: str) -> None:
    """Skip, in words, where the kernel has no filter that can drop by chance."""
    chain = ("type filter hook input priority 0", "numgen random mod 100 < 1 drop")
    rules = "\n".join(("table inet trial {", "chain c {", *chain, "}", "}", ""))
    tried = subprocess.run([*within, nft, "-f", "-"], input=rules, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"packets cannot be dropped here: {tried.stderr.strip()}; use a kernel with nf_tables")
    subprocess.run([*within, nft, "delete", "table", "inet", "trial"], check=True)
