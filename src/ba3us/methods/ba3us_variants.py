"""The paper's ablations and combinations of BA³US: other settings of its class.

=================  ========  ============  ===============  =====
system             borrowed  m in L_cls^w  m in L_adv^ba    β
=================  ========  ============  ===============  =====
E-DANN (Eq. 4)     none      yes           no               0
AUS                none      yes           no               β
BAA                ρ → 0     yes           yes              0
BA³US              ρ → 0     yes           yes              β
closed-set         ρ → 0     no            no               0, β
+CDAN              D sees vec(p ⊗ f) in place of f; the rest as above
=================  ========  ============  ===============  =====
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ba3us.methods.ba3us import BA3US, INFO, PUBLISHED
from ba3us.methods.registry import register

_NOTE = "No code was released for the outer-product discriminator; everything else is the released method."
_OUTER: dict[str, Any] = {"setting": "both", "losses": "reconstruction", "note": _NOTE}
_NOTE = "Full target, no class weights; the paper gives no settings, so the partial ones are used."
_CLOSED: dict[str, Any] = {"setting": "closed-set", "note": _NOTE}
_CLOSED_OUTER: dict[str, Any] = {**_CLOSED, "losses": "reconstruction"}
_UNWEIGHTED: dict[str, Any] = {"weight_source": False, "weight_alignment": False}


_BORROWED = {
    d: dataclasses.replace(p, note="those of the partial task; none were published for the full target")
    for d, p in PUBLISHED.items()
}


def _variant(name: str, title: str, known: dict[str, Any] | None = None, **settings: Any) -> None:
    published = _BORROWED if name.endswith("-closed") else PUBLISHED
    register(name, dataclasses.replace(INFO, title=title, **known or {}), published, **settings)(BA3US)


_variant("e-dann", "E-DANN", rho=0.0, beta=0.0, weight_alignment=False)
_variant("aus", "AUS (E-DANN + AUS)", rho=0.0, weight_alignment=False)
_variant("baa", "BAA", beta=0.0)
_variant("baa+cdan", "BAA + CDAN", _OUTER, beta=0.0, conditional=True)
_variant("ba3us+cdan", "BA³US + CDAN", _OUTER, conditional=True)
_variant("baa-closed", "BAA, closed set", _CLOSED, beta=0.0, **_UNWEIGHTED)
_variant("ba3us-closed", "BA³US, closed set", _CLOSED, **_UNWEIGHTED)
_variant("baa+cdan-closed", "BAA + CDAN, closed set", _CLOSED_OUTER, beta=0.0, conditional=True, **_UNWEIGHTED)
_variant("ba3us+cdan-closed", "BA³US + CDAN, closed set", _CLOSED_OUTER, conditional=True, **_UNWEIGHTED)
