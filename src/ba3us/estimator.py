"""The scikit-learn face: arrays of features in, an adapted classifier out."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ba3us import methods
from ba3us.data import Source, Target
from ba3us.data.arrays import check_labels, check_rows, split_domains
from ba3us.errors import require
from ba3us.methods.base import MethodConfig
from ba3us.selection import class_shares, present_classes
from ba3us.training import Blueprint, Hook, Model, ProgressBar, Result, RunConfig, fit

_PLAIN = "source-only"
# what scikit-learn's metadata routing, which skada builds on, may hand to the methods
_TO_FIT = {"Xt": True, "sample_domain": True}
_TO_PREDICT = {"sample_domain": True, "allow_source": True}
_TO_SCORE = _TO_PREDICT | {"sample_weight": True}


class PartialAdapter(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier for an unlabelled target that holds only some of the source's classes.

    Without a target it is the source-only classifier, trained for as many updates.

    Parameters
    ----------
    method : str
        A registered name; ``ba3us methods`` lists them.
    steps : int
        Updates of the network. The default takes seconds on a laptop.
    warmup_steps, batch_size, learning_rate : optional
        As in the method's own defaults, unless given.
    options : dict, optional
        Any other hyper-parameters of the method, such as ``{"beta": 1.0}``; they win over those above.
    random_state : int, RandomState or None
        An int is the seed of initial weights, batches and dropout. None draws another at every fit.
    threads : int, optional
        CPU threads. Results repeat to the last bit for the same number of them. Default: torch's.
    verbose : bool
        Show a progress bar on the standard error, if that is a terminal.

    Attributes
    ----------
    classes_ : array [C]
        The source's labels, sorted.
    class_weights_ : array [C]
        BA³US's m, for whichever method: the mean prediction over the target, which says how much of it each
        class is believed to make up. Sums to 1.
    classes_present_ : array
        Labels of the classes that the target is believed to hold: those whose share of its predictions is
        above 1/(2C). This rule is provisional.
    history_ : DataFrame
        Every tenth update: its losses, learning rate, ramps.
    evaluations_ : list of Evaluation
        Looks at the whole target while training: predictions (indices into `classes_`), mean probabilities,
        mean entropy.
    selected_ : int or None
        Which of the evaluations has the weights in use: the surest (lowest mean entropy).
    model_ : Model
        The trained network.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Without a target all classes count as present with equal weights, `evaluations_` is empty, `selected_`
    None, and the weights in use are the last.

    Notes
    -----
    Memory-mapped arrays stay on disk, in `fit` and in `predict`; with `sample_domain` as long as each domain
    is one block of rows. float16, float32 and float64 are computed in float32.

    In ``GridSearchCV(PartialAdapter(), grid).fit(X, y, Xt=Xt)`` each fold adapts to `Xt` and the score is the
    accuracy on held-out *source* rows, which says little about the target. A `scoring` function that looks at
    the target judges without labels::

        def sure_and_diverse(model, X, y):
            p = model.predict_proba(Xt)
            mean = p.mean(axis=0)
            return (p * np.log(p + 1e-9)).sum(axis=1).mean() - (mean * np.log(mean + 1e-9)).sum()

    (If `Xt` has as many rows as `X`, scikit-learn cuts it into folds too.) skada's scorers and splitters do it
    with `sample_domain`. In a ``Pipeline`` earlier steps transform `X` only: stack both domains and pass
    ``partialadapter__sample_domain``, so that they reach the target as well.

    Examples
    --------
    >>> model = PartialAdapter("ba3us", steps=300).fit(X, y, Xt)  # doctest: +SKIP
    >>> model.predict(Xt), model.classes_present_  # doctest: +SKIP
    """

    __metadata_request__fit = _TO_FIT
    __metadata_request__fit_transform = _TO_FIT
    __metadata_request__predict = _TO_PREDICT
    __metadata_request__predict_proba = _TO_PREDICT
    __metadata_request__transform = _TO_PREDICT
    __metadata_request__score = _TO_SCORE

    def __init__(
        self,
        method: str = "ba3us",
        *,
        steps: int = 1000,
        warmup_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        options: dict[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.options = options
        self.random_state = random_state
        self.threads = threads
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, Xt: ArrayLike | None = None, *, sample_domain: ArrayLike | None = None
    ) -> PartialAdapter:
        """Adapt to a target.

        Parameters
        ----------
        X : array [n, features]
            The source; with `sample_domain`, source and target rows.
        y : array [n]
            Labels of any type: strings, numbers, booleans. Those of target rows are never looked at.
        Xt : array [m, features], optional
            The target.
        sample_domain : array [n], optional
            In place of `Xt`, as in skada: rows with a positive number are source, with a negative one target.
        """
        config = self._config()
        rows, y, target_rows = self._domains(X, y, Xt, sample_domain)
        self.classes_, labels = check_labels(y, len(rows))
        source = Source(rows, labels, num_classes=len(self.classes_))
        if target_rows is None:
            nobody = Target(rows[:1])  # the loop wants a target; source-only never trains on it
            self._train(_PLAIN, _plain(config), source, nobody).use("last")
            self._keep_plain()
        else:
            self._keep(self._train(self.method, config, source, Target(target_rows)))
        return self

    def predict(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """The likeliest label of each row. `sample_domain` and `allow_source` are for skada, and ignored."""
        best = self._collect(X, np.int64, lambda features, logits: logits.argmax(dim=1))
        return self.classes_[best]

    def predict_proba(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """Probability of each class, float32 [n, C], in the order of `classes_`."""
        return self._collect(X, np.float32, lambda features, logits: logits.softmax(dim=1))

    def transform(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """Adapted features: what the classifier sees, float32 [n, d]."""
        return self._collect(X, np.float32, lambda features, logits: features)

    def fit_transform(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        Xt: ArrayLike | None = None,
        *,
        sample_domain: ArrayLike | None = None,
    ) -> np.ndarray:
        """:meth:`fit`, then :meth:`transform` of `X`."""
        return self.fit(X, y, Xt, sample_domain=sample_domain).transform(X)  # type: ignore[arg-type]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sample_domain: ArrayLike | None = None,
        allow_source: bool = True,
    ) -> float:
        """Accuracy on labelled rows."""
        return super().score(X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    # --- what goes in ------------------------------------------------------------------------------------

    def _config(self) -> MethodConfig:
        require(isinstance(self.method, str), f"The method is {self.method!r}: give a name, such as 'ba3us'.")
        entry = methods.get(self.method)
        require(
            "pixels" not in entry.info.needs,
            f"The method {self.method!r} needs pixels, but X holds feature vectors: choose another method.",
        )
        require(
            self.options is None or isinstance(self.options, dict),
            f"options is {self.options!r}: give a dict of hyper-parameters, such as {{'beta': 1.0}}.",
        )
        threads = self.threads
        require(
            threads is None or isinstance(threads, numbers.Integral),
            f"threads is {threads!r}: give a whole number.",
        )
        named = ("steps", "warmup_steps", "batch_size", "learning_rate")
        given = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        return entry.config(**given | (self.options or {}))

    def _domains(
        self, X: Any, y: Any, Xt: Any, sample_domain: Any
    ) -> tuple[np.ndarray, Any, np.ndarray | None]:
        """Source rows, their labels, target rows (None: there are none)."""
        if sample_domain is not None:
            require(Xt is None, "Both Xt and sample_domain are given: leave one of them out.")
            return split_domains(check_rows(self, X, "X", reset=True), y, sample_domain)
        rows = check_rows(self, X, "source", reset=True)
        return rows, y, None if Xt is None else check_rows(self, Xt, "target")

    def _collect(self, X: Any, dtype: Any, wanted: Callable[[Tensor, Tensor], Tensor]) -> np.ndarray:
        """What is wanted of features and logits of every row, batch by batch."""
        check_is_fitted(self)
        domain, row = Target(check_rows(self, X, "X"), name="X"), 0
        for features, logits in self.model_.outputs(domain):
            part = wanted(features, logits).numpy()
            if row == 0:  # one array for all; many small ones would leave holes in the memory
                collected = np.empty((len(domain), *part.shape[1:]), dtype)
            collected[row : row + len(part)] = part
            row += len(part)
        return collected

    # --- what comes out ----------------------------------------------------------------------------------

    def _train(self, method: str, config: MethodConfig, source: Source, target: Target) -> Result:
        options = dataclasses.asdict(config)
        hooks: list[Hook] = [ProgressBar(title=method)] if self.verbose else []
        run = RunConfig(seed=_seed(self.random_state), threads=self.threads)
        result = fit(method, source, target, options=options, config=run, hooks=hooks)
        blueprint = Blueprint(method, options, self.n_features_in_, source.num_classes)
        self.model_ = Model(blueprint, result.module)
        self.history_ = result.history
        self._n_features_out = self.model_.feature_dim
        return result

    def _keep(self, result: Result) -> None:
        self.history_ = result.full_history()
        self.evaluations_ = result.evaluations
        self.selected_: int | None = result.selected
        best = result.evaluations[result.selected]
        self.class_weights_ = best.mean_probabilities
        shares = class_shares(best.predictions, len(self.classes_))
        self.classes_present_ = self.classes_[present_classes(shares)]

    def _keep_plain(self) -> None:
        self.evaluations_, self.selected_ = [], None
        self.class_weights_ = np.full(len(self.classes_), 1 / len(self.classes_))
        self.classes_present_ = self.classes_.copy()


def _plain(config: MethodConfig) -> MethodConfig:
    """Source-only with what it shares with another method's settings, and as many updates."""
    plain = methods.get(_PLAIN).method.Config
    shared = {f.name: getattr(config, f.name) for f in dataclasses.fields(plain)}
    return plain(**shared | {"steps": config.steps + config.warmup_steps, "warmup_steps": 0})


def _seed(random_state: Any) -> int:
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
