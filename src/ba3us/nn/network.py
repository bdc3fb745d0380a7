"""F and G: a backbone, a bottleneck and a classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ba3us.errors import UserError, require


def xavier(module: nn.Module) -> None:
    """Xavier-normal weights and zero bias for linear layers, as BA³US and CDAN start theirs."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@dataclass(frozen=True)
class Head:
    """The layers on the backbone: a linear bottleneck (``None``: none) and a linear classifier.

    The bottleneck may continue with batch norm, ReLU and dropout, in this order. `keep_norm` multiplies by
    √(1 - dropout) in training, so that dropout leaves the expected squared norm of the features as it is.
    `weight_norm` splits the classifier's weights into length and direction. Weights start Xavier-normal
    with zero bias, or, biases too, from N(0, `std`²). `keep_classifier` takes a given, pretrained classifier
    as it is instead of a new one.
    """

    bottleneck: int | None = 256
    batch_norm: bool = False
    relu: bool = False
    dropout: float = 0.0
    keep_norm: bool = False
    weight_norm: bool = False
    std: float | None = None
    keep_classifier: bool = False

    def build(self, in_features: int, num_classes: int) -> tuple[nn.Module, nn.Module]:
        """The bottleneck and the classifier, with their initial weights."""
        layers: list[nn.Module] = []
        if self.bottleneck is not None:
            layers.append(nn.Linear(in_features, self.bottleneck))
            if self.batch_norm:
                layers.append(nn.BatchNorm1d(self.bottleneck))
            if self.relu:
                layers.append(nn.ReLU())
            if self.dropout:
                layers.append(nn.Dropout(self.dropout))
            if self.keep_norm:
                layers.append(TrainingScale((1 - self.dropout) ** 0.5))
        classifier: nn.Module = nn.Linear(self.bottleneck or in_features, num_classes)
        for linear in (*layers[:1], classifier):
            if self.std is None:
                xavier(linear)
            else:
                for parameter in linear.parameters():
                    nn.init.normal_(parameter, 0.0, self.std)
        bottleneck = nn.Sequential(*layers) if len(layers) > 1 else layers[0] if layers else nn.Identity()
        return bottleneck, parametrizations.weight_norm(classifier) if self.weight_norm else classifier


class TrainingScale(nn.Module):
    """Multiplies by a constant in training; the identity in evaluation."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """x·factor in training, x otherwise."""
        return x * self.factor if self.training else x


class Network(nn.Module):
    """The shared network: x → backbone → bottleneck = features f → classifier = logits.

    Parameters
    ----------
    backbone : Module
        Anything that maps a batch to [n, `backbone_dim`]; ``nn.Identity()`` for feature arrays.
    backbone_dim : int
        Size of the backbone's output.
    num_classes : int
        C, the number of source classes.
    head : Head
        The layers on top.
    classifier : Linear, optional
        The pretrained classifier that a head with `keep_classifier` keeps.
    """

    def __init__(
        self,
        backbone: nn.Module,
        backbone_dim: int,
        num_classes: int,
        head: Head | None = None,
        classifier: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        head = head or Head()
        self.feature_dim = head.bottleneck or backbone_dim
        self.num_classes = num_classes
        self.backbone = backbone
        self.bottleneck, self.classifier = head.build(backbone_dim, num_classes)
        if head.keep_classifier:
            if classifier is None:
                raise UserError(
                    "keep_classifier is on but the backbone brought no pretrained classifier: switch it off."
                )
            shape = (classifier.in_features, classifier.out_features)
            require(
                shape == (self.feature_dim, num_classes),
                f"The pretrained classifier maps {shape[0]} features to {shape[1]} classes, but there are "
                f"{self.feature_dim} features and {num_classes} source classes: switch keep_classifier off.",
            )
            self.classifier = classifier

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x → (features [n, d], logits [n, C])."""
        features = self.bottleneck(self.backbone(x))
        return features, self.classifier(features)

    @property
    def couples_samples(self) -> bool:
        """Whether a training pass mixes the samples of a batch (batch norm), so domains must stay apart."""
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.modules())

    @property
    def couples_vectors(self) -> bool:
        """Whether batch norm of vectors is in training mode: it has no statistics for one sample alone."""
        return any(isinstance(m, nn.BatchNorm1d) and m.training for m in self.modules())

    def passes(self, *batches: Tensor, joint: bool = False) -> tuple[Tensor, Tensor]:
        """Features and logits of all samples of several batches, one batch after the other.

        Each batch passes separately if the network couples samples, else (or `joint`) all in one.
        """
        batches = tuple(x for x in batches if len(x))
        if len(batches) > 1 and self.couples_samples and not joint:
            features, logits = zip(*map(self, batches))
            return torch.cat(features), torch.cat(logits)
        return self(batches[0] if len(batches) == 1 else torch.cat(batches))
