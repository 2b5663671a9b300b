"""A program on a leash ends with its parent."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from tocsin.runtime.network import leash

DEADLINE_S = 60.0


def test_a_program_on_a_leash_ends_with_its_parent() -> None:
    script = (
        "import os, subprocess, sys; from tocsin.runtime.network import leash;"
        "p = subprocess.Popen(leash.command(os.getpid(), ('/bin/sleep', '600')));"
        "print(p.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    watched = os.pidfd_open(int(parent.stdout.readline()))
    with open(watched, "rb", buffering=0):
        parent.kill()
        parent.communicate()
        assert select.select([watched], [], [], DEADLINE_S)[0], "it is still there"


def test_a_program_whose_parent_is_gone_already_is_not_started() -> None:
    done = subprocess.run(leash.command(1, ("/bin/echo", "here")), capture_output=True, check=False)
    assert done.stdout == b""
