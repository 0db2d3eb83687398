"""The Serve config that is made of the settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from typer.testing import CliRunner

from deployments.cli.app import app as cli
from deployments.graph import app
from deployments.k8s.render import arguments, dump, serve_config
from deployments.k8s.resources import Wanted, quantity, unplaced
from deployments.k8s.serving import unknown
from deployments.settings import parse

ROOT = Path(__file__).parents[2]


def rendered(**settings: Any) -> Any:
    return serve_config(parse(settings))


def named(config: Any, name: str) -> Any:
    return next(each for each in config["applications"][0]["deployments"] if each["name"] == name)


def test_it_is_what_serve_takes_and_has_no_key_that_serve_passes_over() -> None:
    config = yaml.safe_load(dump(rendered(limits={"account": {"rate_per_s": 5}})))
    parsed = ServeDeploySchema.model_validate(config)
    assert list(unknown(ServeDeploySchema, config)) == []
    assert {"ingress", "embedder", "limits"} <= {each.name for each in parsed.applications[0].deployments}


def test_numbers_of_replicas_stand_in_deployments_and_not_in_the_arguments() -> None:
    """Serve takes a change of ``args`` for new code and rolls every stage; replicas scale in place."""
    few, many = (
        rendered(stages={"embedder": {"deployment": {"num_replicas": count}, "batch": {"limit": 8 * count}}})
        for count in (1, 3)
    )
    assert few["applications"][0]["args"] == many["applications"][0]["args"]
    assert (named(few, "embedder")["num_replicas"], named(many, "embedder")["num_replicas"]) == (1, 3)
    assert named(many, "embedder")["user_config"] == {"limit": 24}


def test_autoscaling_takes_the_place_of_a_number() -> None:
    config = rendered(stages={"reader": {"deployment": {"autoscaling": {"min_replicas": 2, "max_replicas": 5}}}})
    assert "num_replicas" not in named(config, "reader")
    assert named(config, "reader")["autoscaling_config"]["max_replicas"] == 5


def test_every_other_setting_is_an_argument_and_makes_the_same_settings() -> None:
    given = {"server": {"max_concurrent": 7}, "chain": {"limit": 50}, "stages": {"colocate": ["planner"]}}
    assert parse(arguments(parse(given))) == parse(given)


def test_with_limits_the_ingress_knows_how_many_it_is() -> None:
    given = {"server": {"deployment": {"num_replicas": 3}}}
    assert "server" not in arguments(parse(given))
    limited = arguments(parse(given | {"limits": {"account": {"rate_per_s": 5}}}))
    assert limited["server"]["deployment"] == {"num_replicas": 3}


def test_the_builder_takes_the_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    assert app(parse(arguments(parse({"limits": {"account": {"rate_per_s": 5}}}))))


def test_the_command_prints_the_config_of_an_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = CliRunner().invoke(cli, ["k8s", "render", "--overlay", "production-gpu"])
    assert shown.exit_code == 0
    assert named(yaml.safe_load(shown.stdout), "reranker")["ray_actor_options"]["num_gpus"] == 0.6


def test_the_command_names_the_overlays_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = CliRunner().invoke(cli, ["k8s", "render", "--overlay", "huge"])
    assert shown.exit_code != 0
    assert "production-cpu" in shown.output


@pytest.mark.parametrize(("text", "number"), [("500m", 0.5), ("8", 8), (2, 2), ("4Gi", 4 * 2**30), ("1.5", 1.5)])
def test_quantities_are_read_as_kubernetes_means_them(text: object, number: float) -> None:
    assert quantity(text) == number


def test_fractions_that_do_not_fit_on_one_gpu_are_not_added_up_over_several() -> None:
    pods = [{"GPU": 1.0}, {"GPU": 1.0}]
    assert unplaced([Wanted("reranker", {"GPU": 0.6}, 3)] * 3, pods) == "reranker"
    assert unplaced([Wanted("reranker", {"GPU": 0.5}, 3)] * 3, [{"GPU": 1.0}, {"GPU": 1.0}]) == ""
