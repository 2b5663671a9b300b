"""``tocsin sql``: datasets, feeds and channels, and questions about them, from a script or at a prompt."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from tocsin.cli.answers import Form, form_of, show
from tocsin.cli.asking import WAIT_S, WaitOption, ask, reach
from tocsin.cli.setting_options import SetOption, StateOption
from tocsin.client.sql import DEADLINE_S, Pipeline, Reply
from tocsin.errors import DeadlineExceeded, OperatorError, Refused
from tocsin.model.questions import ROWS_DEFAULT

SCRIPT_MAX_BYTES: Final = 1 << 20  # more than the pipeline takes, which says so itself
FAILED: Final = 1

FileOption = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", metavar="FILE", help="Run the statements of a file; `-` reads standard input."
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file.", show_default=False)
]


def sql(
    command: Annotated[
        str, typer.Option("-c", "--command", metavar="SQL", help="Run these statements.")
    ] = "",
    file: FileOption = None,
    form: Annotated[
        str, typer.Option("-o", "--output", metavar="FORM", help="table, json (one object per line) or csv.")
    ] = "table",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="How many rows of a SELECT to show.")
    ] = ROWS_DEFAULT,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1.0, help="How long to wait for an answer.")
    ] = DEADLINE_S,
    user: Annotated[
        str,
        typer.Option(
            "--user", metavar="NAME", help="A user of SQL (`tocsin store user add`); else the operator."
        ),
    ] = "",
    key: Annotated[
        str,
        typer.Option("--key", metavar="FILE", help="The user's nkey seed; else that in the state directory."),
    ] = "",
    wait: WaitOption = WAIT_S,
    config: ConfigOption = None,
    sets: SetOption = None,
    state: StateOption = None,
) -> None:
    """Define datasets, feeds and channels, and ask about what they hold.

    Without options it is a prompt: statements end with a semicolon, and the Tab key completes words and names:

        tocsin sql

        tocsin sql -c 'SHOW CHANNELS'

        tocsin sql -f channels.sql

        tocsin sql -o json -c 'SELECT kind, count(*) AS n FROM Reports GROUP BY kind'

        tocsin sql --user ann --key user-ann.nk -c 'SHOW DATASETS'

    The exit code is 1 if a statement failed: those before it are done, those after it are not. `-c` is the command
    here; a settings file is named with `--config`.
    """
    chosen = form_of(form)
    if command and file is not None:
        raise OperatorError("-c and -f exclude each other", "Give one of them")
    reached = reach(config, sets, state, wait, user, key)
    if not command and file is None and sys.stdin.isatty():
        from tocsin.cli.verbs.sql_prompt import converse  # only here: scripts do not pay for it

        raise typer.Exit(converse(reached, limit, timeout))
    text = command or _read(file)

    async def run(pipeline: Pipeline) -> Reply:
        return await pipeline.run(text, limit=limit, deadline_s=timeout)

    began = time.monotonic()
    try:
        reply = ask(reached, run)
    except DeadlineExceeded:
        raise OperatorError(
            f"the pipeline has not answered within {timeout:g} s; it may still do what it was asked",
            "See what became of it with SHOW, and give more time with --timeout",
        ) from None
    except Refused as error:
        if not user:
            raise
        raise OperatorError(
            f"this key does not let you ask as {user}: {error}",
            f"Name the seed that `tocsin store user add {user}` made, with --key",
        ) from None
    raise typer.Exit(tell(reply, text, chosen, time.monotonic() - began))


def tell(reply: Reply, text: str, form: Form, seconds: float) -> int:
    """Show what became of a script; the exit code."""
    for number, answer in enumerate(reply.results):
        if number and form == "csv" and answer.columns:
            print()
        show(answer, form, seconds if len(reply.results) == 1 else None)
    if reply.error is None:
        return 0
    print(f"tocsin: {reply.error.error(text)}", file=sys.stderr)
    return FAILED


def _read(file: Path | None) -> str:
    try:
        if file is None or str(file) == "-":
            data = sys.stdin.buffer.read(SCRIPT_MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(SCRIPT_MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise OperatorError(
            f"{file} cannot be read: {error.strerror or error}", "Name a file of SQL"
        ) from None
    except UnicodeDecodeError:
        raise OperatorError(
            f"{file or 'standard input'} is not text in UTF-8", "Name a file of SQL"
        ) from None
    if len(data) > SCRIPT_MAX_BYTES:
        raise OperatorError(f"a script of more than {SCRIPT_MAX_BYTES} bytes is too long", "Run it in pieces")
    if not text.strip():
        raise OperatorError("there is no statement to run", "Give one with -c, or a file with -f")
    return text
