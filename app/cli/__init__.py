"""The commands. Each exits with 0, 1 (it failed) or 2 (wrong use), and prints JSON with `--json`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from app.optional import is_there

COMMANDS = {
    "archive": (
        "app.features.archive.archives:archive",
        "Old months of history: put into files, listed, and restored.",
    ),
    "capture": (
        "app.features.transfer.commands:capture",
        "Export captured calls as cassettes, and import them.",
    ),
    "conflicts": (
        "app.features.conflicts:conflicts",
        "Contradictions between memories, and with the business's own database.",
    ),
    "doctor": ("app.cli.doctor:doctor", "Find what is wrong with this installation, and say how to mend it."),
    "erase": ("app.cli.upkeep:erase", "Erase every trace of a user."),
    "eval": ("app.cli.evaluate:eval_", "Measure how much of what answers a question is found within a budget."),
    "export": ("app.features.transfer.commands:export", "Export everything that is stored of a user, as JSON lines."),
    "import": (
        "app.features.transfer.commands:import_",
        "Import past conversations (JSON lines) into a running Mneme.",
    ),
    "keys": ("app.cli.keys:keys", "API keys."),
    "mcp": (
        "app.features.mcp:mcp",
        "Offer the memory of a running Mneme as an MCP server, on standard input and output.",
    ),
    "migrate": ("app.cli.upkeep:migrate", "Bring the database up to date."),
    "ontology": ("app.features.knowledge.command:ontology", "What the tables of a business's own database mean."),
    "reembed": (
        "app.features.reembed:reembed",
        "Give everything a vector of the embedder that the settings name, while the server runs.",
    ),
    "relearn": (
        "app.cli.relearn:relearn_history",
        "Learn again from the stored history with today's rules, while the server runs.",
    ),
    "replay": (
        "app.features.replay.command:replay",
        "Replay captured calls: serve them from cassettes, or send them again and compare the answers.",
    ),
    "retention": ("app.cli.upkeep:retention", "Drop captured calls past MNEME_CAPTURE_DAYS and MNEME_CAPTURE_MAX_GB."),
    "serve": (
        "app.cli.serve:serve",
        "Start the proxy, its worker and, without MNEME_DATABASE_URL, the embedded Postgres.",
    ),
    "sweep": (
        "app.cli.upkeep:sweep",
        "Run one task of the schedule now: promotion, demotion, aging, decay, prune, expiry, …",
    ),
    "worker": ("app.cli.serve:worker", "Run jobs until stopped: embeddings, extraction, the schedule."),
}
"""Where each is (its module, and its name there), and how its help begins. One is loaded when it is called: a
server needs no other, and neither does the list of them."""


class Commands(click.Group):
    """What stands under `commands` has a name and a help; the command itself comes when it is resolved."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those that this installation has."""
        modules = {name: COMMANDS[name][0].partition(":")[0] for name in super().list_commands(ctx)}
        features = {name: at.removeprefix("app.features.") for name, at in modules.items()}
        return [name for name, at in features.items() if at == modules[name] or is_there(at)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        if listed is None or listed.name not in COMMANDS:
            return name, listed, rest
        module, attribute = COMMANDS[listed.name][0].split(":")
        return name, getattr(import_module(module), attribute), rest

    def invoke(self, ctx: click.Context) -> Any:
        """A command that needs a feature which is not there says so."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("app.features."):
                raise
            raise click.ClickException(f"This installation has no {error.name}.") from error


@click.command(
    cls=Commands,
    commands=[click.Command(name, help=text) for name, (_, text) in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="mneme-proxy", prog_name="mneme")
def main() -> None:
    """Mneme: an OpenAI-compatible proxy that remembers."""
