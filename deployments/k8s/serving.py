"""A Serve config held to Serve's own schema, to our settings, and to the graph that they make."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve._private.build_app import build_app
from ray.serve.schema import ServeDeploySchema

from contracts.errors import ConfigError
from deployments.graph import APP, build
from deployments.k8s.render import IMPORT_PATH
from deployments.settings import Settings, parse


def problems(text: str) -> Iterator[str]:
    """What is wrong with a ``serveConfigV2``, by field.

    Args:
        text: YAML, as a RayService holds it.
    """
    try:
        config = yaml.safe_load(text)
        parsed = ServeDeploySchema.model_validate(config)
    except yaml.YAMLError:
        yield "it is no YAML"
        return
    except ValidationError as error:
        for problem in error.errors():
            yield f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg'].removeprefix('Value error, ')}"
        return
    # Serve takes unknown keys in silence, so that a mistyped one would do nothing.
    for path in unknown(ServeDeploySchema, config):
        yield f"{path} is no field of Serve's schema"
    for at, app in enumerate(parsed.applications):
        where = f"applications.{at}"
        if app.import_path != IMPORT_PATH:
            yield f"{where}.import_path is {app.import_path}, not {IMPORT_PATH}"
            continue
        try:
            settings = settings_of(text, at)
        except ConfigError as error:
            yield error.message
            continue
        graph = {deployment.name for deployment in build_app(build(settings), name=APP).deployments}
        named = {deployment.name for deployment in app.deployments}
        for name in sorted(named - graph):
            yield f"{where}.deployments names {name}, which the graph lacks; it has {', '.join(sorted(graph))}"
        for name in sorted(graph - named):
            yield f"{where}.deployments lacks {name} of the graph"
        yield from budgets(settings)


def settings_of(text: str, at: int = 0) -> Settings:
    """The settings that an application is started with.

    Args:
        text: See :func:`problems`.
        at: Which application.

    Raises:
        ConfigError: A setting is unknown or wrong.
    """
    args = yaml.safe_load(text)["applications"][at].get("args", {})
    return parse(args, source=f"applications.{at}.args")


def budgets(settings: Settings) -> Iterator[str]:
    """Budgets and reserves of stages that the whole search has no room for."""
    total = settings.chain.timeout_ms
    reserved = 0
    for name, budget in settings.chain.budgets.items():
        reserved += budget.reserve_ms
        if budget.budget_ms > total:
            yield f"chain.budgets.{name}.budget_ms is {budget.budget_ms}, more than timeout_ms of the whole: {total}"
    if reserved > total:
        yield f"reserve_ms of all chain.budgets is {reserved}, more than timeout_ms of the whole: {total}"


def unknown(model: Any, data: Any, path: str = "") -> Iterator[str]:
    """Paths of keys that a pydantic model, or one inside it, has no field for.

    Args:
        model: The model, or the annotation of a field.
        data: Plain data that is valid for it.
        path: Of ``data``, dotted.
    """
    if isinstance(model, type) and issubclass(model, BaseModel):
        if not isinstance(data, dict):
            return
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        fields |= {name: field.annotation for name, field in model.model_fields.items()}
        for key, value in data.items():
            here = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from unknown(fields[key], value, here)
            else:
                yield here
    elif get_origin(model) is list and isinstance(data, list):
        for at, item in enumerate(data):
            yield from unknown(get_args(model)[0], item, f"{path}.{at}")
    elif get_origin(model) in {UnionType, Union}:
        # Of a choice between a model and a free mapping, the model says which keys mean something.
        for choice in get_args(model):
            if isinstance(choice, type) and issubclass(choice, BaseModel):
                yield from unknown(choice, data, path)
