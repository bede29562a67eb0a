"""`mneme reembed`: change the embedder while the server runs."""

from __future__ import annotations

from typing import Any

import click

from app.console import failing_clearly, load_settings, show, with_database
from app.store.reembed import Space


@click.command()
@click.option("--status", is_flag=True, help="Only say which spaces there are, and how many vectors each has.")
@click.option("--drop", metavar="SPACE", help="Drop a space that is not used any more.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def reembed(status: bool, drop: str | None, as_json: bool) -> None:
    """Give everything a vector of the embedder that the settings name, while the server runs with the old one.

    Run it with the new MNEME_EMBEDDER…; then restart the server with these settings; then run it once more, for what was said
    in between; then drop the old space. Stopped, it goes on where it was.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from app.reembedding import Watch, drop_space, spaces_of
    from app.reembedding import reembed as run

    if status and drop is not None:
        raise click.UsageError("--status and --drop do not go together.")
    settings = load_settings()
    if status:
        spaces = with_database(settings, lambda dsn: spaces_of(settings.direct(dsn)))
        show({"spaces": [_told(each) for each in spaces]}, as_json, lambda: _list(spaces))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=0)
        total = 0

        def more(items: int) -> None:
            nonlocal total
            total += items
            progress.update(bar, total=total)

        watch = Watch(
            step=lambda text: progress.update(bar, description=text),
            more=more,
            done=lambda items: progress.advance(bar, items),
        )
        if drop is not None:
            name = drop
            watch.step("dropping")
            gone = with_database(settings, lambda dsn: drop_space(settings, dsn, name, watch))
        else:
            result = with_database(settings, lambda dsn: run(settings, dsn, watch))
    if drop is not None:
        show(
            {"dropped": drop, "vectors": gone},
            as_json,
            lambda: click.echo(f"The space {drop} is gone, with {gone} vectors."),
        )
        return
    told = {
        "space": result.space,
        "dimensions": result.dimensions,
        "embedded": result.embedded,
        "wordless": result.wordless,
        "left": result.left,
        "spaces": [_told(each) for each in result.spaces],
    }

    def text() -> None:
        click.echo(f"{result.embedded} vectors were made in {result.space}.")
        if result.left:
            click.echo(f"{result.left} items were written meanwhile and have none yet.")
        others = [each.name for each in result.spaces if each.name != result.space and each.vectors]
        if others:
            click.echo(
                "Now restart the server with these settings, run `mneme reembed` once more, and then drop what is"
            )
            click.echo("not used any more: " + ", ".join(f"`mneme reembed --drop {each}`" for each in others))

    show(told, as_json, text)


def _told(space: Space) -> dict[str, Any]:
    return {
        "name": space.name,
        "dimensions": space.dimensions,
        "vectors": space.vectors,
        "created_at": space.created_at,
    }


def _list(spaces: list[Space]) -> None:
    for each in spaces:
        click.echo(f"{each.name}: {each.vectors} vectors of {each.dimensions} dimensions")
