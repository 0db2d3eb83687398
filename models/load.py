"""From a config to a model ready to work."""

import importlib
from collections.abc import Callable
from typing import Any

from contracts.errors import ConfigError
from contracts.ports import Embedder, PairScorer
from models.config import CrossEncoderConfig, EmbedderModelConfig
from models.deterministic import NAME, DeterministicEmbedder
from models.encoder import EncoderEmbedder, Engine
from models.onnx_engine import OnnxEngine
from models.profile import DEFAULT_MAX_TOKENS, Profile, read_max_tokens, read_profile
from models.query_cache import QueryCache
from models.resolve import Found, Progress, pull, resolve
from models.tokens import TextTokenizer


def load_embedder(
    config: EmbedderModelConfig,
    progress: Progress = lambda _: None,
    cached: Callable[[int, int], None] = lambda hits, misses: None,
) -> Embedder:
    """Resolve, load and warm up an embedding model. Blocking: seconds, or minutes when it is fetched.

    Args:
        config: Which model, run how.
        progress: Told in a few words what is being fetched.
        cached: Told of query texts whose vectors were known, and of those that were not.

    Raises:
        ConfigError: An unknown name, a model found nowhere (with the places looked at), files that can't be used,
            dimensions that are not those asked for, or a missing extra.
    """
    embedder = _loaded(config, progress)
    return QueryCache(embedder, config.query_cache, cached) if config.query_cache else embedder


def _loaded(config: EmbedderModelConfig, progress: Progress) -> Embedder:
    if config.backend == "deterministic" or config.name == NAME:
        return DeterministicEmbedder(config.dimensions) if config.dimensions else DeterministicEmbedder()
    found, backend = pull(config, progress)
    profile = read_profile(config, found.folder)
    tokenizer, engine = (_onnx if backend == "onnx" else _torch)(config, found, profile)
    dimensions = _warm_up(engine, tokenizer, config)
    return EncoderEmbedder(
        engine,
        tokenizer,
        profile.ref(found.precision, dimensions),
        prefixes={"query": profile.query_prefix, "passage": profile.passage_prefix},
        batch_tokens=config.batch_tokens,
    )


def load_pair_scorer(config: CrossEncoderConfig, progress: Progress = lambda _: None) -> PairScorer:
    """Resolve, load and warm up a cross-encoder. Blocking.

    Raises:
        ConfigError: As ``load_embedder``; or not a classifier of one or two labels.
    """
    module = _needs_torch("models.cross_encoder")
    found = resolve(
        config.name,
        backend="torch",
        cache_dir=config.cache_dir,
        path=config.path,
        revision=config.revision,
        progress=progress,
    )
    scorer: PairScorer = module.TorchPairScorer(
        found.folder,
        options=config,
        max_tokens=config.max_tokens or min(read_max_tokens(found.folder), DEFAULT_MAX_TOKENS),
        batch_tokens=config.batch_tokens,
        threads=config.threads,
    )
    return scorer


def _onnx(config: EmbedderModelConfig, found: Found, profile: Profile) -> tuple[TextTokenizer, Engine]:
    tokenizer = TextTokenizer.load(found.folder, profile.max_tokens)
    engine = OnnxEngine(
        found.weights,
        pooling=profile.pooling,
        pad_id=tokenizer.pad_id,
        one_by_one=found.precision == "int8",
        threads=config.threads,
    )
    return tokenizer, engine


def _torch(config: EmbedderModelConfig, found: Found, profile: Profile) -> tuple[TextTokenizer, Engine]:
    module = _needs_torch("models.torch_engine")
    if (found.folder / "tokenizer.json").is_file():
        tokenizer = TextTokenizer.load(found.folder, profile.max_tokens)
    else:
        tokenizer = module.load_tokenizer(found.folder, profile.max_tokens)
    engine: Engine = module.TorchEngine(
        found.folder, pooling=profile.pooling, pad_id=tokenizer.pad_id, options=config, threads=config.threads
    )
    return tokenizer, engine


def _warm_up(engine: Engine, tokenizer: TextTokenizer, config: EmbedderModelConfig) -> int:
    # As long as the limit asked for, so that a model that can't hold it fails here and not in a request.
    text = "warm up " * (config.max_tokens or 1)
    try:
        return int(engine.encode(tokenizer.encode([text])[0]).shape[1])
    except Exception as error:  # Each engine raises its own kinds.
        raise ConfigError(
            f"Model {config.name} can't embed {config.max_tokens or 'a few'} tokens ({type(error).__name__}).",
            field="max_tokens" if config.max_tokens else "name",
            remedy="Lower max_tokens." if config.max_tokens else "",
        ) from error


def _needs_torch(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The backend torch needs {error.name}, which is not installed.",
            field="backend",
            remedy="Install the extra torch: make setup-all",
        ) from error
