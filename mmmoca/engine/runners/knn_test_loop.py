# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""Weighted k-NN classification as a protocol."""

from pathlib import Path

from mmengine.dist import is_main_process

from mmmoca.evaluation.report import render_table
from mmmoca.files import write_json
from mmmoca.registry import LOOPS

from .knn_loop import KNNValLoop

__all__ = ['KNNTestLoop']


@LOOPS.register_module()
class KNNTestLoop(KNNValLoop):
    """:class:`KNNValLoop` as a protocol: for ``test_cfg``.

    The same arguments and the same result. What a warning does during
    training is an error here, and the accuracies of all k and T are printed
    as a table and written to ``knn.json`` in the work dir.

    Raises:
        ValueError: As :class:`KNNValLoop`; if k is larger than the bank.
    """

    stage = 'test'

    def run(self) -> dict:
        """Classify the queries, show and write the accuracies.

        Returns:
            dict: Metrics of the evaluator.
        """
        metrics = super().run()
        by_name = {name.rpartition('/')[2]: v for name, v in metrics.items()}
        results = [
            dict(k=k, temperature=t)
            | {
                top: by_name[f'{top}_{name}']
                for top in ('top1', 'top5')
                if f'{top}_{name}' in by_name
            }
            for name, k, t in self.settings
        ]
        if is_main_process() and 'top1' in results[0]:
            self._report(results)
        return metrics

    def _report(self, results: list[dict]) -> None:
        ks = list(dict.fromkeys(result['k'] for result in results))
        rows = {}  # T -> accuracy for each k
        for result in results:
            row = rows.setdefault(result['temperature'], [])
            row.append(f'{result["top1"]:.2f}')
        table = render_table(
            ['k-NN top-1 (%)', *(f'k = {k}' for k in ks)],
            [[f'T = {t:g}', *row] for t, row in rows.items()],
        )
        path = Path(self.runner.work_dir) / 'knn.json'
        write_json(
            path,
            dict(
                protocol='k-NN',
                checkpoint=self.runner.cfg.get('load_from'),
                bank_images=len(self.bank_dataloader.dataset),
                query_images=len(self.dataloader.dataset),
                classes=len(self._classes),
                results=results,
            ),
        )
        self.runner.logger.info(f'{path}\n{table}')
