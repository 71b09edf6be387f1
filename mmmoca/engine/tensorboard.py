# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.visualization import TensorboardVisBackend

from mmmoca.registry import VISBACKENDS


@VISBACKENDS.register_module()
class TensorboardBackend(TensorboardVisBackend):
    """TensorBoard's curves of a run and its resumes, in one folder.

    With its first point TensorBoard drops what a run before this one has
    logged later. The config is a file of the work dir.

    Args:
        save_dir (str): Of the visualizer of a run, which fills it in:
            ``WORK_DIR/TIME/vis_data``. The files lie in
            ``WORK_DIR/tensorboard``.
    """

    def __init__(self, save_dir: str) -> None:
        super().__init__(str(Path(save_dir).parents[1] / 'tensorboard'))
        self._has_points = False

    def add_config(self, config: Config, **kwargs) -> None:
        """Do nothing: a run that is refused leaves no file."""

    def add_scalar(
        self, name: str, value: Any, step: int = 0, **kwargs
    ) -> None:
        """Log a point; the first one begins a session.

        Args:
            name (str): Of the curve.
            value (Any): A number, or an array or tensor of one.
            step (int): The iteration. Defaults to 0.
            **kwargs: Not used.
        """
        if not self._has_points:
            from torch.utils.tensorboard.writer import Event, SessionLog

            log = SessionLog(status=SessionLog.START)
            event = Event(step=step, session_log=log)
            self.experiment.file_writer.add_event(event)
            self._has_points = True
        super().add_scalar(name, value, step, **kwargs)
