import pytest

from tests.support.keys import Keys


@pytest.fixture
def token(keys: Keys) -> str:
    return keys.create("acme", user_space="user:alice")[0]
