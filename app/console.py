"""What the commands share: settings, output, errors, a database for as long as it takes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from tomllib import TOMLDecodeError
from typing import Any, TypeVar

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.errors import MnemeError
from app.optional import needed
from app.settings import Settings, find_removed_settings

T = TypeVar("T")


def load_settings(**options: Any) -> Settings:
    """Return the settings, with what the command line says on top. Raises UsageError for wrong and for removed ones."""
    return read_settings(check_removed=True, **options)


def read_settings(*, check_removed: bool, **options: Any) -> Settings:
    """Return the settings, as `load_settings`. Removed ones are left to the caller where `check_removed` is False."""
    try:
        if check_removed and (removed := find_removed_settings(os.environ)):
            lines = [f"  {setting.message}" for setting in removed]
            raise click.UsageError("These settings were removed:\n" + "\n".join(lines))
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        lines = [f"  MNEME_{'_'.join(map(str, each['loc'])).upper()}: {each['msg']}" for each in error.errors()]
        raise click.UsageError("These settings are wrong:\n" + "\n".join(lines)) from error
    except SettingsError as error:
        raise click.UsageError(f"A setting is no JSON: {error}.") from error
    except TOMLDecodeError as error:
        raise click.UsageError(f"mneme.toml cannot be read: {error}.") from error


def base_of(settings: Settings) -> str:
    """The URL of the server that runs with these settings; one that listens everywhere is asked on loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - asked, not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def show(data: Any, as_json: bool, text: Callable[[], None]) -> None:
    """Print `data` as JSON, or let `text` say it to a person."""
    if as_json:
        click.echo(json.dumps(data, default=str, indent=2))
    else:
        text()


def failing_clearly(command: Callable[..., T]) -> Callable[..., T]:
    """An error of Mneme's own is one line on standard error and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> T:
        try:
            return command(*args, **kwargs)
        except MnemeError as error:
            raise click.ClickException(error.message) from error

    return run


@contextmanager
def database(settings: Settings, say: Callable[[str], None]) -> Iterator[str]:
    """The DSN: the one configured, else that of the embedded server, which a feature runs meanwhile. Raises NotReady."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    with needed("embedded", "Set MNEME_DATABASE_URL").running(settings, say) as dsn:
        yield dsn


def with_database(settings: Settings, work: Callable[[str], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a DSN: the configured one, or the embedded server, started for as long as it takes. Raises NotReady for
    a database of another schema, in which nothing is changed."""
    from app.store.migrate import check_age
    from app.store.pools import START_WAIT_S, reach

    async def checked(dsn: str) -> T:
        connection = await reach(settings.direct(dsn), START_WAIT_S)
        try:
            await check_age(connection)
        finally:
            await connection.close()
        return await work(dsn)

    with database(settings, lambda line: click.echo(line, err=True)) as dsn:
        return asyncio.run(checked(dsn))
