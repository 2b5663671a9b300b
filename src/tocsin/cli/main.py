"""``tocsin VERB``: one module a verb, imported when it is asked for.

Other packages add verbs with entry points of the group ``tocsin.commands``: a function, or a Typer app. ``tocsin-demo``
and ``tocsin-labs`` do; where one is not installed, its verb says which extra brings it.

Exit codes: 0, done; 1, something went wrong; 2, the operator can put it right (a bad setting, a taken port, a wrong
option) and one sentence on standard error says how.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Annotated, Any, Final

import typer

from tocsin.errors import OperatorError, TocsinError

COMMANDS: Final = "tocsin.commands"  # the group of entry points
# In the order of the help: the verb, its module and what to take from it (a function, or an app with verbs of its own);
# or the words of the help where the package that has the verb is not installed.
VERBS: dict[str, tuple[str, str] | str] = {
    "up": ("tocsin.cli.verbs.up", "up"),
    "init": ("tocsin.cli.verbs.init", "init"),
    "demo": "Play the demonstration.",
    "register": ("tocsin.cli.verbs.register", "register"),
    "pub": ("tocsin.cli.verbs.publish", "publish"),
    "sub": ("tocsin.cli.verbs.subscribe", "subscribe"),
    "results": ("tocsin.cli.verbs.results", "results"),
    "streams": ("tocsin.cli.verbs.streams", "streams"),
    "sql": ("tocsin.cli.verbs.sql", "sql"),
    "channel": ("tocsin.cli.verbs.channel", "app"),
    "dataset": ("tocsin.cli.verbs.dataset", "app"),
    "feed": ("tocsin.cli.verbs.feed", "app"),
    "bridge": ("tocsin.cli.verbs.bridge", "app"),
    "retained": ("tocsin.cli.verbs.retained", "app"),
    "sessions": ("tocsin.cli.verbs.sessions", "app"),
    "drain": ("tocsin.cli.verbs.drain", "drain"),
    "routing": ("tocsin.cli.verbs.routing", "app"),
    "explain": ("tocsin.cli.verbs.explain", "app"),
    "backup": ("tocsin.cli.verbs.backup", "app"),
    "doctor": ("tocsin.cli.verbs.doctor", "doctor"),
    "config": ("tocsin.cli.verbs.config", "app"),
    "user": ("tocsin.cli.verbs.user", "app"),
    "certs": ("tocsin.cli.verbs.certs", "app"),
    "store": ("tocsin.cli.verbs.store", "app"),
    "version": ("tocsin.cli.verbs.version", "version"),
    "chaos": ("tocsin.cli.verbs.chaos", "chaos"),
    "sim": ("tocsin.cli.verbs.sim", "app"),
    "lab": "Repeat the papers' experiments, and compare.",
    "broker": ("tocsin.cli.verbs.broker", "broker"),
    "coordinator": ("tocsin.cli.verbs.coordinator", "app"),
    "pipeline": ("tocsin.cli.verbs.pipeline", "pipeline"),
    "feeder": ("tocsin.cli.verbs.feeder", "feeder"),
}
HELP = """Tocsin tells people and machines what they asked to be told, and keeps telling them while brokers fail.

Start with `tocsin doctor`, then `tocsin up`, then connect any MQTT client to one of the addresses it shows.
"""


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tocsin {importlib.metadata.version('tocsin')}")
        raise typer.Exit


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
    app.callback()(_whole)  # without it, an app of one verb would not ask for the verb
    for verb in verbs:
        match VERBS.get(verb):
            case (module, attribute):
                _add(app, verb, getattr(_imported(module), attribute))
            case words:
                _add_foreign(app, verb, words)
    return app


def _whole(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    pass


def _add(app: typer.Typer, verb: str, part: typer.Typer | Callable[..., Any]) -> None:
    if isinstance(part, typer.Typer):
        app.add_typer(part, name=verb)
    else:
        app.command(name=verb)(part)


def _add_foreign(app: typer.Typer, verb: str, words: str | None) -> None:
    """Add a verb of another package; where it is missing, a command that says how to install it."""
    if (entry := _foreign().get(verb)) is not None:
        _imported(entry.module)
        _add(app, verb, entry.load())
        return
    remedy = f"pip install 'tocsin[{verb}]'"

    def missing() -> None:
        raise OperatorError(f"`tocsin {verb}` is not installed", f"Install the extra: {remedy}")

    takes_anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(verb, help=f"{words} Not installed: `{remedy}`.", context_settings=takes_anything)(missing)


def _foreign() -> dict[str, importlib.metadata.EntryPoint]:
    """The verbs of other packages that are installed."""
    return {each.name: each for each in importlib.metadata.entry_points(group=COMMANDS)}


def _imported(module: str) -> ModuleType:
    """A module. The garbage collector is off during imports: nothing imported is garbage, and a collection costs an
    eighth.
    """
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


def _asked(arguments: Sequence[str]) -> list[str]:
    """The verbs that this command line needs: its own, or all for the help."""
    if arguments and arguments[0] in VERBS:
        return [arguments[0]]
    return list(dict.fromkeys((*VERBS, *_foreign())))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _be_quiet()
    try:
        build(_asked(arguments))(arguments, prog_name="tocsin")
    except OperatorError as error:
        print(f"tocsin: {error}", file=sys.stderr)
        return 2
    except TocsinError as error:
        print(f"tocsin: {error}", file=sys.stderr)
        return 1
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0
