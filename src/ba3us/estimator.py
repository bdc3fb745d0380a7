"""The scikit-learn face: arrays of features in, an adapted classifier out."""

from __future__ import annotations

import numbers
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ba3us.adapt import train
from ba3us.assess.calibration import Calibration
from ba3us.assess.presence import PRESENT, UNCERTAIN
from ba3us.assess.verdict import Verdict
from ba3us.auto.guard import with_verdict
from ba3us.data import Target
from ba3us.data.domains import check_numbers
from ba3us.data.files import encoded
from ba3us.errors import UserError, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.run.opening import Arrays, OpenedArrays
from ba3us.run.run import Run
from ba3us.run.spec import Spec
from ba3us.run.storage import members_folder
from ba3us.training import Callback

# --- rows -------------------------------------------------------------------------------------------------
# What scikit-learn users may pass as rows, checked: features, or both domains in one array.


def check_rows(estimator: Any, x: Any, name: str, *, reset: bool = False) -> np.ndarray:
    """Anything two-dimensional as an array of numbers; a memory-mapped one as it is.

    With `reset` the estimator learns number and names of the features, else they must be those it knows.
    Values are not looked at.
    """
    require(not sparse.issparse(x), f"The {name} is a sparse matrix: make it dense with toarray().")
    require(
        not isinstance(x, str | PurePath),
        f"The {name} is the text {str(x)!r}: load the file, give its array.",
    )
    try:
        x = x if hasattr(x, "shape") else np.asarray(x)
        require(
            len(x.shape) == 2,
            f"The {name} has shape {tuple(x.shape)}: Reshape your data to [n, features], one row per sample.",
        )
        if not reset:
            _check_width(estimator, x.shape[1], name)
        if isinstance(x, np.memmap):
            require(x.shape[1] > 0, f"The {name} has 0 features: give at least one column.")
            if reset:
                estimator.n_features_in_ = x.shape[1]
            return x
        return validate_data(
            estimator, x, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0
        )
    except UserError:
        raise
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:300].rstrip(".")  # what follows is the data
        raise UserError(f"The {name} can't be used ({reason}): give an array of numbers.") from error


def split_domains(x: np.ndarray, y: Any, sample_domain: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
    """By the sign in `sample_domain`: source rows, their labels, target rows (None if there are none).

    Labels of target rows are left behind unread.
    """
    check_numbers(x, "X")  # here, where row numbers are still the user's
    domain = np.asarray(sample_domain)
    require(
        domain.shape == (len(x),) and domain.dtype.kind in "iuf",
        f"sample_domain has shape {domain.shape} and type {domain.dtype} for {len(x)} rows: "
        "give one number per row, positive for source and negative for target.",
    )
    unclear = np.flatnonzero(~((domain > 0) | (domain < 0)))
    if len(unclear):
        raise UserError(
            f"sample_domain is {domain[unclear[0]]} in row {unclear[0]}: "
            "make it positive for source rows and negative for target rows."
        )
    is_source = domain > 0
    require(bool(is_source.any()), "sample_domain has no source row: give source rows a positive number.")
    rows = np.flatnonzero(is_source)
    if y is not None:
        length = len(y) if hasattr(y, "__len__") else np.asarray(y).size
        require(length == len(x), f"X has {len(x)} rows but {length} labels: give one label per row.")
        y = _take(y, rows)
    targets = np.flatnonzero(~is_source)
    return _block(x, rows), y, _block(x, targets) if len(targets) else None


def _check_width(estimator: Any, width: int, name: str) -> None:
    known = estimator.n_features_in_
    if width != known:
        said = (
            f"X has {width} features, but {type(estimator).__name__} is expecting {known} features as input"
            if name == "X"  # scikit-learn's words
            else f"The {name} has {width} features, the source {known}"
        )
        raise UserError(f"{said}: give both the same columns.")


def _take(y: Any, rows: np.ndarray) -> Any:
    """Labels of some rows; a list is not made an array before, which could change the labels' type."""
    if hasattr(y, "iloc"):
        return y.iloc[rows]
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in rows]


def _block(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of `x`: a view if they are one block (of a mapped file nothing is read), else a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return x[first : last + 1] if last - first + 1 == len(rows) else x[rows]


# --- adapter ----------------------------------------------------------------------------------------------
# The scikit-learn face: arrays of features in, an adapted classifier out.


_NOTHING_KNOWN: dict[str, Any] = {"proportion": np.nan, "low": 0.0, "high": 1.0, "present": UNCERTAIN}
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
        ``"auto"`` chooses without labels, guards against harm and says whether adapting helped; or a registered
        name, which ``ba3us methods`` lists and which is trained as it is.
    preset : {"fast", "best"}
        Of ``"auto"``: one robust recipe beside source-only, or several with several seeds.
    steps, warmup_steps, batch_size, learning_rate : optional
        As in the method's own defaults, unless given. The default takes seconds on a laptop.
    method_params : dict, optional
        Any other hyper-parameters of the method, such as ``{"beta": 1.0}``; they win over those above.
    protocol, task : str, optional
        Take the settings published for a dataset, such as ``"office31"``, and one of its tasks, ``"A->W"``.
    selection : str or callable
        Which checkpoint of a named method is kept: ``"entropy"`` (the surest, the paper's rule), another rule
        of :mod:`ba3us.training.evaluation`, ``"neighbours"``, or a function of the target's outputs, larger is
        better.
    standardize : bool, optional
        Scale columns by the source's, within the model. Default: where they are far from unit scale.
    random_state : int, RandomState or None
        An int is the seed of initial weights, batches and dropout. None draws another at every fit.
    n_threads : int, optional
        CPU threads. Results repeat to the last bit for the same number of them. Default: torch's.
    device : str, optional
        "cpu", "cuda" or "auto", the default.
    assess : bool
        Also judge a named method, which takes about as long as ``"auto"``; that one always has a verdict.
    hooks : sequence of Callback
        Onlookers of the training.
    checkpoint : path, optional
        A file that holds the state of the training while it goes on. If that was interrupted, the same `fit`
        goes on from there, to the same end; afterwards the file is removed.
    verbose : bool
        Show progress on the standard error.

    Attributes
    ----------
    classes_ : array [C]
        The source's labels, sorted.
    class_proportions_ : array [C]
        BA³US's m, for whichever method: the mean prediction over the target, which says how much of it each
        class is believed to make up. Sums to 1.
    classes_present_ : array
        Labels of the classes that the target is believed to hold.
    class_presence_ : DataFrame
        One row per class: `share` of the target with an interval (`low`, `high`), and whether it is `present`:
        ``present``, ``absent`` or ``uncertain``. See :func:`ba3us.assess.presence.presence`.
    verdict_ : Verdict or None
        Helped, no evidence or harmed, what is served, the reasons and figures.
    leaderboard_ : DataFrame or None
        Of ``"auto"``: what was tried.
    calibration_ : Calibration or None
        Where there is a verdict: what turns logits into confidence, and an error level into a threshold.
    history_ : DataFrame
        Every tenth update: its losses, learning rate, ramps; every evaluation: its label-free scores.
    evaluations_ : list of Evaluation
        Looks at the whole target while training: predictions (indices into `classes_`), mean probabilities,
        label-free scores.
    best_index_ : int or None
        Which of the evaluations has the weights in use.
    run_ : Run
        All of it: model, spec, history; ``run_.save(folder)`` writes what ``ba3us predict`` reads.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Without a target all classes count as present with equal weights, `evaluations_` is empty, `best_index_`
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
    >>> model = PartialAdapter().fit(X, y, Xt)  # doctest: +SKIP
    >>> model.predict(Xt), model.classes_present_, model.verdict_  # doctest: +SKIP
    """

    __metadata_request__fit = _TO_FIT
    __metadata_request__predict = _TO_PREDICT
    __metadata_request__predict_proba = _TO_PREDICT
    __metadata_request__transform = _TO_PREDICT
    __metadata_request__score = _TO_SCORE

    def __init__(
        self,
        method: str = "auto",
        *,
        preset: str = "fast",
        steps: int | None = None,
        warmup_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        method_params: dict[str, Any] | None = None,
        protocol: str | None = None,
        task: str | None = None,
        selection: str | Callable[..., float] = "entropy",
        standardize: bool | None = None,
        random_state: int | np.random.RandomState | None = 0,
        n_threads: int | None = None,
        device: str | None = None,
        assess: bool = False,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.preset = preset
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.method_params = method_params
        self.protocol = protocol
        self.task = task
        self.selection = selection
        self.standardize = standardize
        self.random_state = random_state
        self.n_threads = n_threads
        self.device = device
        self.assess = assess
        self.callbacks = callbacks
        self.checkpoint = checkpoint
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
        spec = self._spec()
        rows, y, target_rows = self._domains(X, y, Xt, sample_domain)
        classes, labels = encoded(y, len(rows))
        target = rows[:1] if target_rows is None else target_rows  # source-only never trains on it
        opened = OpenedArrays(Arrays(rows.shape[1:]), rows, labels, target, classes.tolist())
        state = None if self.checkpoint is None else Path(self.checkpoint)
        how: dict[str, Any] = {
            "callbacks": self.callbacks,
            "state": state,
            "resume": True,
            "show": self.verbose,
        }
        run, seen = train(spec if target_rows is not None else spec.source_only(), opened, **how)
        judged = self.assess and target_rows is not None
        self.run_: Run = with_verdict(run, seen, spec, opened, self.verbose) if judged else run
        if state is not None:
            state.unlink(missing_ok=True)
            shutil.rmtree(members_folder(state), ignore_errors=True)
        self.classes_ = classes
        self._keep(target_rows is not None)
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

    def predict_confidence(self, X: ArrayLike) -> np.ndarray:
        """Calibrated confidence in each label, float64 [n]; abstain below ``calibration_.threshold(0.05)``."""
        check_is_fitted(self)
        if (sure := self.calibration_) is None:
            raise UserError(f"The method {self.method!r} has no calibration: use 'auto', and give a target.")
        return self._collect(X, np.float64, lambda _, logits: torch.from_numpy(sure.confidence(logits.numpy())))

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

    def _spec(self) -> Spec:
        require(
            self.method_params is None or isinstance(self.method_params, dict),
            f"method_params is {self.method_params!r}: give a dict of options, such as {{'beta': 1.0}}.",
        )
        named = ("steps", "warmup_steps", "batch_size", "learning_rate")
        given = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        given |= {"preset": self.preset} if self.method == AUTO else {}
        spec = Spec(
            method=self.method,
            method_params=given | (self.method_params or {}),
            protocol=self.protocol,
            task=self.task,
            selection=self.selection,
            standardize=self.standardize,
            seed=_seed(self.random_state),
            n_threads=self.n_threads,
            device=self.device,
        )
        spec.method_options()  # say what is wrong before looking at the data
        return spec

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
        for features, logits in self.run_.model.outputs(domain):
            part = wanted(features, logits).numpy()
            if row == 0:  # one array for all; many small ones would leave holes in the memory
                collected = np.empty((len(domain), *part.shape[1:]), dtype)
            collected[row : row + len(part)] = part
            row += len(part)
        return collected

    # --- what comes out ----------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        """A fit that failed leaves nothing fitted, though it has counted the features."""
        return hasattr(self, "run_")

    def _keep(self, adapted: bool) -> None:
        """What a run says; without a target, nothing is known of the classes."""
        run, count = self.run_, len(self.classes_)
        self._n_features_out = run.model.feature_dim
        self.history_ = run.history
        self.evaluations_ = run.evaluations if adapted else []
        self.best_index_: int | None = run.best_index if adapted else None
        self.class_proportions_ = run.best.mean_probabilities if adapted else np.full(count, 1 / count)
        self.class_presence_ = run.presence.assign(**{} if adapted else _NOTHING_KNOWN)
        self.classes_present_ = self.classes_[(run.presence["present"] == PRESENT).to_numpy() | (not adapted)]
        self.verdict_: Verdict | None = run.verdict
        self.leaderboard_: pd.DataFrame | None = run.leaderboard
        self.calibration_: Calibration | None = run.calibration


def _seed(random_state: Any) -> int:
    if isinstance(random_state, numbers.Integral):
        seed = int(random_state)
        require(seed >= 0, f"random_state is {seed}: it must be 0 or more.")
        return seed
    return int(check_random_state(random_state).randint(2**31 - 1))
