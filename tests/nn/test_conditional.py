"""What a conditional discriminator sees, and many discriminators at once."""

from __future__ import annotations

import pytest
import torch

from ba3us.nn import Conditional, DiscriminatorBank


@pytest.mark.parametrize(("classes", "product", "width"), [
    (16, "auto", 4096), (17, "auto", 1024), (17, "plain", 256 * 17), (2, "random", 1024)
])  # fmt: skip
def test_projected_above_4096_dimensions_unless_told(classes, product, width):
    condition = Conditional(256, classes, product)
    assert condition.out_features == width
    assert condition(torch.randn(3, 256), torch.randn(3, classes)).shape == (3, width)


def test_the_projection_keeps_inner_products_on_average():
    """⟨f⊗p, f'⊗p'⟩ = ⟨f, f'⟩·⟨p, p'⟩, which random features estimate without bias."""
    torch.manual_seed(0)
    f, z = torch.randn(2, 6), torch.randn(2, 4)
    plain, projected = (Conditional(6, 4, kind, dims=200_000)(f, z) for kind in ("plain", "random"))
    assert torch.allclose(projected @ projected.T, plain @ plain.T, rtol=0.05, atol=0.02)


def test_no_gradient_through_the_prediction():
    for kind in ("plain", "random"):
        f, z = torch.randn(2, 6, requires_grad=True), torch.randn(2, 4, requires_grad=True)
        Conditional(6, 4, kind)(f, z).sum().backward()
        assert z.grad is None and f.grad.abs().sum() > 0


def test_the_projection_is_fixed_and_saved():
    condition = Conditional(6, 4, "random", dims=8)
    assert not list(condition.parameters())
    assert set(condition.state_dict()) == {"random_features", "random_classes"}


@pytest.mark.parametrize("hidden", [(), (5,), (5, 5)])
def test_a_bank_is_its_discriminators_side_by_side(hidden):
    torch.manual_seed(0)
    bank, x = DiscriminatorBank(3, 4, hidden, dropout=0.0), torch.randn(3, 7, 4)
    for k, scores in enumerate(bank(x)):
        value = x[k]
        for layer, (weight, bias) in enumerate(zip(bank.weights, bank.biases)):
            value = value @ weight[k].T + bias[k]
            value = value.relu() if layer < len(hidden) else value
        assert torch.allclose(scores, value[:, 0], atol=1e-6)


def test_a_bank_drops_out_in_training_only():
    torch.manual_seed(0)
    bank, x = DiscriminatorBank(2, 4, (64,), dropout=0.5), torch.randn(2, 3, 4)
    assert not torch.equal(bank(x), bank(x))
    bank.eval()
    assert torch.equal(bank(x), bank(x))
