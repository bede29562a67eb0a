"""The commands, a module each. Each exits with 0, 1 (it failed) or 2 (wrong use), and prints JSON with `--json`."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = {
    "capture": "capture:capture",
    "conflicts": "conflicts:conflicts",
    "doctor": "doctor:doctor",
    "erase": "upkeep:erase",
    "eval": "evaluate:eval_",
    "export": "export:export",
    "import": "importer:import_",
    "keys": "keys:keys",
    "mcp": "mcp:mcp",
    "migrate": "migrate:migrate",
    "ontology": "ontology:ontology",
    "reembed": "reembed:reembed",
    "replay": "replay:replay",
    "retention": "upkeep:retention",
    "serve": "serve:serve",
    "sweep": "upkeep:sweep",
    "worker": "serve:worker",
}
"""Where each is: the module in this folder, and its name there. One is loaded when it is called: a server needs no other."""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (where := COMMANDS.get(cmd_name)) is None:
            return None
        module, name = where.split(":")
        command: click.Command = getattr(import_module(f"app.cli.{module}"), name)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mneme-proxy", prog_name="mneme")
def main() -> None:
    """Mneme: an OpenAI-compatible proxy that remembers."""
