"""The domain discriminator."""

from __future__ import annotations

from torch import Tensor, nn

from ba3us.nn.network import xavier


class Discriminator(nn.Sequential):
    """D: in → hidden → hidden → 1 with ReLU and dropout; returns logits [n] (source is positive).

    Logits, not probabilities: binary cross-entropy with logits is the same maths and stays finite where
    the sigmoid saturates.
    """

    def __init__(self, in_features: int, hidden: int = 1024, dropout: float = 0.5) -> None:
        super().__init__(
            nn.Linear(in_features, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )
        self.apply(xavier)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] → [n]."""
        return super().forward(x).squeeze(1)
