"""What a user is told when the graph can't start."""

import socket

import pytest
from ray.serve.schema import ApplicationStatusOverview, DeploymentStatusOverview

from contracts.errors import ConfigError
from deployments.graph import _check_port, _failure
from deployments.settings import ServerSettings

TRACEBACK = """The deployment failed to start 2 times in a row. Error:
ray::ServeReplica:strata:embedder.initialize_and_get_metadata() (pid=1)
  File "resolve.py", line 106, in resolve
    raise ConfigError(
contracts.errors.ConfigError: CONFIG_ERROR: Model x was not found. Looked at: here; there. Set path.
"""


def status(message: str) -> ApplicationStatusOverview:
    part = DeploymentStatusOverview(
        status="DEPLOY_FAILED", status_trigger="REPLICA_STARTUP_FAILED", replica_states={}, message=message
    )
    return ApplicationStatusOverview(
        status="DEPLOY_FAILED",
        message="Failed to update the deployments ['embedder'].",
        last_deployed_time_s=0,
        deployments={"embedder": part},
    )


def test_a_replica_that_refuses_its_settings_is_quoted_without_the_traceback() -> None:
    (message,) = _failure(status(TRACEBACK))
    assert message == "Model x was not found. Looked at: here; there. Set path."


@pytest.mark.parametrize(
    ("message", "told"),
    [("Traceback:\n  File x\nOSError: no space left\n\n", "OSError: no space left"), ("", "Failed")],
)
def test_any_other_failure_is_told_by_its_last_line(message: str, told: str) -> None:
    (answer,) = _failure(status(message))
    assert told in answer
    assert "\n" not in answer


@pytest.mark.parametrize("field", ["port", "direct_port"])
def test_a_port_that_is_taken_is_named(field: str) -> None:
    """Also where the other one would share it: doors of two services must not."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        server = ServerSettings.model_validate({field: port})
        with pytest.raises(ConfigError, match=str(port)) as caught:
            _check_port(server, field)
    assert caught.value.field == f"server.{field}"
    _check_port(server, field)
