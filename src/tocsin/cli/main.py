"""``tocsin VERB``: one module a verb, imported when it is asked for.

Exit codes: 0, done; 1, something went wrong; 2, the operator can put it right (a bad setting, a taken port, a wrong
option) and one sentence on standard error says how.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

import typer

from tocsin.errors import OperatorError, TocsinError

# In the order of the help: the verb, its module and what to take from it (a function, or an app with verbs of its own).
VERBS: dict[str, tuple[str, str]] = {
    "up": ("tocsin.cli.up", "up"),
    "init": ("tocsin.cli.init", "init"),
    "demo": ("tocsin.cli.demo", "demo"),
    "pub": ("tocsin.cli.publish", "publish"),
    "sub": ("tocsin.cli.subscribe", "subscribe"),
    "streams": ("tocsin.cli.streams", "streams"),
    "sql": ("tocsin.cli.sql", "sql"),
    "channel": ("tocsin.cli.channel", "app"),
    "dataset": ("tocsin.cli.dataset", "app"),
    "feed": ("tocsin.cli.feed", "app"),
    "retained": ("tocsin.cli.retained", "app"),
    "sessions": ("tocsin.cli.sessions", "app"),
    "explain": ("tocsin.cli.explain", "app"),
    "backup": ("tocsin.cli.backup", "app"),
    "doctor": ("tocsin.cli.doctor", "doctor"),
    "config": ("tocsin.cli.config", "app"),
    "user": ("tocsin.cli.user", "app"),
    "certs": ("tocsin.cli.certs", "app"),
    "store": ("tocsin.cli.store", "app"),
    "version": ("tocsin.cli.version", "version"),
    "chaos": ("tocsin.cli.chaos", "chaos"),
    "sim": ("tocsin.cli.sim", "app"),
    "lab": ("tocsin.cli.lab", "app"),
    "broker": ("tocsin.cli.broker", "broker"),
    "coordinator": ("tocsin.cli.coordinator", "app"),
    "pipeline": ("tocsin.cli.pipeline", "pipeline"),
    "feeder": ("tocsin.cli.feeder", "feeder"),
}
HELP = """Tocsin tells people and machines what they asked to be told, and keeps telling them while brokers fail.

Start with `tocsin doctor`, then `tocsin up`, then connect any MQTT client to one of the addresses it shows.
"""


def build(verbs: Sequence[str]) -> typer.Typer:
    """The command line with these verbs only: a broker should not wait for what the simulator imports."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="markdown",
    )
    app.callback()(lambda: None)  # without it, an app of one verb would not ask for the verb
    for verb in verbs:
        module, attribute = VERBS[verb]
        part = getattr(_imported(module), attribute)
        if isinstance(part, typer.Typer):
            app.add_typer(part, name=verb)
        else:
            app.command(name=verb)(part)
    return app


def _imported(module: str) -> ModuleType:
    """A module. The garbage collector rests meanwhile: nothing imported is garbage, and to look costs an eighth."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with _rich_unasked():
            import structlog  # noqa: F401
        return importlib.import_module(module)
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _rich_unasked() -> Iterator[None]:
    """structlog takes rich with it, for stack traces in colours that our logs never have: a fifth of a start."""
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # as if it were not there
    try:
        yield
    finally:
        del sys.modules["rich"]


def _be_quiet() -> None:
    """Nothing below a warning, and nothing on standard output, unless a process sets up its log (``runtime.logs``)."""
    with _rich_unasked():
        import structlog
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _be_quiet()
    asked = [arguments[0]] if arguments and arguments[0] in VERBS else list(VERBS)
    try:
        build(asked)(arguments, prog_name="tocsin")
    except OperatorError as error:
        print(f"tocsin: {error}", file=sys.stderr)
        return 2
    except TocsinError as error:
        print(f"tocsin: {error}", file=sys.stderr)
        return 1
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0
