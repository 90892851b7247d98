"""What each command does: the shell between the command line and the library."""

from certus.commands.asking import evaluate_command, predict_command
from certus.commands.comparing import compare_command
from certus.commands.listing import data_command, methods_command
from certus.commands.training import pretrain_command, train_command

DO = {
    "train": train_command,
    "pretrain": pretrain_command,
    "compare": compare_command,
    "evaluate": evaluate_command,
    "predict": predict_command,
    "methods": methods_command,
    "data": data_command,
}

__all__ = ["DO"]
