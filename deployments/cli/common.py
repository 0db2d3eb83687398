"""What several commands share: the settings, the local key, the folder of the service's state."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.errors import ConfigError

if TYPE_CHECKING:
    from deployments.settings import Settings
    from models.config import EmbedderModelConfig

# The account of a machine with one user: what the demo makes, and what commands mean without --account.
ACCOUNT = "local"

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file. By default STRATA_CONFIG, else configs/local.yaml."),
]
AccountOption = Annotated[str, typer.Option("--account", "-a", help="Account (tenant).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
KeyOption = Annotated[
    str | None, typer.Option("--key", help="API key. By default STRATA_API_KEY, else the one saved on this machine.")
]


def config_path(given: Path | None) -> Path | None:
    """The settings file, absolute: the one given, that of STRATA_CONFIG, or the checkout's ``configs/local.yaml``."""
    from deployments.environment import Environment  # noqa: PLC0415 - pydantic, only when needed

    beside_package = Path(__file__).parents[2] / "configs" / "local.yaml"
    found = given or Environment.read().config or (beside_package if beside_package.is_file() else None)
    return found.absolute() if found else None


def load_settings(given: Path | None) -> "Settings":
    """The settings of :func:`config_path`, or the defaults.

    Raises:
        ConfigError: They are wrong.
    """
    from deployments.settings import load  # noqa: PLC0415 - pulls in every part's configuration

    return load(config_path(given))


def embedder_config(settings: "Settings", name: str | None) -> "EmbedderModelConfig":
    """The embedding model of the settings, or another one, run the same way."""
    from models.config import EmbedderModelConfig  # noqa: PLC0415

    chosen = settings.embedder
    if name in {None, chosen.name}:
        return chosen
    # What belongs to the model of the settings (folder, pooling, prefixes …) is not this one's.
    kept = {"device", "compute", "batch_tokens", "threads", "query_cache", "cache_dir"}
    return EmbedderModelConfig.model_validate(chosen.model_dump(include=kept) | {"name": name})


def program() -> str:
    """How the user can call this program again: by name where the shell finds it, else by the path it was called."""
    called = Path(sys.argv[0])
    found = shutil.which(called.name)
    if found and Path(found).absolute() == called.absolute():
        return called.name
    return shlex.quote(os.path.relpath(called) if called.is_absolute() else str(called))


def run_folder(settings: "Settings") -> Path:
    """Where the state file and the log of the local service lie."""
    return settings.data_dir / "run"


def service_url(settings: "Settings") -> str:
    """Where the service answers: STRATA_URL, the service started here, or what the settings say."""
    from deployments.environment import Environment  # noqa: PLC0415
    from deployments.lifecycle import Service  # noqa: PLC0415

    running = Service(run_folder(settings)).current()
    return Environment.read().url or (running.url if running else settings.url)


def service_is_up(settings: "Settings") -> bool:
    """Whether commands have a service to talk to: the one started here, or one that STRATA_URL names."""
    from deployments.environment import Environment  # noqa: PLC0415
    from deployments.lifecycle import Service  # noqa: PLC0415

    return bool(Environment.read().url) or Service(run_folder(settings)).current() is not None


def key_file(settings: "Settings") -> Path:
    """The key that this machine's commands use."""
    return settings.data_dir / "keys" / "local.key"


def save_key(settings: "Settings", key: str) -> Path:
    """Write the key file, readable by its owner only, replacing an older one."""
    path = key_file(settings)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(key + "\n")
    fresh.replace(path)
    return path


def find_key(settings: "Settings", given: str | None) -> str:
    """The key to send: the one given, STRATA_API_KEY, or the saved one.

    Raises:
        ConfigError: There is none.
    """
    from deployments.environment import Environment  # noqa: PLC0415

    if key := given or Environment.read().api_key:
        return key
    try:
        return key_file(settings).read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigError(
            "There is no API key on this machine.",
            field="key",
            remedy=f"Make one: strata keys create --account {ACCOUNT} --role user --save",
        ) from None
