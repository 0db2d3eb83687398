"""The model hub and its local cache. Where the hub is, and with which token, its client reads from its own settings."""

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from contracts.errors import ConfigError
from models.catalog import Backend, Precision
from models.files import choose

# Seconds. A hub that is there answers in a fraction of it, and one that is not should not hold up a start.
TIMEOUT = 2.0


class _Reach:
    """Whether the hub answered; asked once a process, so that several models wait for a dead network only once."""

    lost = ""


def cached(repo: str, revision: str | None) -> Path | None:
    """The snapshot of a repository in the local cache; it may hold only some of the files."""
    try:
        # No pattern: whether the files suffice is for `choose` to say.
        return Path(snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=[]))
    except LocalEntryNotFoundError:
        return None


def download(repo: str, revision: str | None, backend: Backend, precision: Precision | None) -> Path:
    """Fetch the files of a model into the local cache.

    Raises:
        ConfigError: The hub can't be reached, refuses, or the repository lacks such a model.
    """
    if _Reach.lost:
        raise ConfigError(_Reach.lost)
    try:
        info = HfApi().model_info(repo, revision=revision, timeout=TIMEOUT)
        names = [sibling.rfilename for sibling in info.siblings or []]
        chosen = choose(names, backend, precision)
        if chosen is None:
            raise ConfigError(f"the repository has no {precision or ''} {backend} model".replace("  ", " "))
        # By branch and not by commit: only so does the cache note what the branch stands for.
        return Path(snapshot_download(repo, revision=revision, allow_patterns=chosen.files, etag_timeout=TIMEOUT))
    except ConfigError:
        raise
    except HfHubHTTPError as error:
        raise ConfigError(f"refused ({type(error).__name__})") from error
    except Exception as error:  # The client raises its transport's errors, whichever that is.
        _Reach.lost = f"can't be reached ({type(error).__name__})"
        raise ConfigError(_Reach.lost) from error
