"""The oldest PyTorch that this package works with. Imported before everything else here, so that an older one is named
as the cause, not an attribute that it does not have.
"""

import torch

if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
    raise ImportError(f"horovod.torch needs PyTorch 2.1 or later, and this is {torch.__version__}; upgrade torch")
