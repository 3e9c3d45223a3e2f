"""What MLflow and Weights & Biases get of a run, without a server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
import wandb

from eval.runner import run
from tests.eval import runs

METHODS = "method=[full,streamingllm]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))
