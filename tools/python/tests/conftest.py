"""Where the package is tested that a build folder has, the environment variable PYTHONPATH says so."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)
