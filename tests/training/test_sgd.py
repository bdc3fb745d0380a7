"""The lean update of the optimiser is torch's own step."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from ba3us.training.parameters import SGD


def made(net: nn.Module, kind: type[torch.optim.SGD], momentum: float) -> torch.optim.SGD:
    groups = [{"params": net[0].parameters(), "lr": 0.3}, {"params": net[2].parameters(), "weight_decay": 0.2}]
    return kind(groups, lr=0.1, momentum=momentum, nesterov=momentum > 0, weight_decay=0.01, fused=True)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_updates_equal_steps_to_the_bit(momentum):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    theirs = copy.deepcopy(ours)
    lean, plain = made(ours, SGD, momentum), made(theirs, torch.optim.SGD, momentum)
    for i in range(6):
        x = torch.randn(4, 5)
        for net, optimizer in ((ours, lean), (theirs, plain)):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.param_groups[1]["lr"] = 0.1 / (1 + i)
            if i == 3:
                net[2].bias.grad = None  # a parameter that this step leaves alone
        before = ours[2].bias.clone()
        lean.update()
        plain.step()
        assert torch.equal(before, ours[2].bias) == (i == 3)
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
    resumed = made(ours, SGD, momentum)
    resumed.load_state_dict(plain.state_dict())
    assert str(resumed.state_dict()) == str(lean.state_dict())


def test_after_the_first_it_leaves_torchs_step_alone(monkeypatch):
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    optimizer = made(net, SGD, 0.9)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.update()
    calls = []
    monkeypatch.setattr(optimizer, "step", lambda: calls.append(1))
    before = net[0].weight.clone()
    optimizer.update()
    assert not calls and not torch.equal(before, net[0].weight)
