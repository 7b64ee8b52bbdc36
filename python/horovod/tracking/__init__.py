"""Step times and other numbers of a job in TensorBoard, MLflow or Weights & Biases:

    from horovod.tracking import TensorBoard, Tracker
    with Tracker(TensorBoard("runs/one")) as tracker:
        for batch in loader:
            ...
            tracker.step(loss=float(loss))

`horovod.tracking.lightning` and `horovod.tracking.keras` have the same as callbacks. Rank 0 logs, or all ranks with
`all_ranks=True`. The packages that are logged to are imported when they are first used.
"""

from horovod.tracking.tracker import Tracker
from horovod.tracking.writers import MLflow, TensorBoard, WandB, Writer

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "Writer"]
