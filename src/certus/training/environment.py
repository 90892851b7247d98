"""What a run was trained with: versions and the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from certus import __version__


def environment() -> dict[str, Any]:
    names = ("torch", "numpy", "scikit-learn", "safetensors")
    return {
        "certus": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **{name: version(name) for name in names},
    }
