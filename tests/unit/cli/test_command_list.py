"""The list of commands says what each command says of itself."""

from __future__ import annotations

import click
from click.testing import CliRunner

from app.cli import COMMANDS, main
from tests.support.tables import each_of


@each_of("name", sorted(COMMANDS))
def test_a_command_is_what_the_list_says(name: str) -> None:
    _, command, _ = main.resolve_command(click.Context(main), [name])
    assert command is not None
    assert command.name == name
    assert main.commands[name].get_short_help_str(60) == command.get_short_help_str(60)


def test_a_slip_is_told_what_was_meant() -> None:
    told = CliRunner().invoke(main, ["serv"])
    assert (told.exit_code, "serve" in told.output) == (2, True)


def test_the_list_has_every_command_that_is_there() -> None:
    assert main.list_commands(click.Context(main)) == sorted(COMMANDS)
