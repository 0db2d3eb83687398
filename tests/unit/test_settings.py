from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from contracts.errors import ConfigError
from deployments.environment import Environment, Secret
from deployments.settings import Settings, load, parse
from deployments.stage_settings import AutoscalingSettings, ColocatedStage, StagesSettings

CONFIGS = Path(__file__).parents[2] / "configs"
LOCAL, ELASTIC = (
    yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8")) for name in ("local.yaml", "elastic.yaml")
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_everything_has_its_default() -> None:
    settings = load(environment=Environment())
    assert settings.server.port == 8000
    assert settings.scoring.weights.vector == 0.65


def test_local_yaml_spells_out_the_defaults() -> None:
    """The file documents each setting; one that drifts from the code would mislead."""
    assert parse(LOCAL).model_dump() == Settings().model_dump()


def test_elastic_yaml_spells_out_the_defaults_of_the_other_backend() -> None:
    given = parse(ELASTIC).model_dump()
    assert given["index"].pop("backend") == "elasticsearch"
    expected = Settings().model_dump()
    expected["index"].pop("backend")
    assert given == expected


def test_the_files_have_every_setting() -> None:
    def keys(part: object, path: str = "") -> set[str]:
        if not isinstance(part, dict):
            return {path}
        return {path}.union(*(keys(value, f"{path}.{name}") for name, value in part.items()))

    missing = keys(Settings().model_dump(mode="json")) - keys(LOCAL) - keys(ELASTIC)
    # Written once, at the first deployment; and folders that follow data_dir.
    assert {key for key in missing if not key.endswith((".autoscaling", ".max_surge_percent", ".cache_dir"))} == set()


@pytest.mark.parametrize(
    ("colocated", "at_once"),
    [((), None), (("planner", "assembler"), None), (tuple(sorted(get_args(ColocatedStage))), 3)],
    ids=["none", "some", "all"],
)
def test_searches_have_turns_where_one_process_does_all_the_work(colocated: Any, at_once: int | None) -> None:
    assert StagesSettings(colocate=colocated, searches_at_once=3).at_once == at_once


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("sever: {}", "sever"),
        ("server: {prot: 1}", "server.prot"),
        ("server: {port: high}", "server.port"),
        ("server: {port: 70000}", "server.port"),
        ("stages: {planner: {config: {short_querry: 1}}}", "stages.planner.config.short_querry"),
        ("stages: {colocate: [reader]}", "stages.colocate.0"),
        ("stages: {colocate: [reranker], reranker: {config: {kind: cross_encoder}}}", "stages"),
        ("stages: {reader: {deployment: {num_replicas: 0}}}", "stages.reader.deployment.num_replicas"),
        ("scoring: {weights: {vector: 0.7}}", "scoring.weights"),
        ("identity: {jwt: {secret: hush}}", "identity.jwt.secret"),
        ("identity: {jwt: {issuer: x, audience: [y], algorithms: [RS256]}}", "identity.jwt"),
        ("identity: {jwt: {algorithms: [none]}}", "identity.jwt.algorithms.0"),
        ("limits: {account: {rate_per_s: 0}}", "limits.account.rate_per_s"),
        ("limits: {accounts: {acme: {burst: 5}}}", "limits.accounts.acme"),
        ("index: {backend: milvus}", "index.backend"),
        ("index: {elastic: {api_key: hush}}", "index.elastic.api_key"),
        ("database: {url: 'mysql://db/strata'}", "database.url"),
        ("database: {url: 'postgresql://strata:hush@db/strata'}", "database.url"),
        ("index: {elastic: {connection: {hosts: [es-1]}}}", "index.elastic.connection.hosts"),
        ("index: {elastic: {connection: {hosts: ['http://es:1'], cloud_id: a}}}", "index.elastic.connection"),
        (
            "stages: {reader: {deployment: {autoscaling: {upscale_delay_s: 1}}}}",
            "stages.reader.deployment.autoscaling",
        ),
    ],
)
def test_a_wrong_setting_is_a_config_error_with_its_dotted_key(tmp_path: Path, text: str, field: str) -> None:
    """K8: refused at start."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), Environment())
    assert caught.value.field == field
    assert field in caught.value.message
    assert "settings.yaml" in caught.value.message
    assert caught.value.remedy
    assert "hush" not in str(caught.value)


def test_weights_that_do_not_add_up_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"add up to 1\.05"):
        load(write(tmp_path, "scoring: {weights: {vector: 0.7}}"), Environment())


def test_a_budget_for_a_stage_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rerunker"):
        load(write(tmp_path, "chain: {budgets: {rerunker: {budget_ms: 1, reserve_ms: 0}}}"), Environment())


@pytest.mark.parametrize("text", ["- a list", "a: [", "text", "\x00"])
def test_what_is_no_yaml_mapping_is_a_config_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(write(tmp_path, text), Environment())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml", Environment())


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, ""), Environment()).server == Settings().server


def test_the_environment_names_the_file_and_the_data_folder(tmp_path: Path) -> None:
    path = write(tmp_path, "data_dir: elsewhere\nserver: {port: 9000}")
    environment = Environment.read({"STRATA_CONFIG": str(path), "STRATA_HOME": str(tmp_path / "home"), "OTHER": "x"})
    settings = load(environment=environment)
    assert settings.server.port == 9000
    assert settings.data_dir == tmp_path / "home"
    assert settings.embedder.cache_dir == tmp_path / "home" / "models"


def test_empty_variables_count_as_not_set() -> None:
    assert Environment.read({"STRATA_CONFIG": "", "STRATA_URL": ""}) == Environment()


def test_the_key_of_the_environment_is_not_shown() -> None:
    assert "hush" not in repr(Environment.read({"STRATA_API_KEY": "strata_1_hush"}))


@pytest.mark.parametrize("name", get_args(Secret))
def test_a_secret_comes_from_its_variable_or_from_the_file_that_another_names(tmp_path: Path, name: Secret) -> None:
    variable = f"STRATA_{name.upper()}"
    path = tmp_path / "secret"
    path.write_text("from a file\n", encoding="utf-8")
    assert Environment.read({}).secret(name) is None
    assert Environment.read({variable: "plain"}).secret(name) == "plain"
    assert Environment.read({f"{variable}_FILE": str(path)}).secret(name) == "from a file"
    assert Environment.read({variable: "plain", f"{variable}_FILE": str(path)}).secret(name) == "plain"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
def test_a_secret_file_that_can_not_be_read_is_named_by_its_variable(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    environment = Environment.read({"STRATA_ELASTIC_PASSWORD_FILE": str(path)})
    with pytest.raises(ConfigError) as caught:
        environment.secret("elastic_password")
    assert caught.value.field == "STRATA_ELASTIC_PASSWORD_FILE"
    assert str(path) in caught.value.message


def test_secrets_are_shown_by_neither_the_environment_nor_the_settings(tmp_path: Path) -> None:
    environment = Environment.read({f"STRATA_{name.upper()}": "hush" for name in get_args(Secret)})
    settings = load(write(tmp_path, "index: {backend: elasticsearch}"), environment)
    assert "hush" not in f"{environment!r} {settings!r} {settings.model_dump_json()}"


def test_the_environment_names_the_elasticsearch_nodes_before_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "index: {elastic: {connection: {cloud_id: 'a:b', username: strata}}}")
    environment = Environment.read({"STRATA_ELASTIC_HOSTS": "https://es-1:9200, https://es-2:9200,"})
    connection = load(path, environment).index.elastic.connection
    assert connection.hosts == ("https://es-1:9200", "https://es-2:9200")
    assert (connection.cloud_id, connection.username) == (None, "strata")


@pytest.mark.parametrize("hosts", ["es-1:9200", "ftp://es-1", "https://user:hush@es-1:9200"])
def test_wrong_elasticsearch_hosts_in_the_environment_are_refused_by_name(hosts: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environment=Environment.read({"STRATA_ELASTIC_HOSTS": hosts}))
    assert caught.value.field == "STRATA_ELASTIC_HOSTS"
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("replicas", ["1", "0-all", "'2'"])
def test_copies_of_an_index_are_a_number_or_a_range(tmp_path: Path, replicas: str) -> None:
    settings = load(write(tmp_path, f"index: {{elastic: {{layout: {{replicas: {replicas}}}}}}}"), Environment())
    assert settings.index.elastic.layout.replicas == replicas.strip("'")


def test_folders_mean_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
        data_dir: data
        embedder: {path: model, cache_dir: cache}
        index: {elastic: {connection: {ca_file: ca.pem}}}
        identity: {jwt: {jwks_file: jwks.json}}
    """
    settings = load(write(tmp_path, text), Environment())
    assert settings.index_dir == tmp_path / "data" / "index"
    assert settings.old_keys_path == tmp_path / "data" / "keys.db"
    assert settings.embedder.path == tmp_path / "model"
    assert settings.embedder.cache_dir == tmp_path / "cache"
    assert settings.index.elastic.connection.ca_file == tmp_path / "ca.pem"
    assert settings.identity.jwt.jwks_file == tmp_path / "jwks.json"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8000"), ("0.0.0.0", "http://127.0.0.1:8000"), ("::", "http://[::1]:8000")],
)
def test_the_url_is_one_that_a_client_on_this_machine_can_use(host: str, url: str) -> None:
    assert parse({"server": {"host": host}}).url == url


def test_clients_on_this_machine_take_the_direct_door_where_there_is_one() -> None:
    assert parse({"server": {"direct_port": 8001}}).url == "http://127.0.0.1:8001"


def test_a_deployment_keeps_the_defaults_of_its_stage_when_one_setting_changes() -> None:
    deployment = parse({"stages": {"embedder": {"deployment": {"num_gpus": 0.5}}}}).stages.embedder.deployment
    assert (deployment.num_gpus, deployment.num_cpus, deployment.max_ongoing_requests) == (0.5, 0.3, 128)


def test_autoscaling_takes_the_place_of_a_fixed_number() -> None:
    raw = {"stages": {"reader": {"deployment": {"autoscaling": {"max_replicas": 3}}}}}
    options = parse(raw).stages.reader.deployment.options()
    assert "num_replicas" not in options
    assert options["autoscaling_config"]["max_replicas"] == 3


@pytest.mark.parametrize(("look_back", "interval"), [(30, 10), (600, 10), (6, 2)])
def test_replicas_tell_of_their_load_several_times_within_the_window(look_back: float, interval: float) -> None:
    scaling = AutoscalingSettings(look_back_period_s=look_back, upscale_delay_s=600)
    assert scaling.options()["metrics_interval_s"] == interval
